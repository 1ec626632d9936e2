"""The command that shows or records what arrives at a destination."""

# ruff: noqa: PLC0415 - commands import late, so that --help is quick

from __future__ import annotations

import signal
import sys
from itertools import islice
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..text import messages
from .common import ConfigOption, Output, OutputOption, TokenOption, UrlOption, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

    from ..config import Config
    from ..ledger.observed import Look, ObservedFiles, Reach

commands = typer.Typer()


@commands.command(epilog="Example: delaybridge observe /exchanges/orders.real/eu --to ./observed")
def observe(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="The destination, written as `x-delay-to` would.")],
    broker: Annotated[str | None, typer.Option(metavar="NAME", help="The broker; may be left out if there is only one.")] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FOLDER", help="Write Parquet files for the audit below this directory, instead of printing."),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, metavar="NUMBER", help="Stop after this many messages [default: at Ctrl-C]")] = None,
    take: Annotated[bool, typer.Option("--take", help="At a queue: take its messages away without asking.")] = False,
    config: ConfigOption = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what arrives at a destination, and how late.

    At an exchange or a topic, and on the in-process broker, it receives copies. At a queue of RabbitMQ or ActiveMQ it takes the messages away for good,
    before their consumers: it asks first, or needs --take if nobody can answer.
    """
    from ..config.file import load
    from ..plugins import traits

    if str(to) == "-":
        raise typer.BadParameter("Parquet files are not written to standard output: name a directory", param_hint="--to")
    if to is not None and to.exists() and not to.is_dir():
        raise typer.BadParameter(f"{to} is not a directory: files are written below one", param_hint="--to")
    loaded = load(config)
    name = _the_broker(loaded, broker)
    _require_address(loaded.brokers[name].type, address)
    known = traits(loaded.brokers[name].type)
    copies = known.copies(address)
    recorded = address if to is None else _recorded(loaded, name, address)
    if not take and not copies:
        _ask(name, address, known.copied)
    if to is not None:
        _make(to)
        _recover(to)
    if known.embedded:
        for number in _others():
            signal.signal(number, signal.default_int_handler)
        arrivals = _through_daemon(config, url, token_file, name, address, count)
    else:
        arrivals = _directly(loaded, name, address, count, _signalled())
    if to is None:
        _print((each for look in _until_interrupted(arrivals) for each in look.deliveries), output)
    else:
        import secrets

        from ..ledger.observed import ObservedFiles, Reach

        files = ObservedFiles(to, name, recorded, secrets.token_hex(4), copies=copies)
        _write(arrivals, files, None if known.embedded else Reach(copies=copies))


def _the_broker(config: Config, name: str | None) -> str:
    if name is None and len(config.brokers) == 1:
        return next(iter(config.brokers))
    if name not in config.brokers:
        raise typer.BadParameter(f"name one of: {', '.join(config.brokers)}", param_hint="--broker")
    return name


def _require_address(kind: str, address: str) -> None:
    """What is no address is not called a queue, and nothing is asked about it."""
    from ...adapters.base import Rejected
    from ..plugins import check_address

    try:
        check_address(kind, address)
    except Rejected as error:
        raise typer.BadParameter(error.detail, param_hint="ADDRESS") from error


def _recorded(config: Config, broker: str, address: str) -> str:
    """The address for the files: the audit compares it, letter by letter, with the ledger's."""
    from ...adapters.base import Spelling
    from .. import plugins
    from ..observing import recorded

    adapter = plugins.adapter(config.brokers[broker].type)
    if isinstance(adapter, Spelling) and adapter.several(address):
        raise typer.BadParameter(
            f"{address!r} has `*` or `#` for a word of its key: at a topic exchange what was sent to other keys would be recorded under this one, "
            "and the audit would find none of it in a ledger. Record each key by itself; without --to it is shown",
            param_hint="ADDRESS",
        )
    first, *others = recorded(config, broker, address)
    if first != address:
        typer.echo(f"recorded as {first}, as the ledger has it", err=True)
    if others:
        typer.echo(
            f"the ledger also has it as {', '.join(others)}, of which nothing is found here: let all routes write it alike", err=True
        )
    return first


def _make(directory: Path) -> None:
    """Make the directory, and try to write there before anything is taken: a message of a queue that cannot be written afterwards is gone."""
    import tempfile

    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise typer.BadParameter(f"{directory} cannot be written: {error.strerror}", param_hint="--to") from error


def _recover(directory: Path) -> None:
    from ..ledger.observed import ObservedFiles

    if count := ObservedFiles.recover(directory):
        typer.echo(f"{messages(count)} that observers had taken when they were killed: written below {directory} now", err=True)


