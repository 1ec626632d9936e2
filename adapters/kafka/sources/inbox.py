"""What was fetched and not received yet: bounded, and given out in the order in which it came."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from ..wire.records import Place, place_after

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from collections.abc import Set as AbstractSet

    from kafka import TopicPartition

    from ...base import NotConnected, Received

_BYTES = 32 << 20  # no more is fetched while so many are held
_BATCH_BYTES = 16 << 20  # a batch that has this much is not made longer
_EACH = 100  # bytes, besides body and headers


class _Chunk:
    """Records of one partition and their sizes; `at` is the first that was not given out."""

    __slots__ = ("at", "partition", "records", "sizes")

    def __init__(self, partition: TopicPartition, records: Sequence[Received]) -> None:
        self.partition = partition
        self.records = records
        self.sizes = [size_of(record) for record in records]
        self.at = 0


class Inbox:
    """One thread puts, one takes, and one may drop a partition's records."""

    def __init__(self, prefetch: int) -> None:
        self.prefetch = prefetch
        self._changed = threading.Condition()
        self._chunks: deque[_Chunk] = deque()
        self._count = 0
        self._bytes = 0
        self._reason: NotConnected | None = None

    def wait_for_room(self, timeout: float) -> bool:
        """Whether more may be fetched, within that many seconds. After a failure it is known at once that none may: nobody would take it."""
        with self._changed:
            self._changed.wait_for(lambda: self._reason is not None or self._has_room(), timeout)
            return self._reason is None and self._has_room()

    def _has_room(self) -> bool:
        return self._count < self.prefetch and self._bytes < _BYTES

    def put(
        self, partition: TopicPartition, records: Sequence[Received], ours: Callable[[], Collection[TopicPartition]] | None = None
    ) -> None:
        """Append what was fetched; what is not `ours` any more is left to its next owner. `drop` comes before both or after both."""
        chunk = _Chunk(partition, records)
        with self._changed:
            if ours is not None and partition not in ours():
                return
            self._chunks.append(chunk)
            self._count += len(records)
            self._bytes += sum(chunk.sizes)
            self._changed.notify_all()

    def take(
        self, limit: int, timeout: float, give: Callable[[dict[TopicPartition, Place], int], Any] = lambda ends, _: ends
    ) -> tuple[list[Received], Any]:
        """At most `limit` records, waiting for the first, and what `give` returns.

        `give` is called with the place after the last record of each partition, and the number of records. `drop` comes before both or after both. Raises
        NotConnected.
        """
        taken: list[Received] = []
        ends: dict[TopicPartition, Place] = {}
        size = 0
        with self._changed:
            self._changed.wait_for(lambda: self._reason or self._chunks, timeout)
            if self._reason is not None:
                raise self._reason
            while self._chunks and len(taken) < limit and size < _BATCH_BYTES:
                chunk = self._chunks[0]
                start = chunk.at
                end = min(len(chunk.records), start + limit - len(taken))
                while chunk.at < end and size < _BATCH_BYTES:
                    size += chunk.sizes[chunk.at]
                    chunk.at += 1
                taken += chunk.records[start : chunk.at]
                ends[chunk.partition] = place_after(taken[-1])
                if chunk.at == len(chunk.records):
                    self._chunks.popleft()
            self._count -= len(taken)
            self._bytes -= size
            self._changed.notify_all()
            return taken, give(ends, len(taken)) if taken else None

    def drop(self, partitions: AbstractSet[TopicPartition]) -> None:
        """Forget what is here of these."""
        with self._changed:
            kept = [chunk for chunk in self._chunks if chunk.partition not in partitions]
            self._chunks = deque(kept)
            self._count = sum(len(chunk.records) - chunk.at for chunk in kept)
            self._bytes = sum(sum(chunk.sizes[chunk.at :]) for chunk in kept)
            self._changed.notify_all()

    def fail(self, reason: NotConnected) -> None:
        """From now on there is nothing to take. The first reason stands."""
        with self._changed:
            self._reason = self._reason or reason
            self._changed.notify_all()


def size_of(record: Received) -> int:
    """Bytes that a record takes here, about."""
    message = record.message
    return len(message.body or b"") + len(message.headers) + _EACH
