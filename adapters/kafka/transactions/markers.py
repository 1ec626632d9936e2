"""Ends transactions again whose end Kafka may not have written everywhere.

A transaction's end is a marker in each of its partitions. Kafka 4.3 (and 4.4) takes a partition that has no leader at that moment for a deleted one, and
never writes the marker there (`KRaftMetadataCache.getPartitionLeaderEndpoint`, which 4.2 had right; the broker's log says "these partitions are likely
deleted already and hence can be skipped"). That happens when a broker shuts down in the middle of a transaction, and to partitions whose only in-sync replica
does.

Consumers that read committed records stand still before such a transaction until its producer ends another one in the same partition. Its marker ends both:
so what was aborted may be delivered after all, or what was committed is lost.

The cure is an empty transaction in these partitions that ends in the same way as the last one: then its markers stand where the others are missing. The
cluster is asked where a transaction of ours is still open

- when a connection was lost;
- when a producer comes back;
- when a partition no longer has the leader that it had before its transaction ended (`state.Leaders`).
  That a connection was lost may be noticed too late: if the next transaction is under way by then, and is aborted, so is the one whose end is missing.

What its predecessor left in other partitions, a producer that came back does not know. Before it writes to one of them for the first time, it makes the empty
transaction there without asking: where nothing is open, a marker changes nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from ...base import NotConnected
from ..cluster import COMMITTED, OFFSETS, opened
from .state import Aborted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from kafka import TopicPartition

    from ..options import Kafka

AGAIN = 2.0
"""Seconds after which partitions to which nothing can be written are looked at again: each look asks about all topics, and all moves wait for it."""

UNWRITABLE = "a partition has no leader, or fewer replicas in sync than min.insync.replicas"
ENDING = 3.0
"""Seconds within which the end of a transaction is written, as a rule."""
_DECIDED = ("PrepareCommit", "PrepareAbort")
"""The states of a transaction whose end is being written."""


class Producer(Protocol):
    """The producer that has the transactional id now."""

    @property
    def producer_id(self) -> int:
        """The id that the cluster gave it."""
        ...

    def end_again(self, partitions: AbstractSet[TopicPartition], *, committed: bool) -> None:
        """Begin and end an empty transaction with these partitions, and with the group's offsets. Raises NotConnected."""
        ...


