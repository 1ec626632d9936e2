"""Which offsets may be committed: those up to which everything is stored, and only for partitions that are ours. And how much is not committed yet."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafka import TopicPartition

    from ..wire.records import Place


MOST = 9000
"""Records that are given out and not committed, at most.

After a crash they come again to the partition's next owner. If that is another bridge, some of them may be delivered twice; also if the broker has no topic
ids, for then only the latest 10,000 are recognised.
"""


class Given:
    """A batch that was given out: `count` records, and `ends`, where they end in each partition.

    `committed`: a transaction has committed it. `whole`: none of its partitions has gone to another bridge.
    """

    __slots__ = ("acked", "committed", "count", "ends", "token", "whole")

    def __init__(self, ends: dict[TopicPartition, Place], count: int, token: bytes) -> None:
        self.ends = ends
        self.count = count
        self.token = token
        self.acked = False
        self.committed = False
        self.whole = True


class Progress:
    """Batches in the order in which they were given out. Any thread.

    An acknowledgement takes effect when all earlier batches are acknowledged too. What is revoked is forgotten: its acknowledgement, should it still
    come, does nothing, because the records belong to the next owner.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._less = threading.Condition(self._lock)  # records that are not committed
        self._open: deque[Given] = deque()
        self._ready: dict[TopicPartition, Place] = {}
        self._taken: dict[TopicPartition, Place] = {}  # last, of the partitions that are ours
        self._committed: dict[TopicPartition, Place] = {}  # as far as is known
        self._uncommitted: deque[Given] = deque()
        self._count = 0  # of their records
        self._numbers = itertools.count()

    def room(self, timeout: float) -> int:
        """How many more records may be given out; waits up to `timeout` seconds until it is at least one."""
        with self._lock:
            self._less.wait_for(lambda: self._count < MOST, timeout)
            return max(0, MOST - self._count)

    def give(self, ends: dict[TopicPartition, Place], count: int) -> Given:
        """A batch goes out."""
        batch = Given(ends, count, next(self._numbers).to_bytes(8, "big"))
        with self._lock:
            self._open.append(batch)
            self._uncommitted.append(batch)
            self._count += count
        return batch

    def ack(self, batch: Given) -> None:
        """A batch is stored."""
        with self._lock:
            batch.acked = True
            while self._open and self._open[0].acked:
                first = self._open.popleft()
                if not first.committed:
                    self._ready |= first.ends

    def out(self, token: bytes) -> Given | None:
        """The batch that was given out as this, while it is all ours and not acknowledged."""
        with self._lock:
            return next((each for each in self._open if each.token == token and each.whole and not each.acked), None)

    def positions(self, batches: Iterable[Given]) -> dict[TopicPartition, Place]:
        """Where the records of these end. Raises KeyError where a part of one has gone to another bridge."""
        with self._lock:
            ends: dict[TopicPartition, Place] = {}
            for batch in batches:
                if not batch.whole:
                    raise KeyError(batch.token)
                ends |= batch.ends
            return ends

    def commit(self, batches: Iterable[Given]) -> None:
        """A transaction has committed these: their acknowledgement need not."""
        with self._lock:
            for batch in batches:
                batch.committed = True
            self._shorten()

    def take(self) -> dict[TopicPartition, Place]:
        """What is to be committed now; the caller does it, or gives it back."""
        with self._lock:
            ready, self._ready = self._ready, {}
            self._taken |= ready
            return ready

    def committed(self, offsets: dict[TopicPartition, Place]) -> None:
        """What was taken has been committed."""
        with self._lock:
            self._committed |= {each: offset for each, offset in offsets.items() if each in self._taken and self._taken[each] >= offset}
            self._shorten()

    def _shorten(self) -> None:
        """Let go of what comes no more: committed, or of partitions that are not ours."""
        behind = self._committed
        while self._uncommitted:
            first = self._uncommitted[0]
            if not first.committed and any(each not in behind or behind[each] < end for each, end in first.ends.items()):
                break
            self._uncommitted.popleft()
            self._count -= first.count
        self._less.notify_all()

    def give_back(self, offsets: dict[TopicPartition, Place]) -> None:
        """These could not be committed. What was acknowledged or taken since goes further, and what was forgotten since is left to its next owner."""
        with self._lock:
            self._ready = {each: offset for each, offset in offsets.items() if self._taken.get(each) == offset} | self._ready

    def held(self, partitions: Iterable[TopicPartition]) -> int:
        """How many batches are out that are not acknowledged and have records of one of these."""
        with self._lock:
            return sum(not batch.acked and not batch.ends.keys().isdisjoint(partitions) for batch in self._open)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These are not ours any more."""
        with self._lock:
            for partition in partitions:
                self._ready.pop(partition, None)
                self._taken.pop(partition, None)
                self._committed.pop(partition, None)
                for batch in (*self._open, *self._uncommitted):
                    batch.whole &= batch.ends.pop(partition, None) is None
            self._shorten()
