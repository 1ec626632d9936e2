"""Commands that change what a running daemon holds."""

# ruff: noqa: PLC0415 - commands import late, so that --help is quick

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import FAILED, ConfigOption, Output, OutputOption, TokenOption, UrlOption, connect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..client import Client

commands = typer.Typer()
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The producer's x-delay-id, or the bridge's own.")]
RouteArgument = Annotated[str, typer.Argument(metavar="ROUTE", help="The route's name.")]


@commands.command(epilog="Example: delaybridge cancel order-4711")
def cancel(
    ids: Annotated[
        list[str], typer.Argument(metavar="ID...", help="As `list` shows them; `-` reads them from standard input, one a line.")
    ],
    config: ConfigOption = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Withdraw pending messages. Answers for each done, too_late, in_flight or unknown; exit status 1 unless all are done."""
    client = connect(config, url, token_file)
    if len(ids) == 1 and ids != ["-"]:
        _ask(client, "cancel", ids[0], None, output)
    else:
        _ask_each(client, "cancel", _listed(ids), output)


@commands.command(epilog="Example: delaybridge reschedule order-4711 2h")
def reschedule(
    id_: IdArgument,
    due: Annotated[str, typer.Argument(metavar="DUE", help="RFC 3339, epoch ms, or a duration from now (90s, PT15M, 1d12h).")],
    config: ConfigOption = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Move a pending message to another instant. A recurrence goes on as before after it."""
    when: int | str = int(due) if due.isascii() and due.isdecimal() else due
    _ask(connect(config, url, token_file), "reschedule", id_, {"due": when}, output)


@commands.command(epilog="Example: delaybridge release order-4711")
def release(
    id_: IdArgument, config: ConfigOption = None, url: UrlOption = None, token_file: TokenOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Deliver a pending message now."""
    _ask(connect(config, url, token_file), "release", id_, None, output)


@commands.command(epilog="Example: delaybridge pause orders")
def pause(route: RouteArgument, config: ConfigOption = None, url: UrlOption = None, token_file: TokenOption = None) -> None:
    """Hold back what came by a route. It goes on being stored; `resume` lets it go."""
    connect(config, url, token_file).turn(route, "pause")
    typer.echo(f"{route}: paused")


@commands.command(epilog="Example: delaybridge resume orders")
def resume(route: RouteArgument, config: ConfigOption = None, url: UrlOption = None, token_file: TokenOption = None) -> None:
    """Let a paused route go on."""
    connect(config, url, token_file).turn(route, "resume")
    typer.echo(f"{route}: resumed")


def _listed(ids: list[str]) -> Iterator[str]:
    for id_ in ids:
        if id_ == "-":
            yield from (line for raw in sys.stdin if (line := raw.rstrip("\r\n")))
        else:
            yield id_


def _ask_each(client: Client, verb: str, ids: Iterable[str], output: Output) -> None:
    """Answers as they come: who is interrupted knows how far it went."""
    from ..text import printable
    from .tables import show_rows

    left = []

    def answers() -> Iterator[dict[str, Any]]:
        for id_ in ids:
            answer = {"id": id_, **client.ask(verb, id_, None)}
            if answer["outcome"] != "done":
                left.append(id_)
            yield answer

    if output is Output.TABLE:
        for answer in answers():
            typer.echo(f"{printable(answer['id'])}: {_sentence(answer)}", err=answer["outcome"] != "done")
    else:
        show_rows(answers(), {}, output)
    if left:
        raise typer.Exit(FAILED)


def _ask(client: Client, verb: str, id_: str, body: dict[str, Any] | None, output: Output) -> None:
    from .tables import show_one

    answer = client.ask(verb, id_, body)
    if output is Output.TABLE:
        typer.echo(_sentence(answer), err=answer["outcome"] != "done")
    else:
        show_one({"id": id_, **answer}, {}, output)
    if answer["outcome"] != "done":
        raise typer.Exit(FAILED)


def _sentence(answer: dict[str, Any]) -> str:
    from ..text import instant

    if answer["outcome"] == "too_late" and answer.get("event"):
        return f"too_late: {answer['event']} at {instant(answer['at'])}"
    sentences = {
        "too_late": "too_late: it has ended; how is no longer remembered",
        "in_flight": "in_flight: it is being published right now; ask again",
        "unknown": "unknown: the daemon never heard of this id, or has forgotten it",
    }
    return sentences.get(answer["outcome"], str(answer["outcome"]))