class Markers:
    """What is known of the ends of all transactions of one transactional id, `name`. Its producers use it one after the other.

    topics     all of their partitions are looked at, whether this process has used them or not
    doubtful   it is time to look
    busy       the busy ids in whose place this one is used; it is `over` once none of them is busy
    overdue    the end of its last transaction was waited for long enough
    taken      a producer has had the id since this object was made
    implicit   see cluster.transactions.Transactions.implicit, when it was asked last
    """

    def __init__(
        self,
        options: Kafka,
        name: str,
        topics: Iterable[str],
        busy: Sequence[Markers] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.over = False
        self.overdue = False
        self.taken = False
        self.implicit = False
        self._options = options
        self._busy = busy
        self._held: AbstractSet[TopicPartition] = frozenset()
        self._short: AbstractSet[TopicPartition] = frozenset()
        self._looked_at: set[str] = set()
        self._clock = clock
        self._again_at = 0.0
        self._topics = frozenset(topics)
        self._used: set[TopicPartition] = set()
        self._last: bool | None = None
        self._before: bool | None = None
        self._owed: dict[TopicPartition, bool] = {}
        self.doubtful = True
        self.epochs: dict[TopicPartition, int] = {}
        """Of the leaders that were there after the last transaction. For the producers, one after the other."""

    @property
    def committed(self) -> bool:
        """Whether the last transaction was committed, as far as is known."""
        return bool(self._last)

    @property
    def waiting(self) -> AbstractSet[TopicPartition]:
        """The partitions to which nothing can be written: they have no leader, or too few replicas for the end of a transaction."""
        return self._owed.keys() | self._held | self._short

    def recall(self) -> AbstractSet[TopicPartition]:
        """Ask how the last transaction ended, before the next producer takes the id over, which aborts one that is open. Raises NotConnected.

        Returns the partitions in which its end is decided and not written yet: as long as there are any, the id is busy.
        """
        with opened(self._options) as cluster:
            last, self.implicit = cluster.transactions.last(self.name), cluster.transactions.implicit()
        self._last = _committed(last.state if last else None, self._last)
        if not self._used:
            self._before = self._last
        self.doubtful = True
        busy = last.partitions if last and last.state in _DECIDED else frozenset()
        self.overdue = self.overdue and bool(busy)
        return busy

    def doubt(self) -> None:
        """A connection was lost: markers may be missing anywhere. Any thread."""
        self.doubtful = True

    def ended(self, committed: bool) -> None:
        """Note how the last transaction ended. Any thread, while `ensure_ended` does not run."""
        self._last = committed

    def ensure_ended(self, producer: Producer, partitions: AbstractSet[TopicPartition] = frozenset()) -> None:
        """Return when the ends of all earlier transactions are written in these partitions, and wherever else there is a leader.

        Does nothing where no end is in doubt. Raises Aborted where one of these partitions has no leader, and NotConnected.
        """
        new = {each.topic for each in partitions} - self._looked_at if self._busy else frozenset()
        if self.doubtful or new or (self.waiting and self._clock() >= self._again_at):
            mend = self.doubtful or bool(self._owed)
            self.doubtful = False
            self._again_at = self._clock() + AGAIN
            self._look_out(new)
            if mend and self._last is not None:
                self._mend(producer, self._last)
            self.over = bool(self._busy) and not self._held and not self._owed
            if self.over:
                raise NotConnected(f"the transactions of {self._busy[0].name} have ended: it is used again")
        if not self.waiting.isdisjoint(partitions):
            raise Aborted(UNWRITABLE)
        fresh = partitions - self._used
        if fresh:
            self._used |= fresh
            if self._before is not None:
                producer.end_again(fresh, committed=self._before)

    def settled(self, producer: Producer) -> bool:
        """Whether no partition lacks an end that only this producer's id can write. Between two transactions; seldom asked. Raises NotConnected.

        The first time all topics that may be read are looked at: where only the predecessor wrote, nobody would look under this id again.
        """
        if self.waiting or self._clock() < self._again_at:
            return False
        if self._before is not None:
            self._again_at = self._clock() + AGAIN
            with opened(self._options) as cluster:
                led, leaderless = cluster.led(cluster.names() | self._topics | {OFFSETS}, self._used)
                found, _ = cluster.transactions.open_in(led)
            left = {each.partition for each in found if each.producer_id == producer.producer_id}
            self.doubtful = self.doubtful or not left.isdisjoint(self._used)
            if leaderless or self.doubtful:
                return False
            if left:
                _end_again(producer, left, committed=self._before)
            self._before = None
        return True

    def _look_out(self, new: AbstractSet[str]) -> None:
        """In the place of busy ids: find the partitions that made them busy, and others of topics written to that would do the same to this one."""
        if not self._busy:
            return
        self._held = frozenset().union(*(each.recall() for each in self._busy))
        self._looked_at |= new
        with opened(self._options) as cluster:
            self._short = cluster.short(self._looked_at | {each.topic for each in self._held}, self._held)

    def _mend(self, producer: Producer, last: bool) -> None:
        """End the last transaction again where its end is missing.

        A partition without a leader, or whose end is not certain this time either, is still owed the end of this transaction, whatever ends meanwhile.
        Where the topic of the offsets may not be described, they are ended again without asking, as what the predecessor left elsewhere is.
        """
        with opened(self._options) as cluster:
            led, leaderless = cluster.led(self._topics | {OFFSETS}, self._used)
            found = cluster.transactions.unfinished(led, producer.producer_id)
        self._used = {each for each in led | leaderless if each.topic != OFFSETS}  # topics that are gone are not asked about for ever
        for gone in self.epochs.keys() - self._used:
            del self.epochs[gone]
        self._owed = owed = {each: self._owed.get(each, last) for each in found | leaderless}
        unseen = all(each.topic != OFFSETS for each in led | leaderless)
        for committed in (True, False):
            group = {each for each in found if owed[each] == committed}
            if group or (unseen and committed == last):
                _end_again(producer, group, committed=committed)
                self._owed = {each: end for each, end in self._owed.items() if each not in group}


def _end_again(producer: Producer, partitions: AbstractSet[TopicPartition], *, committed: bool) -> None:
    """The group's offsets are in every such transaction, unnamed."""
    producer.end_again({each for each in partitions if each.topic != OFFSETS}, committed=committed)


def _committed(state: str | None, known: bool | None) -> bool | None:
    """How a transaction in this state ends, given that its successor aborts one that is open.

    Where its successor came and went without one, what was known before stands, and otherwise: delivered twice rather than lost.
    """
    if state is None:
        return known
    if state == "Empty":
        return True if known is None else known
    return state in COMMITTED
