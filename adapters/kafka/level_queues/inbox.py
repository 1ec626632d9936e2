"""The records of all levels that one consumer has: fetched, given out, finished. Of a `connection.Connection` it is both the inbox and the progress."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import structlog
from kafka import OffsetAndMetadata

from ...base import NotConnected
from ...clock import wall_clock
from ..finished import Finished
from ..wire.records import newest_epoch, offset_of, place_after
from .waiting import LevelRecord, LevelWaiting

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from kafka import TopicPartition

    from ...base import Received
    from ...levelled import Level

log = structlog.get_logger()

HELD = 16 << 20
"""Bytes of one level that are given out and not finished, after which it gives no more: what a destination refuses is held in memory."""


class LevelInbox:
    """All partitions of all levels. Any thread."""

    def __init__(self, levels: Sequence[Level]) -> None:
        self._waiting = LevelWaiting({level.name: level.wait for level in levels})
        self._early = {level.name: level.early for level in levels}
        self._lock = threading.RLock()
        self._changed = {level.name: threading.Condition(self._lock) for level in levels}
        self._finished: dict[TopicPartition, Finished] = {}
        self._read: dict[TopicPartition, int] = {}
        self._uncommitted: set[TopicPartition] = set()
        self._out: dict[bytes, LevelRecord] = {}
        self._held: Counter[str] = Counter()
        self._reason: NotConnected | None = None
        self.handed_over = 0
        """See base.Sharing."""

    # The inbox.

    def put(
        self, fetched: Mapping[TopicPartition, Sequence[Received]], reached: Callable[[], Mapping[TopicPartition, OffsetAndMetadata]]
    ) -> None:
        """Take what was fetched, of partitions that were opened, and how far they are read. What has gone to another bridge meanwhile is left to it.

        Where a log begins anew, as after the loss of its end, new records would look like those that were there before: then this fails, and takes no more.
        """
        with self._lock:
            if self.failed:
                return
            ours = reached()
            for partition, records in fetched.items():
                finished = self._finished.get(partition)
                if finished is not None and partition in ours:
                    if records and offset_of(records[0].token) < self._read.get(partition, 0):
                        if newest_epoch(records) <= finished.epoch:
                            self.forget({partition})  # what was finished there says nothing of this log
                        self.fail(NotConnected(f"{partition.topic}-{partition.partition} has lost records, or was made anew"))
                        return
                    self._follow(partition, records)
                    self._waiting.put(partition, [each for each in records if finished.admit(offset_of(each.token))], wall_clock())
                    self._changed[partition.topic].notify_all()
            for partition, position in ours.items():
                if partition in self._finished:
                    self._finished[partition].reach(position.offset, position.leader_epoch)
                    self._read[partition] = max(position.offset, self._read.get(partition, 0))

    def _follow(self, partition: TopicPartition, records: Sequence[Received]) -> None:
        """Before these are admitted. What was finished of records that are lost is committed no more."""
        finished = self._finished[partition]
        newest = newest_epoch(records)
        if newest <= finished.epoch:
            return
        offset = next(place.offset for place in map(place_after, records) if place.epoch > finished.epoch) - 1
        if finished.follow(offset, newest):
            self._uncommitted.add(partition)
            log.warning(
                "records_replaced",
                topic=partition.topic,
                partition=partition.partition,
                offset=offset,
                action="the bridge reads on from there; what Kafka has lost is lost",
            )

    def leaving(self, topic: str, limit: int, timeout: float) -> list[LevelRecord]:
        """At most `limit` records that may leave their level now, see levelled.Level, waiting for the first. Raises NotConnected."""
        deadline = time.monotonic() + timeout
        with self._lock:
            while True:
                if self._reason is not None:
                    raise self._reason
                now = wall_clock()
                taken = self._waiting.take(topic, now + self._early[topic], limit, self._room)
                left = deadline - time.monotonic()
                if taken or left <= 0:
                    for record in taken:
                        self._finished[record.partition].give(record.offset)
                        self._out[record.received.token] = record
                        self._held[topic] += record.size
                    return taken
                leaves = self._waiting.next_leave(topic, self._room)
                self._changed[topic].wait(left if leaves is None else min(left, max(1, leaves - self._early[topic] // 2 - now) / 1000))

    def _room(self, partition: TopicPartition) -> int:
        return self._finished[partition].room if self._held[partition.topic] < HELD else 0

    def first_leaves(self, topic: str) -> int | None:
        """When the first of what is here of a topic leaves its level; None where that is nothing."""
        with self._lock:
            return self._waiting.next_leave(topic, lambda _: 1)

    def unwanted(self, partitions: Iterable[TopicPartition], now: int) -> tuple[set[TopicPartition], bool]:
        """The partitions of which no more should be fetched now, and whether one of them is full of records that leave soon."""
        with self._lock:
            found = {each for each in partitions if not self._waiting.wants(each, now)}
            return found, any(self._waiting.full(each) for each in found)

    def fail(self, reason: NotConnected) -> None:
        """From now on there is nothing to take. The first reason stands."""
        with self._lock:
            self._reason = self._reason or reason
            for changed in self._changed.values():
                changed.notify_all()

    @property
    def failed(self) -> bool:
        """Whether there is nothing to take any more."""
        return self._reason is not None

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget what is here of these and was not given out."""
        with self._lock:
            self._waiting.drop(partitions)

    # The progress.

    def open(
        self, partition: TopicPartition, committed: OffsetAndMetadata | None, ours: Callable[[], Collection[TopicPartition]] | None = None
    ) -> None:
        """A partition has become ours; `committed` is what its last owner committed. Does nothing if it is not `ours` any more.

        `forget` comes before both or after both.
        """
        with self._lock:
            if ours is not None and partition not in ours():
                return
            self._finished[partition] = Finished() if committed is None else Finished(*committed)

    @property
    def opened(self) -> bool:
        """Whether any partition is ours."""
        with self._lock:
            return bool(self._finished)

    def unknown(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those that were not opened."""
        with self._lock:
            return {each for each in partitions if each not in self._finished}

    def out(self, token: bytes) -> LevelRecord | None:
        """The record that was given out with this token, while it is ours and not finished."""
        with self._lock:
            return self._out.get(token)

    def elsewhere(self, record: LevelRecord) -> bool:
        """Whether this one, which was given out and is not finished, is ours no more. Takes no lock: it is asked for each delivery."""
        return self._out.get(record.received.token) is not record

    def finish(self, records: Iterable[LevelRecord], *, committed: bool = False) -> None:
        """These need not come again. Records that belong to another bridge by now, or were given out anew since they came back, are passed over."""
        with self._lock:
            for each in records:
                if self.elsewhere(each):
                    continue
                del self._out[each.received.token]
                if not self._room(each.partition):
                    self._changed[each.partition.topic].notify_all()
                self._finished[each.partition].finish(each.offset)
                self._held[each.partition.topic] -= each.size
                if not committed:
                    self._uncommitted.add(each.partition)

    def take(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What is to be committed now."""
        with self._lock:
            partitions, self._uncommitted = self._uncommitted, set()
            return {each: self._position(self._finished[each]) for each in partitions}

    def positions(self, records: Iterable[LevelRecord]) -> dict[TopicPartition, OffsetAndMetadata]:
        """What would be to be committed if these, which are given out, were finished."""
        with self._lock:
            offsets: dict[TopicPartition, set[int]] = {}
            for each in records:
                offsets.setdefault(each.partition, set()).add(each.offset)
            return {each: self._position(self._finished[each].after(done)) for each, done in offsets.items()}

    @staticmethod
    def _position(finished: Finished) -> OffsetAndMetadata:
        return OffsetAndMetadata(finished.base, finished.text(), finished.epoch)

    def committed(self, positions: Iterable[TopicPartition]) -> None:
        """These are committed. Nothing need be remembered of that here."""

    def give_back(self, positions: Iterable[TopicPartition]) -> None:
        """These could not be committed."""
        with self._lock:
            self._uncommitted |= {each for each in positions if each in self._finished}

    def held(self, partitions: Iterable[TopicPartition]) -> int:
        """How many records of these are given out and not finished."""
        with self._lock:
            return sum(self._finished[each].out for each in partitions if each in self._finished)

    def held_of(self, topic: str) -> int:
        """The same of a topic."""
        with self._lock:
            return self.held([each for each in self._finished if each.topic == topic])

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """These are not ours any more."""
        with self._lock:
            self._waiting.drop(partitions)  # once more: some may have been fetched since
            for each in partitions:
                self._finished.pop(each, None)
                self._read.pop(each, None)
                self._uncommitted.discard(each)
            self._out = {token: record for token, record in self._out.items() if record.partition in self._finished}
            self._held = Counter()
            for record in self._out.values():
                self._held[record.partition.topic] += record.size
            self.handed_over += 1  # last: who sees it asks `elsewhere`, without the lock, and not again
