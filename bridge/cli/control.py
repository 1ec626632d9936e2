"""Commands that change what a running daemon holds."""

# ruff: noqa: PLC0415 - commands import late, so that --help is quick

from __future__ import annotations

import sys
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import FAILED, ConfigOption, IdArgument, Output, OutputOption, TokenOption, UrlOption, connect, utf8

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .client import Client

commands = typer.Typer()
_DIGITS = 20
"""Of a number that may be an instant; the daemon says what is wrong with the others."""
RouteArgument = Annotated[str, typer.Argument(metavar="ROUTE", callback=utf8, help="The route's name.")]


@commands.command(epilog="Example: delaybridge cancel order-4711")
def cancel(
    ids: Annotated[
        list[str],
        typer.Argument(metavar="ID", callback=utf8, help="As `list` shows them; `-` reads them from standard input, one per line."),
    ],
    config: ConfigOption = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Cancel pending messages. The answer for each is done, too_late, in_flight or unknown, or refused and why. Exit status 1 unless all are done."""
    client = connect(config, url, token_file)
    if len(ids) == 1 and ids != ["-"]:
        _ask(client, "cancel", ids[0], None, output)
    else:
        _cancel_each(client, [each for id_ in ids for each in (_lines() if id_ == "-" else [id_])], output)


@commands.command(epilog="Example: delaybridge reschedule order-4711 2h")
def reschedule(
    id_: IdArgument,
    due: Annotated[str, typer.Argument(metavar="DUE", help="RFC 3339, epoch ms, or a duration from now (90s, PT15M, 1d12h).")],
    config: ConfigOption = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Move a pending message to another instant. A recurrence then continues as before."""
    when: int | str = int(due) if due.isascii() and due.isdecimal() and len(due) <= _DIGITS else due
    _ask(connect(config, url, token_file), "reschedule", id_, {"due": when}, output)


@commands.command(epilog="Example: delaybridge release order-4711")
def release(
    id_: IdArgument, config: ConfigOption = None, url: UrlOption = None, token_file: TokenOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Deliver a pending message now."""
    _ask(connect(config, url, token_file), "release", id_, None, output)


@commands.command(epilog="Example: delaybridge pause orders")
def pause(route: RouteArgument, config: ConfigOption = None, url: UrlOption = None, token_file: TokenOption = None) -> None:
    """Stop delivering what came by a route. Messages are still taken in; `resume` delivers them."""
    connect(config, url, token_file).turn(route, "pause")
    typer.echo(f"{route}: paused")


@commands.command(epilog="Example: delaybridge resume orders")
def resume(route: RouteArgument, config: ConfigOption = None, url: UrlOption = None, token_file: TokenOption = None) -> None:
    """Resume a paused route."""
    connect(config, url, token_file).turn(route, "resume")
    typer.echo(f"{route}: resumed")


def _lines() -> list[str]:
    """Standard input, read to its end: a line that cannot be an id is found before anything is done."""
    from ...core.headers import LONGEST_ID

    try:
        text = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"standard input is not UTF-8: {error.reason} at byte {error.start}", param_hint="ID...") from error
    lines = [line for raw in text.split("\n") if (line := raw.rstrip("\r"))]
    for number, line in enumerate(lines, 1):
        if (size := len(line.encode())) > LONGEST_ID:
            raise typer.BadParameter(
                f"id {number} on standard input has {size} bytes, and an id has at most {LONGEST_ID}: one a line", param_hint="ID..."
            )
    if not lines:
        typer.echo("no id on standard input", err=True)
    return lines


def _cancel_each(client: Client, ids: Iterable[str], output: Output) -> None:
    """Give answers as they come, of the ids of one request at once: so whoever is interrupted knows how far it went, but for that many."""
    from ..text import printable
    from .client import ApiError
    from .tables import print_json

    left = []

    def answers() -> Iterator[dict[str, Any]]:
        for answer in client.cancel(ids):
            if answer.get("code") == "not_connected":  # so it would be for all others
                raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, answer["code"], answer["message"])
            if answer["outcome"] != "done":
                left.append(answer["id"])
            yield answer

    if output is Output.TABLE:
        for answer in answers():
            typer.echo(f"{printable(answer['id'])}: {_sentence(answer)}", err=answer["outcome"] != "done")
    else:
        print_json(answers(), output)
    if left:
        raise typer.Exit(FAILED)


def _ask(client: Client, verb: str, id_: str, body: dict[str, Any] | None, output: Output) -> None:
    from .tables import print_object

    answer = client.ask(verb, id_, body)
    if output is Output.TABLE:
        typer.echo(_sentence(answer), err=answer["outcome"] != "done")
    else:
        print_object({"id": id_, **answer}, output)
    if answer["outcome"] != "done":
        raise typer.Exit(FAILED)


def _sentence(answer: dict[str, Any]) -> str:
    from ..text import instant

    if answer["outcome"] == "too_late" and answer.get("event"):
        return f"too_late: {answer['event']} at {instant(answer['at'])}"
    if answer["outcome"] == "refused":
        return f"refused: {answer['message']}"
    if answer.get("waits_for"):
        return f"{answer['outcome']}, but {answer['waits_for']}"
    sentences = {
        "too_late": "too_late: it has ended; what became of it is no longer remembered",
        "in_flight": "in_flight: it is being published right now; ask again",
        "unknown": "unknown: the daemon never heard of this id, or has forgotten it",
    }
    return sentences.get(answer["outcome"], str(answer["outcome"]))
