"""Level queues on a broker with transactions: what leaves a level, and what it becomes, are one move.

From level to level, and to a destination on the same broker, nothing happens twice. A delivery to another broker is confirmed first, and its
message finished then.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from ...adapters.moves import Gone, Move, Mover
from ...core.recurrence import following
from .countdown import both
from .publisher import Item, Publisher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...adapters.base import Confirm, Outcome, Outgoing
    from ...adapters.clock import Clock
    from ...core.downtimes import Downtimes
    from .passage import Finish
    from .places import Addressed, Places
    from .waiting import Waiting


class MoveItem(Item):
    """The messages that one message becomes, none or several, and its end at its source.

    `moved` is called once this bridge has moved it; `done` after that, and also where another bridge has it.
    """

    __slots__ = ("done",)

    def __init__(
        self, messages: Sequence[Addressed], done: Finish, wanted: Callable[[], bool], moved: Callable[[], None] | None = None
    ) -> None:
        super().__init__(messages, done if moved is None else partial(both, moved, done), wanted)
        self.done = done

    def gone(self) -> None:
        """See Item."""
        self.done()


class MovePublisher(Publisher):
    """Makes moves in the order of `submit`, which is given MoveItem only."""

    NAME = "level mover"

    def _send(self, batch: Sequence[Item]) -> None:
        cast("Mover", self._sink).move([Move(item.tag, item.messages, item.done.token) for item in batch if isinstance(item, MoveItem)])


class Departures:
    """Knows which messages leave the level queues with a delivery's transaction. `down` says when this bridge did not run."""

    def __init__(self, waiting: Waiting, places: Places, clock: Clock, down: Callable[[], Downtimes]) -> None:
        self._waiting = waiting
        self._places = places
        self._clock = clock
        self._down = down

    def departing(self, outgoing: Outgoing) -> Move | None:
        """The move of a message that is handed out, with what is to be published along with it; None where the broker gives it again."""
        entry = self._waiting.find(outgoing.tag)
        if entry is None:
            return None
        schedule = entry.record.schedule
        now = max(self._clock(), schedule.due)  # it is handed out LEAD before
        upcoming = None if schedule.recurrence is None else following(schedule, now, self._down())
        entry.next = None if upcoming is None else replace(entry.record, schedule=upcoming)
        next_one = [self._places.enter(entry.next, entry.claim, now)] if entry.next else []
        return Move(outgoing.tag, ((outgoing.address, outgoing.message), *next_one), entry.finish.token, schedule.due)

    def gone(self, key: bytes) -> None:
        """Another bridge has it, or it comes again."""
        entry = self._waiting.take(key)
        if entry is not None:
            entry.finish()


class DepartureSink:
    """The sink of the lane whose destinations are on the broker of the level queues. See base.Sink. It may be given messages LEAD before they are due."""

    def __init__(self, mover: Mover, departures: Departures) -> None:
        self._mover = mover
        self._departures = departures
        self._confirm: Confirm | None = None

    def connect(self, confirm: Confirm) -> None:
        """See base.Sink."""
        self._confirm = confirm
        self._mover.connect(self._moved)

    def publish(self, messages: Sequence[Outgoing]) -> None:
        """See base.Sink."""
        moves: list[Move] = []
        missing: list[Outcome] = []
        for outgoing in messages:
            move = self._departures.departing(outgoing)
            if move is None:
                missing.append((outgoing.tag, Gone("it comes again")))
            else:
                moves.append(move)
        self._mover.move(moves)
        if missing:
            self._moved(missing)

    def _moved(self, outcomes: Sequence[Outcome]) -> None:
        for key, error in outcomes:
            if isinstance(error, Gone):
                self._departures.gone(key)
        assert self._confirm is not None
        self._confirm(outcomes)

    def close(self) -> None:
        """See base.Sink."""
        self._mover.close()
