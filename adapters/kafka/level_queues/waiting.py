"""Records that wait for their level, each partition in its own order: no partition's head keeps another's waiting.

Nothing here knows a clock, a thread or a connection: whoever asks says what time it is.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from typing import TYPE_CHECKING, NamedTuple

from ..sources.inbox import size_of
from ..wire.records import offset_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafka import TopicPartition

    from ...base import Received

FULL, FULL_BYTES = 2000, 512 << 10
"""Records and bytes of one partition, after which no more of it is fetched. Waiting records stay on the broker: few are needed here."""

AHEAD = 2000
"""Milliseconds. While the last record that is here leaves later than that, no more of its partition is fetched."""


class LevelRecord(NamedTuple):
    """One record, and when it may leave (epoch ms)."""

    partition: TopicPartition
    offset: int
    received: Received
    leaves: int
    size: int


class LevelWaiting:
    """What was fetched and has not left. `waits`: how long each topic's records wait (ms), counted from their timestamp."""

    def __init__(self, waits: Mapping[str, int]) -> None:
        self._waits = waits
        self._queues: dict[str, dict[int, deque[LevelRecord]]] = defaultdict(dict)
        self._bytes: dict[TopicPartition, int] = {}

    def put(self, partition: TopicPartition, records: Iterable[Received], now: int) -> None:
        """Append records of one partition, in its order. None was written after it is read, whatever the clock said of who wrote it."""
        wait = self._waits[partition.topic]
        queue = self._queues[partition.topic].setdefault(partition.partition, deque())
        for received in records:
            record = LevelRecord(partition, offset_of(received.token), received, min(received.sent or 0, now) + wait, size_of(received))
            queue.append(record)
            self._bytes[partition] = self._bytes.get(partition, 0) + record.size

    def take(self, topic: str, now: int, limit: int, room: Callable[[TopicPartition], int]) -> list[LevelRecord]:
        """At most `limit` records of a topic that may leave, the earliest first, and of each partition as many as there is `room` for."""
        last = now + self._waits[topic]
        heads = [(_leaves(queue[0], last), number, room(queue[0].partition)) for number, queue in self._queues[topic].items() if queue]
        heapq.heapify(heads)
        taken: list[LevelRecord] = []
        while heads and len(taken) < limit and heads[0][0] <= now:
            _, number, left = heapq.heappop(heads)
            if left <= 0:
                continue
            queue = self._queues[topic][number]
            record = queue.popleft()
            self._bytes[record.partition] -= record.size
            taken.append(record)
            if queue:
                heapq.heappush(heads, (_leaves(queue[0], last), number, left - 1))
        return taken

    def next_leave(self, topic: str, room: Callable[[TopicPartition], int]) -> int | None:
        """When `take` will have something, None where time alone changes nothing."""
        heads = (queue[0] for queue in self._queues[topic].values() if queue)
        return min((head.leaves for head in heads if room(head.partition) > 0), default=None)

    def wants(self, partition: TopicPartition, now: int) -> bool:
        """Whether more of a partition should be fetched now; else it is to be paused."""
        queue = self._queues[partition.topic].get(partition.partition)
        return not queue or (queue[-1].leaves - now < AHEAD and not self.full(partition))

    def full(self, partition: TopicPartition) -> bool:
        """Whether as much of a partition is here as may be."""
        queue = self._queues[partition.topic].get(partition.partition, ())
        return len(queue) >= FULL or self._bytes.get(partition, 0) >= FULL_BYTES

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget what is here of these."""
        for partition in partitions:
            self._queues[partition.topic].pop(partition.partition, None)
            self._bytes.pop(partition, None)


def _leaves(head: LevelRecord, last: int) -> int:
    """When it leaves; `last` is when what is written now will.

    What would leave later was read before the clock was set back: it leaves at once, for it keeps others waiting. How long it has waited nobody knows.
    """
    return head.leaves if head.leaves <= last else 0