def _ask(broker: str, address: str, copied: str) -> None:
    """Ask whether to go on; end unless somebody says so."""
    loss = f"{address!r} is a queue: its messages are taken away for good, before their consumers"
    if not _at_terminal():
        raise typer.BadParameter(
            f"{loss}. Say --take if that is meant, or observe {copied}... on {broker}, which gives copies", param_hint="ADDRESS"
        )
    typer.confirm(f"On {broker}, {loss}. Go on?", abort=True, err=True)


def _at_terminal() -> bool:
    return sys.stdin.isatty()


def _through_daemon(
    config: Path | None, url: str | None, token_file: Path | None, broker: str, address: str, count: int | None
) -> Iterator[Look]:
    """Looks of one line each, and empty ones where none comes. The daemon does not say whether more waits."""
    import json

    from ...adapters.clock import wall_clock
    from ..config.file import find
    from ..ledger.observed import Look
    from ..observing import with_pauses
    from .client import ApiError

    try:
        with connect(config, url, token_file).observe(broker, address) as lines:
            _announce(broker, address)
            for line in with_pauses(islice(lines, count)):
                deliveries = [json.loads(line)] if line else []
                at = deliveries[0]["at"] if deliveries else wall_clock()
                yield Look(at, at, deliveries, full=True)
    except ApiError as error:
        if error.code != "unknown" or find(config) is not None:
            raise
        there = "observe reads from the daemon's own configuration what they are, and there is none here"
        raise typer.BadParameter(f"{error}. {there}: name that one", param_hint="--config") from error


def _others() -> list[signal.Signals]:
    """The signals that end it, as Ctrl-C does. Under nohup its terminal may be closed."""
    return [signal.SIGTERM] if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else [signal.SIGTERM, signal.SIGHUP]


def _signalled() -> Callable[[], bool]:
    """Whether a signal has asked for the end: what is taken is written and acknowledged first, or it goes back, and is observed twice.

    A second signal ends at once.
    """
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        if heard:
            signal.default_int_handler(number, frame)
        heard.append(number)

    for number in (signal.SIGINT, *_others()):
        signal.signal(number, hear)
    return lambda: bool(heard)


def _directly(config: Config, broker: str, address: str, count: int | None, ended: Callable[[], bool]) -> Iterator[Look]:
    """A lost connection ends it: what was missed cannot be known."""
    import time

    from ...adapters.base import AdapterError, Observable
    from ...adapters.clock import wall_clock
    from .. import plugins
    from ..observing import AT_ONCE, looks

    section = config.brokers[broker]
    adapter = plugins.adapter(section.type)
    if not isinstance(adapter, Observable):
        raise AdapterError(f"a broker of type {section.type} cannot be observed")
    tap = adapter.tap(section.options, address)
    try:
        tap.connect()
        _announce(broker, address)
        # Half of the prefetch: Artemis counts it in bytes, and what was acknowledged last may still be on its way to the broker.
        room = max(1, min(AT_ONCE, getattr(section.options, "prefetch", AT_ONCE)) // 2)
        yield from looks(tap, address, room, wall_clock, time.monotonic, count, ended)
    finally:
        tap.close()


def _announce(broker: str, address: str) -> None:
    typer.echo(f"observing {address} on {broker}; Ctrl-C ends", err=True)


def _until_interrupted(arrivals: Iterable[Look]) -> Iterator[Look]:
    try:
        yield from arrivals
    except KeyboardInterrupt:
        return


def _print(deliveries: Iterable[dict[str, Any]], output: Output) -> None:
    from ..text import instant, printable
    from .tables import print_json

    if output is not Output.TABLE:
        print_json(deliveries, output)
        return
    for each in deliveries:
        lateness = f"{each['lateness_ms']} ms late" if each.get("lateness_ms") is not None else "not by a bridge"
        identity = f"{each['id']} #{each.get('occurrence')}" if each.get("id") else ""
        body = each["body"] if "body" in each else f"base64 {each.get('body_base64', '')}"
        typer.echo("  ".join(printable(part) for part in (instant(each["at"]), lateness, identity, body[:80])))


def _write(arrivals: Iterable[Look], files: ObservedFiles, reach: Reach | None) -> None:
    """Until there are no more, it is interrupted, or the broker is lost. Without a `reach` nobody can say how far it has seen, and its files count as whole."""
    from ...adapters.clock import wall_clock

    written, failing = 0, False
    try:
        for look in _until_interrupted(arrivals):
            files.add(*look.deliveries)
            written += len(look.deliveries)
            if reach is not None:
                reach.looked(look)
                files.seen(reach.since, reach.until)
            files.flush_if_due(wall_clock())
            if files.error and not failing:
                typer.echo(f"{files.root} cannot be written, make room: {files.error}; what arrives is kept in memory meanwhile", err=True)
            failing = bool(files.error)
    finally:
        try:
            files.flush()
        except OSError as error:
            raise OSError(f"{files.root}: {files.unwritten} of {written} messages are in no file: {error}") from error
        typer.echo(f"{messages(written)} written below {files.root}", err=True)
