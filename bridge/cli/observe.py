"""Commands that copy data out: what arrives at a destination, and what is pending."""

# ruff: noqa: PLC0415 - commands import late, so that --help is quick

from __future__ import annotations

import signal
from itertools import islice
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import FAILED, ConfigOption, Output, OutputOption, TokenOption, UrlOption, connect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..config import Config
    from ..observed import ObservedFiles

commands = typer.Typer()

_AT_ONCE = 500
"""Messages that are taken in one go. Fewer than that: no more waited."""

_IN_PROCESS = "memory"
"""The broker type that lives in the daemon: only the daemon can listen there."""


@commands.command(epilog="Example: delaybridge observe reminders --broker rabbit --to ./observed")
def observe(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="The destination, written as `x-delay-to` would.")],
    broker: Annotated[str | None, typer.Option(help="On which broker; may be left out where there is one only.")] = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="Write Parquet files for the audit below this directory, instead of printing.")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many messages [default: at Ctrl-C]")] = None,
    config: ConfigOption = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Tell what arrives at a destination. And how late; takes nothing away from its consumers where the broker allows it."""
    from ..config.file import load

    loaded = load(config)
    name = _the_broker(loaded, broker)
    in_process = loaded.brokers[name].type == _IN_PROCESS
    arrivals = _through_daemon(config, url, token_file, name, address) if in_process else _directly(loaded, name, address)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if to is None:
        deliveries = (each for batch in _until_interrupted(arrivals) for each in batch)
        _print(islice(deliveries, count), output)
    else:
        import secrets

        from ..observed import ObservedFiles

        files = ObservedFiles(to, name, address, secrets.token_hex(4))
        typer.echo(f"{_write(arrivals, files, count, marks=not in_process)} messages written below {to}", err=True)


def _the_broker(config: Config, name: str | None) -> str:
    if name is None and len(config.brokers) == 1:
        return next(iter(config.brokers))
    if name not in config.brokers:
        raise typer.BadParameter(f"name one of: {', '.join(config.brokers)}", param_hint="--broker")
    return name


def _through_daemon(
    config: Path | None, url: str | None, token_file: Path | None, broker: str, address: str
) -> Iterator[list[dict[str, Any]]]:
    import json

    with connect(config, url, token_file).observe(broker, address) as lines:
        _announce(broker, address)
        for line in lines:
            yield [json.loads(line)]


def _directly(config: Config, broker: str, address: str) -> Iterator[list[dict[str, Any]]]:
    """A batch each time; an empty one where nothing came for a second. A lost connection ends it: what was missed cannot be known."""
    import msgspec

    from ...adapters.base import AdapterError, Observable
    from .. import plugins
    from ..clock import wall_clock
    from ..http.convert import delivery

    section = config.brokers[broker]
    adapter = plugins.adapter(section.type)
    if not isinstance(adapter, Observable):
        raise AdapterError(f"a broker of type {section.type} cannot be observed")
    tap = adapter.tap(section.options, address)
    try:
        tap.connect()
        _announce(broker, address)
        while True:
            batch = tap.receive(limit=_AT_ONCE, timeout=1.0)
            at = wall_clock()
            yield [msgspec.to_builtins(delivery(received, address, at)) for received in batch.messages] if batch else []
            if batch:
                batch.ack()
    finally:
        tap.close()


def _announce(broker: str, address: str) -> None:
    typer.echo(f"observing {address} on {broker}; Ctrl-C ends", err=True)


def _until_interrupted(arrivals: Iterable[list[dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
    try:
        yield from arrivals
    except KeyboardInterrupt:
        return


def _print(deliveries: Iterable[dict[str, Any]], output: Output) -> None:
    from ..text import instant, printable
    from .tables import show_rows

    if output is not Output.TABLE:
        show_rows(deliveries, {}, output)
        return
    for each in deliveries:
        lateness = f"{each['lateness_ms']} ms late" if each.get("lateness_ms") is not None else "not by a bridge"
        identity = f"{each['id']} #{each.get('occurrence')}" if each.get("id") else ""
        body = each["body"] if "body" in each else f"base64 {each.get('body_base64', '')}"
        typer.echo("  ".join(printable(part) for part in (instant(each["at"]), lateness, identity, body[:80])))


def _write(arrivals: Iterable[list[dict[str, Any]]], files: ObservedFiles, count: int | None, *, marks: bool) -> int:
    """Until `count`, or interrupted; returns how many. `marks`: a batch that is not full says that nothing more waited, as a tap's does."""
    from ..clock import wall_clock

    written = 0
    try:
        for batch in _until_interrupted(arrivals):
            taken = batch if count is None else batch[: count - written]
            for delivery in taken:
                files.add(delivery)
            written += len(taken)
            if marks and len(taken) == len(batch) < _AT_ONCE:
                files.caught_up(wall_clock())
            files.flush_if_due(wall_clock())
            if written == count:
                break
    finally:
        files.flush()
    return written


@commands.command(epilog="Example: delaybridge export --to pending.parquet")
def export(
    to: Annotated[Path, typer.Option("--to", help="The Parquet file to write; replaced when the new one is whole.")],
    config: ConfigOption = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
) -> None:
    """Write all that is pending to a Parquet file. For Spark and the like."""
    from ..export import CutOffError, write_parquet

    try:
        with connect(config, url, token_file).export() as pieces:
            rows = write_parquet(pieces, to, _progress)
    except CutOffError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(FAILED) from error
    typer.echo(f"{rows} messages written to {to}")


def _progress(rows: int) -> None:
    import sys

    if sys.stderr.isatty():
        typer.echo(f"\r{rows} messages", err=True, nl=False)
