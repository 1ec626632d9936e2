"""Commands that look into a running daemon."""

# ruff: noqa: PLC0415 - commands import late, so that --help is quick

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

from .common import (
    FAILED,
    USAGE,
    ConfigOption,
    IdArgument,
    LimitOption,
    Output,
    OutputOption,
    TokenOption,
    UrlOption,
    connect,
    exit_at_sigterm,
)

commands = typer.Typer()

_MAYBE_SHELVED = ("dead_lettered", None)
"""What became of a message that may lie on the shelf; None: of an id that the bridge made, that is not remembered."""


@commands.command(epilog="Example: delaybridge status --output json")
def status(config: ConfigOption = None, url: UrlOption = None, token_file: TokenOption = None, output: OutputOption = Output.TABLE) -> None:
    """Show the daemon's state. What waits and for where, what is held back and why."""
    from .status import print_status
    from .tables import print_object

    found = connect(config, url, token_file).status()
    if output is Output.TABLE:
        print_status(found)
    else:
        print_object(found, output)


@commands.command(epilog="Example: delaybridge top --interval 5")
def top(
    interval: Annotated[float, typer.Option(min=0.1, max=86_400, metavar="SECONDS", help="Time between updates.")] = 2,
    config: ConfigOption = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
) -> None:
    """Watch the daemon. The status, refreshed, with rates per second; Ctrl-C to stop."""
    from rich.console import Console

    from .top import watch

    if not sys.stdout.isatty() or Console().is_dumb_terminal:  # rich would draw nothing on that
        typer.echo("top needs a terminal that it can draw on; for programs there is: delaybridge status --output json", err=True)
        raise typer.Exit(USAGE)
    exit_at_sigterm()  # so that the terminal is given back
    with suppress(KeyboardInterrupt):
        watch(connect(config, url, token_file), interval)


@commands.command("list", epilog="Example: delaybridge list --address /queues/orders --due-to 1h --limit 20")
def list_messages(
    broker: Annotated[str | None, typer.Option(metavar="NAME", help="Only messages for this broker.")] = None,
    address: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Only messages for this destination address.")] = None,
    id_prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only ids with this prefix, of producers or of series, in order of id.")
    ] = None,
    due_from: Annotated[
        str | None, typer.Option(metavar="TIME", help="Due then or later: RFC 3339, epoch ms, or a duration from now.")
    ] = None,
    due_to: Annotated[str | None, typer.Option(metavar="TIME", help="Due before then, in the same formats.")] = None,
    limit: LimitOption = 100,
    config: ConfigOption = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List what is pending, by due time."""
    from ..text import instant
    from .tables import show_first

    client = connect(config, url, token_file)
    wanted = {"broker": broker, "address": address, "id_prefix": id_prefix, "due_from": due_from, "due_to": due_to}
    filtered = any(value is not None for value in wanted.values())
    columns = {
        "DUE": lambda row: instant(row["due"]),
        "ID": lambda row: row["id"],
        "N": lambda row: row["occurrence"],
        "KIND": lambda row: row["kind"],
        "TO": lambda row: place(row["destination"]),
        "ROUTE": lambda row: row["route"],
        "STATE": lambda row: row["state"],
        "BYTES": lambda row: row["size"],
    }
    empty = "no pending message matches" if filtered else "no message is pending"
    show_first(lambda most: client.messages(most, **wanted), limit, columns, output, empty)


@commands.command(epilog="Example: delaybridge show order-4711")
def show(
    id_: IdArgument,
    config: ConfigOption = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one message, with headers, attempts, last error and next due times, or what became of it."""
    from ..text import printable
    from .client import ApiError
    from .tables import show_one

    client = connect(config, url, token_file)
    try:
        found = client.message(id_)
    except ApiError as error:
        letter = client.dead_letter(id_) if error.code == "too_late" and error.event in _MAYBE_SHELVED else None
        if letter is None:
            raise
        typer.echo(f"dead-lettered, number {letter['number']}: {letter['reason']}: {printable(letter['detail'])}", err=True)
        raise typer.Exit(FAILED) from error
    show_one(found, _details(found), output)


def place(where: dict[str, str]) -> str:
    """A destination or source, for people."""
    return f"{where['broker']}: {where['address']}" if where["address"] else where["broker"]


def _details(found: dict[str, Any]) -> dict[str, Any]:
    from ..text import instant

    plain = {
        name: found.get(name) for name in ("id", "occurrence", "kind", "dialect", "route", "state", "attempts", "error", "size", "misfire")
    }
    nested = {f"{part} {name}": value for part in ("headers", "properties") for name, value in (found.get(part) or {}).items()}
    return {
        **plain,
        "from": place(found["source"]),
        "to": place(found["destination"]),
        "due": instant(found["due"]),
        "waits for": found.get("waits_for"),
        "ends": instant(found.get("ends")),
        "next": "\n".join(map(instant, found.get("next", ()))),
        **nested,
        **_recurrence(found.get("recurrence") or {}),
    }


def _recurrence(found: dict[str, Any]) -> dict[str, Any]:
    """What of a recurrence says something: a period has no zone, a cron no start."""
    from .tables import duration

    shown: dict[str, Any] = {f"recurrence {name}": duration(found[name]) for name in ("delay", "period") if found.get(name)}
    if found.get("repeat"):
        shown["recurrence repeat"] = found["repeat"]
    if found.get("cron"):
        shown |= {"recurrence cron": found["cron"], "recurrence zone": found.get("zone")}
    return shown
