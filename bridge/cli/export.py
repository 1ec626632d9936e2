"""The command that copies what is pending into a file."""

# ruff: noqa: PLC0415 - commands import late, so that --help is quick

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated

import typer

from ..text import messages
from .common import FAILED, ConfigOption, TokenOption, UrlOption, connect, exit_at_sigterm

commands = typer.Typer()


@commands.command(epilog="Example: delaybridge export --to pending.parquet")
def export(
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="The Parquet file to write; replaced when the new one is whole.")],
    config: ConfigOption = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
) -> None:
    """Write all pending messages to a Parquet file, for Spark and the like."""
    from .parquet import CutOffError, write_parquet

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
