"""Which offsets may be committed: those behind everything that is stored, and only for partitions that are ours."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafka import TopicPartition


class Given:
    """A batch that was given out: the offset behind its last record, for each partition.

    `committed`: by a transaction. `whole`: none of its partitions has gone to another bridge.
    """

    __slots__ = ("acked", "committed", "ends", "token", "whole")

    def __init__(self, ends: dict[TopicPartition, int], token: bytes) -> None:
        self.ends = ends
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
        self._open: deque[Given] = deque()
        self._ready: dict[TopicPartition, int] = {}
        self._taken: dict[TopicPartition, int] = {}  # last, of the partitions that are ours
        self._numbers = itertools.count()

    def give(self, ends: dict[TopicPartition, int]) -> Given:
        """A batch goes out."""
        batch = Given(ends, next(self._numbers).to_bytes(8, "big"))
        with self._lock:
            self._open.append(batch)
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

    def positions(self, batches: Iterable[Given]) -> dict[TopicPartition, int]:
        """The offsets behind these. Raises KeyError where a part of one has gone to another bridge."""
        with self._lock:
            ends: dict[TopicPartition, int] = {}
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

    def take(self) -> dict[TopicPartition, int]:
        """What is to be committed now; the caller does it, or gives it back."""
        with self._lock:
            ready, self._ready = self._ready, {}
            self._taken |= ready
            return ready

    def give_back(self, offsets: dict[TopicPartition, int]) -> None:
        """These could not be committed. What was acknowledged or taken since goes further, and what was forgotten since is left to its next owner."""
        with self._lock:
            self._ready = {each: offset for each, offset in offsets.items() if self._taken.get(each) == offset} | self._ready

    def holds(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether a batch is out that is not acknowledged and has records of one of these."""
        with self._lock:
            return any(not batch.acked and not batch.ends.keys().isdisjoint(partitions) for batch in self._open)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These are not ours any more."""
        with self._lock:
            for partition in partitions:
                self._ready.pop(partition, None)
                self._taken.pop(partition, None)
                for batch in self._open:
                    batch.whole &= batch.ends.pop(partition, None) is None
