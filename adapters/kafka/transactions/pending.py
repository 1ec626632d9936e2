"""The moves that a producer has taken on and not yet told the outcome of."""

from __future__ import annotations

import heapq
import threading
from collections import defaultdict
from typing import TYPE_CHECKING

from ...base import AdapterError, NotConnected, Outgoing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafka import TopicPartition

    from ...base import Confirm, Outcome
    from ...moves import Move
    from ..wire.batches import Prepared

CLOSED = "the mover was closed"


class Pending:
    """One move on its way. `left`: how many of its messages have no partition yet. `abandoned`: it is not tried once more."""

    __slots__ = ("abandoned", "confirm", "left", "move", "number", "parts")

    def __init__(self, number: int, move: Move, confirm: Confirm) -> None:
        self.number = number
        self.move = move
        self.confirm = confirm
        self.left = len(move.messages)
        self.abandoned = False
        self.parts: list[tuple[TopicPartition, Prepared]] = []

    def __lt__(self, other: Pending) -> bool:
        return self.number < other.number


class PendingMoves:
    """Moves from `begin` until their outcome is told. One is ready for a transaction once each of its messages has a partition.

    Any thread may call it. `changed` guards it, and is notified when a move is begun or may have become ready.

    What goes where a message was refused for good may be refused as well, and each refusal takes a whole transaction back. So from then on these moves are
    set aside, and take turns with all others, until they have gone through.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._moves: dict[int, Pending] = {}
        self._ready: list[Pending] = []
        self._aside: list[Pending] = []
        self._refusing: set[TopicPartition] = set()
        self._from_aside = False
        self._count = 0

    @property
    def ready(self) -> bool:
        """Whether `next` has any."""
        return bool(self._ready or self._aside)

    def begin(self, moves: Sequence[Move], confirm: Confirm) -> list[Outgoing]:
        """Take these on, and return their messages, each with the number of its move as its tag."""
        outgoing: list[Outgoing] = []
        with self.changed:
            for move in moves:
                self._count += 1
                pending = self._moves[self._count] = Pending(self._count, move, confirm)
                if not pending.left:
                    heapq.heappush(self._ready, pending)
                tag = self._count.to_bytes(8, "big")
                outgoing += (Outgoing(tag, address, message) for address, message in move.messages)
            self.changed.notify()
        return outgoing

    def to_partition(self, partition: TopicPartition, prepared: Iterable[Prepared]) -> None:
        """These messages, prepared, belong in this partition."""
        with self.changed:
            for one in prepared:
                pending = self._moves.get(number_in(one[0]))
                if pending is None or pending.abandoned:
                    continue
                pending.parts.append((partition, one))
                pending.left -= 1
                if not pending.left:
                    heapq.heappush(self._ready, pending)
            self.changed.notify()

    def without_partition(self, number: int) -> Pending | None:
        """The move of this number if one of its messages has no partition yet."""
        pending = self._moves.get(number)
        return pending if pending is not None and pending.left else None

    def next(self, most: int) -> list[Pending]:
        """Take the first that are ready, at most so many: of those that are set aside, or of the others. Each comes back by `later`, or leaves."""
        with self.changed:
            if self._refusing:
                self._set_aside()
            self._from_aside = bool(self._aside) and not (self._from_aside and self._ready)
            heap = self._aside if self._from_aside else self._ready
            return [heapq.heappop(heap) for _ in range(min(most, len(heap)))]

    def _set_aside(self) -> None:
        ready, self._ready = self._ready, []
        for each in ready:
            others = self._refusing.isdisjoint(partition for partition, _ in each.parts)
            heapq.heappush(self._ready if others else self._aside, each)

    def refused(self, partition: TopicPartition) -> None:
        """A message for this partition was refused for good."""
        with self.changed:
            self._refusing.add(partition)

    def went(self) -> None:
        """What `next` gave last has gone through."""
        with self.changed:
            if self._from_aside and not self._aside:
                self._refusing.clear()

    def later(self, moves: Sequence[Pending]) -> None:
        """These, from `next`, are ready again."""
        with self.changed:
            for each in moves:
                if not each.abandoned:
                    heapq.heappush(self._ready, each)
        self.tell((each for each in moves if each.abandoned), NotConnected(CLOSED))

    def leave(self, moves: Iterable[Pending]) -> list[Pending]:
        """Forget these; returns those of them whose outcome was not told. Somebody else tells it."""
        with self.changed:
            return [each for each in moves if self._moves.pop(each.number, None) is not None]

    def tell(self, moves: Iterable[Pending], error: AdapterError | None) -> None:
        """Tell the outcome of these, where it was not told, and forget them."""
        outcomes: dict[Confirm, list[Outcome]] = defaultdict(list)
        for each in self.leave(moves):
            outcomes[each.confirm].append((each.move.tag, error))
        for confirm, found in outcomes.items():
            confirm(found)

    def tell_all(self, error: AdapterError) -> None:
        """Tell of all that are left that they have failed."""
        with self.changed:
            left = list(self._moves.values())
        self.tell(left, error)

    def abandon(self, confirm: Confirm) -> None:
        """Give up those whose outcomes go to `confirm`. One that `next` gave has its outcome when it is known, and is not tried once more."""
        with self.changed:
            theirs = [each for each in (*self._ready, *self._aside) if each.confirm == confirm]
            for heap in (self._ready, self._aside):
                heap[:] = [each for each in heap if each.confirm != confirm]
                heapq.heapify(heap)
            for each in self._moves.values():
                if each.confirm == confirm:
                    each.abandoned = True
                    if each.left:
                        theirs.append(each)
        self.tell(theirs, NotConnected(CLOSED))


def number_in(tag: bytes) -> int:
    """The number of the move whose message has this tag."""
    return int.from_bytes(tag, "big")
