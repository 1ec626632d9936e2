"""The command `delaybridge`. Nothing heavy is imported before a command's body runs, so that `--help` is quick."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
import typer.core

from . import about, audit, broker, control, daemon, dead_letter, export, inspect, migrate, observe, producer
from .common import FAILED, USAGE, exit_code, reworded

SURROGATES = "surrogates not allowed"
"""Python's reason where text from the shell, which came as bytes that are not UTF-8, is encoded."""


class Commands(typer.core.TyperGroup):
    """Commands whose known failures become one sentence on standard error and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except UnicodeEncodeError as error:
            if error.reason != SURROGATES:
                raise
            typer.echo(f"the command line has bytes that are not UTF-8: {os.fsencode(error.object[error.start : error.end])!r}", err=True)
            raise typer.Exit(USAGE) from error
        except typer.BadParameter as error:
            reworded(error)
            raise
        except Exception as error:
            code = exit_code(error)
            if code is None:
                raise
            typer.echo(str(error), err=True)
            raise typer.Exit(code) from error


app = typer.Typer(
    cls=Commands,
    help="Delayed, repeated and cron messages for the broker that you already run.",
    epilog="Exit codes: 0 ok, 1 failed, 2 usage, 69 broker or daemon unavailable, 74 store I/O, 75 store locked or HTTP port taken, 78 bad configuration.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # noqa: PLC0415 - as in the commands

        typer.echo(f"delaybridge {version('delaybridge')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")] = False,
) -> None:
    del version  # its callback has done all


for family in (daemon, broker, inspect, control, producer, observe, export, migrate, about):
    app.add_typer(family.commands)
app.add_typer(dead_letter.commands, name="dead-letter")
app.add_typer(audit.commands, name="audit")


def main() -> None:
    """The console script, less what holds back signals while this is imported: see command.py."""
    # httpx imports its own command line wherever rich is installed: a fifth of a second of each of our commands. It does without, as where rich is not.
    sys.modules["httpx._main"] = None  # type: ignore[assignment]  # Python's way to say that a module cannot be imported
    if sys.stdin is None:  # it was closed: what is read must fail, and no other file become standard input
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY))
    if sys.stdout is None:  # likewise
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    try:
        _to_the_last_byte()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            typer.echo(f"standard output: {error.strerror}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would try what is left once more
        sys.exit(FAILED)


def _to_the_last_byte() -> None:
    """Find out whether what was printed has been written: Python itself does so too late for an exit code of ours."""
    try:
        app()
    finally:
        sys.stdout.flush()
