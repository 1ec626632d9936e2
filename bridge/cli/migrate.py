"""The command that moves what waits from one kind of store to the other."""

# ruff: noqa: PLC0415 - commands import late, so that --help is quick

from __future__ import annotations

import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import FAILED, ConfigOption, Output, OutputOption

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...adapters.clock import Clock
    from ...core.time_index import TimeIndex
    from ..config import Config
    from ..migration import MovedIn, MovedOut, Place, Tell

commands = typer.Typer()

_EVERY = 1.0
_WAITS = "; waiting for what a bridge that was killed may hold"

INTERRUPTED = 130
"""A shell's exit status for what Ctrl-C ended."""


class Kind(StrEnum):
    """The kinds of store."""

    LEVEL_QUEUES = "level_queues"
    TIME_INDEX = "time_index"


@commands.command(
    "migrate-store",
    epilog="Example: delaybridge migrate-store --to level_queues, after all bridges were stopped, `store` was changed in delaybridge.yaml, and "
    "`delaybridge apply` has made the queues. And back: delaybridge migrate-store --to time_index --broker rabbit",
)
def migrate_store(
    to: Annotated[Kind, typer.Option("--to", help="The kind of store to move to, which the configuration names by now.")],
    broker: Annotated[
        str | None,
        typer.Option("--broker", metavar="NAME", help="With --to time_index: the broker that holds the level queues.", show_default=False),
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option("--prefix", metavar="TEXT", help="With --to time_index: the prefix of their names.", show_default="delaybridge.level"),
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Move all pending messages from a time index to level queues, or back. Stop the bridges first; may be interrupted and repeated.

    The time index is the one at `store.path`, the levels are those of `limits.levels`. Nothing is lost, no due time changes,
    and the ledger goes on. Exit status 1 if something was not moved, 75 if a bridge still uses the time index.
    """
    import msgspec

    from ...adapters.clock import wall_clock
    from ...core.store import StoreLocked
    from ..config.file import load
    from ..engine import open_journal
    from ..migration import MovedOut, place, to_level_queues, to_time_index

    loaded = load(config)
    broker, prefix = _where(loaded, to, broker, prefix)
    there = place(loaded, broker, prefix)
    try:
        index = open_journal(loaded)
    except StoreLocked as error:
        raise StoreLocked(f"another process has the store in {loaded.store.path} open: stop the bridge first") from error
    progress = _Progress()
    try:
        move: Callable[[TimeIndex, Place, Clock, Tell], MovedOut | MovedIn] = to_level_queues if to is Kind.LEVEL_QUEUES else to_time_index
        done = move(index, there, wall_clock, progress.tell)
    except KeyboardInterrupt as error:
        typer.echo(f"interrupted after {progress.moved:,} messages; nothing is lost, and the same command goes on with the rest", err=True)
        raise typer.Exit(INTERRUPTED) from error
    finally:
        index.close()
    _show(done, output)
    if not any(msgspec.structs.astuple(done)):
        typer.echo(_looked(loaded, to, there, prefix), err=True)
    stayed = (
        [f"not moved, because the broker never takes it: {line}" for line in done.refused] if isinstance(done, MovedOut) else _left(done)
    )
    for line in stayed:
        typer.echo(line, err=True)
    if stayed:
        raise typer.Exit(FAILED)


def _left(done: MovedIn) -> list[str]:
    """What to do about what did not come, if anything."""
    if not done.left:
        return []
    line = (
        f"not moved: {done.left:,} that the broker still counts. Look whether a bridge still runs on these level queues, stop it, and repeat this command. "
        "If then nothing moves and Kafka still counts some, these are ends of transactions, in which nothing waits"
    )
    return [line]


def _looked(config: Config, to: Kind, there: Place, prefix: str) -> str:
    """Where nothing was found: perhaps it is the wrong place."""
    if to is Kind.LEVEL_QUEUES:
        return f"nothing waits in {config.store.path}; if something should, look at `store.path`"
    levels = " ".join(queue.name.removeprefix(f"{prefix}.") for queue in there.queues)
    return (
        f"nothing waits on {there.broker} in {prefix}.LEVEL, with LEVEL {levels}; "
        "if something should, look at --broker, --prefix and `limits.levels`, which name the queues"
    )


def _where(config: Config, to: Kind, broker: str | None, prefix: str | None) -> tuple[str, str]:
    """Broker and prefix of the level queues."""
    store = config.store
    if to != store.kind:
        raise typer.BadParameter(f"the configuration names a store of kind {store.kind}: change that first", param_hint="--to")
    if to is Kind.LEVEL_QUEUES:
        if broker or prefix:
            raise typer.BadParameter("the configuration names them under `store`", param_hint="--broker, --prefix")
        _outlive(config, str(store.broker), "--to")
        return str(store.broker), store.prefix
    if broker not in config.brokers:
        raise typer.BadParameter(
            f"name the broker that holds the level queues; the brokers are: {', '.join(config.brokers)}", param_hint="--broker"
        )
    _outlive(config, str(broker), "--broker")
    return str(broker), prefix or store.prefix


def _outlive(config: Config, broker: str, hint: str) -> None:
    """Refuse a broker that lives in this process: what moved there would end with it, and what waits in a bridge's own cannot be seen from here."""
    from ..plugins import traits

    kind = config.brokers[broker].type
    if traits(kind).embedded:
        raise typer.BadParameter(f"{broker} is of type {kind}, and its queues end with the process that made them", param_hint=hint)


class _Progress:
    """A line a second on standard error."""

    def __init__(self) -> None:
        self.moved = 0
        self._said = time.monotonic()

    def tell(self, count: int) -> None:
        """See migration.place.Tell."""
        waits = count == self.moved
        self.moved = count
        if time.monotonic() - self._said >= _EVERY:
            self._said = time.monotonic()
            typer.echo(f"{count:,} moved so far{_WAITS if waits else ''}", err=True)
            sys.stderr.flush()


def _show(done: MovedOut | MovedIn, output: Output) -> None:
    import msgspec

    from .tables import print_json

    if output is not Output.TABLE:
        print_json([msgspec.to_builtins(done)], output)
        return
    for line in _summary(msgspec.to_builtins(done)):
        typer.echo(line)


_TEXTS = {
    "records": "messages moved",
    "dead_letters": "dead letters moved",
    "withdrawn": "cancellations that no longer apply, as their messages have not come",
    "again": "there already",
    "strange": "put there by no bridge, see delaybridge dead-letter list",
    "ended": "cancelled or replaced before, which the ledger has been told",
    "left": "still in the level queues, as the broker counts",
}


def _summary(done: dict[str, Any]) -> list[str]:
    return [f"{text}: {done[name]:,}" for name, text in _TEXTS.items() if done.get(name) or name == "records"]
