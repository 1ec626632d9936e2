"""Commands that prepare a broker and find out what is wrong."""

# ruff: noqa: PLC0415 - commands import late, so that --help is quick

from __future__ import annotations

import sys
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import FAILED, ConfigOption, Output, OutputOption, TokenOption, UrlOption, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from ...adapters.levelled import LevelDeclaration
    from ...adapters.preparing import Finding, Interception, Step
    from ..config import Config

commands = typer.Typer()
BrokerOption = Annotated[list[str] | None, typer.Option("--broker", metavar="NAME", help="Only this broker; may be repeated.")]


class Part(StrEnum):
    """What a broker is prepared with."""

    INTERCEPTION = "interception"
    LEVEL_QUEUES = "level_queues"


OnlyOption = Annotated[Part | None, typer.Option("--only", help="Only this part [default: both]", show_default=False)]


@commands.command(epilog="Example: delaybridge plan --broker rabbit")
def plan(config: ConfigOption = None, broker: BrokerOption = None, only: OnlyOption = None, output: OutputOption = Output.TABLE) -> None:
    """Print what the brokers still need, each step with a command to paste. Changes nothing.

    Exit status 1 if a step has no command, such as one that `apply` refuses.
    """
    left = _show(_steps(config, broker, only, lambda prepared: _rows(prepared.plan())), output)
    if not all(step["command"] for step in left):
        raise typer.Exit(FAILED)


@commands.command(epilog="Example: delaybridge apply --broker rabbit")
def apply(
    config: ConfigOption = None,
    broker: BrokerOption = None,
    only: OnlyOption = None,
    undo: Annotated[
        bool,
        typer.Option(
            "--undo",
            help="Remove interception (consumers get their bindings back first), and level queues that are empty "
            "(on RabbitMQ it takes three minutes to be sure of that).",
        ),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Declare what `plan` prints, and report what was done. May be repeated. Exit status 1 if anything is left to do by hand.

    If bridges keep running, undo with --only interception: they need their level queues until they are stopped.
    """
    if _show(_steps(config, broker, only, lambda prepared: _rows(prepared.undo()) if undo else _applied(prepared)), output):
        raise typer.Exit(FAILED)


@commands.command(epilog="Example: delaybridge doctor --broker rabbit")
def doctor(
    config: ConfigOption = None,
    broker: BrokerOption = None,
    probe: Annotated[bool, typer.Option(help="Send a delayed probe through each way into the bridge.")] = True,
    url: UrlOption = None,
    token_file: TokenOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Find out what is wrong, end to end.

    Checks configuration, disk, brokers, interception and daemon, and sends a probe. Exit status 1 if anything is wrong.
    """
    from ..config.file import load
    from .doctor import findings

    loaded = load(config)
    client = connect(config, url, token_file)
    found = list(_progress(findings(loaded, client, _chosen(loaded, broker), probe=probe), output))
    if output is not Output.TABLE:
        from .tables import print_json

        print_json([{"ok": each.ok, "what": each.what, "fix": "" if each.ok else each.fix} for each in found], output)
    if not all(finding.ok for finding in found):
        raise typer.Exit(FAILED)


def _progress(found: Iterable[Finding], output: Output) -> Iterator[Finding]:
    """Print each finding as it comes, because some take a while."""
    for finding in found:
        if output is Output.TABLE:
            typer.echo(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.what}")
            if not finding.ok and finding.fix:
                typer.echo(f"      {finding.fix}")
            sys.stdout.flush()
        yield finding


def _chosen(config: Config, names: list[str] | None) -> list[str]:
    unknown = [name for name in names or () if name not in config.brokers]
    if unknown:
        raise typer.BadParameter(f"there is no broker {unknown[0]!r}; the brokers are: {', '.join(config.brokers)}", param_hint="--broker")
    return names or list(config.brokers)


def _steps(
    path: Path | None,
    names: list[str] | None,
    only: Part | None,
    ask: Callable[[Interception | LevelDeclaration], Iterable[dict[str, Any]]],
) -> Iterator[dict[str, Any]]:
    from ..config.file import load, origin

    config = load(path)
    if config.file is None:
        typer.echo(origin(config), err=True)
    return _asked(config, _chosen(config, names), only, ask)


def _asked(
    config: Config, names: Iterable[str], only: Part | None, ask: Callable[[Interception | LevelDeclaration], Iterable[dict[str, Any]]]
) -> Iterator[dict[str, Any]]:
    """Ask broker by broker, so that one that fails takes away nothing of what was done on those before it."""
    from rich.console import Console

    from .doctor import preparations

    console = Console(stderr=True)
    for name in names:
        parts = preparations(config, name, only)
        if not parts:
            why = ": it holds no level queues" if only is Part.LEVEL_QUEUES else f" for a broker of type {config.brokers[name].type}"
            typer.echo(f"{name}: nothing to do{why}", err=True)
        for part in parts:
            with console.status(f"{name} ..."):  # on a terminal: undoing levels on RabbitMQ takes three minutes
                steps, failed = _until_it_fails(ask(part))
            yield from ({"broker": name, **step} for step in steps)
            if failed is not None:
                raise failed


def _until_it_fails(steps: Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], Exception | None]:
    came = []
    try:
        for step in steps:
            came.append(step)  # noqa: PERF402 - those before a failure count
    except Exception as error:  # noqa: BLE001 - it is raised when these have been told
        return came, error
    return came, None


def _rows(steps: Iterable[Step]) -> list[dict[str, Any]]:
    import msgspec

    return [msgspec.to_builtins(step) for step in steps]


def _applied(part: Interception | LevelDeclaration) -> Iterator[dict[str, Any]]:
    """Apply, and say of each step whether it was done `now`. Where the broker refuses something, say first what was done before that."""
    from ...adapters.base import AdapterError, NotConnected

    before = [step for step in part.plan() if not step.done]
    try:
        after = part.apply()
    except NotConnected:
        raise
    except AdapterError:
        with suppress(AdapterError):
            yield from (row for row in _told(before, part.plan()) if row["now"])
        raise
    yield from _told(before, after)


def _told(before: list[Step], after: list[Step]) -> list[dict[str, Any]]:
    """A step to do `before` that is none any more was done, too: a binding that was copied and taken away."""
    to_do, known = {step.what for step in before}, {step.what for step in after}
    told = [row | {"now": row["done"] and row["what"] in to_do} for row in _rows(after)]
    return told + [row | {"done": True, "now": True} for row in _rows(before) if row["what"] not in known]


def _show(steps: Iterator[dict[str, Any]], output: Output) -> list[dict[str, Any]]:
    """Print the steps as they come; returns those that are left to do."""
    from .tables import print_json

    left = []

    def noted() -> Iterator[dict[str, Any]]:
        for step in steps:
            if not step["done"]:
                left.append(step)
            yield step

    if output is not Output.TABLE:
        print_json(noted(), output)
        return left
    for step in noted():
        typer.echo(f"{_state(step)}  {step['broker']}: {step['what']}")
        if step["command"] and not step["done"]:
            typer.echo("\n".join(f"       {line}" for line in step["command"].splitlines()))
    reads = sorted({f"${name}" for step in left if step["command"] for name in step["reads"]})
    if reads:
        typer.echo(f"These commands read {' and '.join(reads)} from the environment: export before you paste.", err=True)
    return left


def _state(step: dict[str, Any]) -> str:
    if "now" not in step:  # nothing was applied
        return "done " if step["done"] else "to do"
    return "done now" if step["now"] else "was so  " if step["done"] else "to do   "
