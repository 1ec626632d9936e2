"""Commands that copy data out: what arrives at a destination, and what is pending."""

# ruff: noqa: PLC0415 - commands import late, so that --help is quick

from __future__ import annotations

import signal
import sys
from itertools import islice
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..text import messages
from .common import FAILED, ConfigOption, Output, OutputOption, TokenOption, UrlOption, connect, exit_at_sigterm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

    from ...adapters.base import Batch, Source
    from ..clock import Clock
    from ..config import Config
    from ..ledger.observed import Look, ObservedFiles, Reach

commands = typer.Typer()

_AT_ONCE = 500
"""Messages that are taken in one go, at most."""

_LOOK = 0.02
"""Seconds from a look's first message to its end."""

_BYTES = 4 << 20
"""Bodies of so many bytes in one look: it is full."""


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
    known = traits(loaded.brokers[name].type)
    copies = known.copies(address)
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

        files = ObservedFiles(to, name, address, secrets.token_hex(4), copies=copies)
        written = _write(arrivals, files, None if known.embedded else Reach(copies=copies))
        typer.echo(f"{messages(written)} written below {to}", err=True)


def _the_broker(config: Config, name: str | None) -> str:
    if name is None and len(config.brokers) == 1:
        return next(iter(config.brokers))
    if name not in config.brokers:
        raise typer.BadParameter(f"name one of: {', '.join(config.brokers)}", param_hint="--broker")
    return name


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

    from ..clock import wall_clock
    from ..config.file import find
    from ..ledger.observed import Look
    from .client import ApiError

    try:
        with connect(config, url, token_file).observe(broker, address) as lines:
            _announce(broker, address)
            for line in _with_pauses(islice(lines, count)):
                deliveries = [json.loads(line)] if line else []
                at = deliveries[0]["at"] if deliveries else wall_clock()
                yield Look(at, at, deliveries, full=True)
    except ApiError as error:
        if error.code != "unknown" or find(config) is not None:
            raise
        there = "observe reads from the daemon's own configuration what they are, and there is none here"
        raise typer.BadParameter(f"{error}. {there}: name that one", param_hint="--config") from error


def _with_pauses(lines: Iterator[str]) -> Iterator[str]:
    """The lines, and an empty one whenever none comes for `QUIET_MS`: then what came before may have to be written."""
    import queue
    import threading

    from ..ledger.observed import QUIET_MS

    came: queue.Queue[str | Exception | None] = queue.Queue(_AT_ONCE)

    def read() -> None:
        try:
            for line in lines:
                came.put(line)
            came.put(None)
        except Exception as error:  # noqa: BLE001 - it is raised where the lines are asked for
            came.put(error)

    threading.Thread(target=read, name="lines", daemon=True).start()
    while True:
        try:
            line = came.get(timeout=QUIET_MS / 1000)
        except queue.Empty:
            line = ""
        if line is None:
            return
        if isinstance(line, Exception):
            raise line
        yield line


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
    from .. import plugins
    from ..clock import wall_clock

    section = config.brokers[broker]
    adapter = plugins.adapter(section.type)
    if not isinstance(adapter, Observable):
        raise AdapterError(f"a broker of type {section.type} cannot be observed")
    tap = adapter.tap(section.options, address)
    try:
        tap.connect()
        _announce(broker, address)
        # Half of the prefetch: Artemis counts it in bytes, and what was acknowledged last may still be on its way to the broker.
        room = max(1, min(_AT_ONCE, getattr(section.options, "prefetch", _AT_ONCE)) // 2)
        yield from _looks(tap, address, room, wall_clock, time.monotonic, count, ended)
    finally:
        tap.close()


def _looks(
    tap: Source,
    address: str,
    room: int,
    clock: Clock,
    elapsed: Callable[[], float],
    count: int | None = None,
    ended: Callable[[], bool] = lambda: False,
) -> Iterator[Look]:
    """One look after the other, until `count` messages have come, or it has `ended`. When the next one is asked for, the last one is acknowledged.

    During a look nothing is acknowledged: a broker that gives no more has no more, for it could give up to `room`, unless it says that it is behind.
    """
    from ...adapters.base import Trailing
    from ..ledger.observed import Look

    left = count or sys.maxsize
    while left and not ended():
        began = clock()
        taken, full = _look(tap, min(room, left), clock, elapsed, left)
        deliveries = [delivery for batch, at in taken for delivery in _told(batch, address, at)]
        yield Look(began, clock(), deliveries, full or (isinstance(tap, Trailing) and tap.behind))
        for batch, _ in taken:
            batch.ack()
        left -= len(deliveries)


def _look(tap: Source, room: int, clock: Clock, elapsed: Callable[[], float], most: int) -> tuple[list[tuple[Batch, int]], bool]:
    """What comes from the first message on, for a short time, or until the look is full, and when; nothing if none comes for `QUIET_MS`.

    It never has more than `most`.
    """
    from ..ledger.observed import QUIET_MS

    taken: list[tuple[Batch, int]] = []
    count = size = 0
    end = elapsed() + QUIET_MS / 1000
    while (left := end - elapsed()) > 0:
        batch = tap.receive(limit=min(_AT_ONCE, most - count), timeout=left)
        if batch is None:
            continue
        if not taken:
            end = elapsed() + _LOOK
        taken.append((batch, clock()))
        count += len(batch.messages)
        size += sum(len(received.message.body or b"") for received in batch.messages)
        if count >= room or size >= _BYTES:
            return taken, True
    return taken, False


def _told(batch: Batch, address: str, at: int) -> list[dict[str, Any]]:
    import msgspec

    from ..http.convert import delivery

    return [msgspec.to_builtins(delivery(received, address, at)) for received in batch.messages]


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


def _write(arrivals: Iterable[Look], files: ObservedFiles, reach: Reach | None) -> int:
    """Until there are no more, or interrupted; returns how many. Without a `reach` nobody can say how far it has seen, and its files count as whole."""
    from ..clock import wall_clock

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
    return written


@commands.command(epilog="Example: delaybridge export --to pending.parquet")
def export(
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="The Parquet file to write; replaced when the new one is whole.")],
    config: ConfigOption = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
) -> None:
    """Write all pending messages to a Parquet file, for Spark and the like."""
    from .export import CutOffError, write_parquet

    if str(to) == "-":
        raise typer.BadParameter("a Parquet file is not written to standard output: name a file", param_hint="--to")
    if to.exists() and not to.is_file():
        raise typer.BadParameter(f"{to} is a {'directory' if to.is_dir() else 'device'}: name a file", param_hint="--to")
    if not to.parent.is_dir():
        raise typer.BadParameter(f"there is no directory {to.parent}", param_hint="--to")
    exit_at_sigterm()  # so that what is half written goes
    try:
        with connect(config, url, token_file).export() as pieces:
            rows = write_parquet(pieces, to, _progress)
    except CutOffError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(FAILED) from error
    typer.echo(f"{messages(rows)} written to {to}")


def _progress(rows: int) -> None:
    if sys.stderr.isatty():
        typer.echo(f"\r{messages(rows)}", err=True, nl=False)
