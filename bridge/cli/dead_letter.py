"""Commands for the shelf: messages that could not be delivered."""

# ruff: noqa: PLC0415 - commands import late, so that --help is quick

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ..text import messages
from .common import FAILED, ConfigOption, LimitOption, Output, OutputOption, TokenOption, UrlOption, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .client import Client

NOTHING = "the shelf is empty"

commands = typer.Typer(help="Messages that could not be delivered: list, retry, drop.", no_args_is_help=True)
NumbersArgument = Annotated[
    list[int] | None, typer.Argument(metavar="NUMBER", min=1, help="As `dead-letter list` shows them.", show_default=False)
]


@commands.command("list", epilog="Example: delaybridge dead-letter list --output ndjson")
def list_dead_letters(
    limit: LimitOption = 100,
    config: ConfigOption = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the shelf, oldest first, with the reason code of each dead letter (docs/headers.md)."""
    from ..text import instant
    from .inspect import place
    from .tables import show_first

    columns = {
        "NUMBER": lambda row: row["number"],
        "AT": lambda row: instant(row["at"]),
        "REASON": lambda row: row["reason"],
        "ID": lambda row: row["id"],
        "ROUTE": lambda row: row["route"],
        "TO": lambda row: place(row["destination"]),
        "TRIES": lambda row: row["attempts"],
        "DETAIL": lambda row: row["detail"],
    }
    show_first(connect(config, url, token_file).dead_letters, limit, columns, output, NOTHING)


@commands.command(epilog="Example: delaybridge dead-letter retry 17 18")
def retry(
    numbers: NumbersArgument = None,
    everything: Annotated[bool, typer.Option("--all", help="The whole shelf.")] = False,
    config: ConfigOption = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
) -> None:
    """Schedule shelved messages again. Those that were refused are read again, by the rules in force now; the others are due at once."""
    client = connect(config, url, token_file)
    _each(_chosen(client, numbers, everything=everything), client.retry_dead_letter, "scheduled again")


@commands.command(epilog="Example: delaybridge dead-letter drop 17")
def drop(
    numbers: NumbersArgument = None,
    everything: Annotated[bool, typer.Option("--all", help="The whole shelf; asks first.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: ConfigOption = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
) -> None:
    """Forget shelved messages for good; their ledger rows stay."""
    client = connect(config, url, token_file)
    chosen = _chosen(client, numbers, everything=everything)
    if everything and chosen and not yes and not _agreed(f"Drop {messages(len(chosen))} for good?"):
        raise typer.Abort
    _each(chosen, client.drop_dead_letter, "dropped")


def _agreed(question: str) -> bool:
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        typer.echo(err=True)
        raise typer.BadParameter(
            "nobody answers, so nothing was dropped: say --yes to drop them without a question", param_hint="--all"
        ) from None


def _chosen(client: Client, numbers: list[int] | None, *, everything: bool) -> list[int]:
    if bool(numbers) is everything:
        raise typer.BadParameter("give numbers, or --all")
    chosen = [letter["number"] for letter in client.dead_letters(10**9)] if everything else list(numbers or ())
    if not chosen:
        typer.echo(NOTHING, err=True)
    return chosen


def _each(numbers: Iterable[int], act: Callable[[int], None], done: str) -> None:
    """Act on every number, also behind one that fails."""
    from .client import ApiError

    failed = False
    for number in numbers:
        try:
            act(number)
        except ApiError as error:
            failed = True
            typer.echo(f"{number}: {error}", err=True)
        else:
            typer.echo(f"{number}: {done}")
    if failed:
        raise typer.Exit(FAILED)
