"""Optional ability of a broker: to keep waiting messages in level queues, one queue for each delay level.

A broker with level queues may have two more abilities: to move messages in transactions (`moves`), and to keep a log of ids (`id_log`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import msgspec

from .base import Adapter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .base import Source
    from .preparing import Step


EARLY = 50
"""Milliseconds by which a message may leave its level early, at most."""


class Level(msgspec.Struct, frozen=True):
    """One level queue: its name on the broker, and how long each message waits in it (ms; 0: not at all).

    `holds`: beside the levels at which messages wait, bridges share a queue for dead letters and, where the broker can keep it, the log of ids.
    """

    name: str
    wait: int
    holds: Literal["waiting", "dead_letters", "ids"] = "waiting"

    @property
    def early(self) -> int:
        """How early (ms) a message may leave: the rest of its delay passes at its next place. Whoever waits for a first message wakes up half of it early."""
        return min(EARLY, self.wait // 2)


SINCE = b"delaybridge-since"
"""The header that tells since when a message has been at its level (epoch ms), for a source that has to hold it back itself."""


class LevelDeclaration(Protocol):
    """The level queues on one broker, to be declared and counted. Every method connects anew, and raises AdapterError.

    `counts_taken` says whether `depths` includes what bridges have received and not acknowledged. `held_after_a_kill` is for how many seconds the broker
    may give nobody what a bridge held that was killed.
    """

    counts_taken: bool
    held_after_a_kill: float

    def plan(self) -> list[Step]:
        """What would be declared; changes nothing."""
        ...

    def apply(self) -> list[Step]:
        """Declare what is missing. Idempotent; never changes what is there: a queue that differs is a step that is not done."""
        ...

    def undo(self) -> list[Step]:
        """Take away the queues in which nothing waits; the others are steps that are not done. Idempotent."""
        ...

    def depths(self) -> list[int]:
        """How many messages wait at each level, as the broker counts them."""
        ...


@runtime_checkable
class Trimmable(LevelDeclaration, Protocol):
    """Level queues of a broker that keeps what is finished until it is told to delete it."""

    def trim(self) -> None:
        """Delete what no bridge may be given again, and nothing else. Raises NotConnected; any other AdapterError says that trying again is of no use."""
        ...


@runtime_checkable
class Levelled(Adapter, Protocol):
    """An adapter whose broker can keep waiting messages in one queue for each level, from which any number of bridges take.

    `timed`: its level sources hold each message back until it has waited for as long as its level says, less `Level.early`. Other level sources give messages
    at once, in order, and the bridge holds them back.
    """

    timed: bool

    def level_address(self, options: Any, level: Level) -> str:
        """Where a sink publishes so that a message waits at this level."""
        ...

    def level_source(self, options: Any, level: Level) -> Source:
        """What leaves this level, the earliest first; not connected yet. `connect` raises NotConnected where the queue is missing."""
        ...

    def level_contents(self, options: Any, level: Level) -> Sequence[Source]:
        """Sources that together give everything that is in this level, whether it may leave or not, for `migrate-store`; not connected yet.

        They are drained one after the other, while no bridge takes from the level.
        """
        ...

    def level_queues(self, options: Any, levels: Sequence[Level]) -> LevelDeclaration:
        """The queues themselves."""
        ...


@runtime_checkable
class Foreseeing(Protocol):
    """Optional ability of a level source that holds messages back: to tell when the next one leaves."""

    @property
    def first_leaves(self) -> int | None:
        """When the first message in sight leaves its level (epoch ms); None where none is in sight. Any thread."""
        ...
