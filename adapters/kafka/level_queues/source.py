"""Level queues on Kafka: one topic for each level, and one consumer for all of them.

A record leaves its level when its timestamp and the level's wait say so, by this machine's clock. A partition whose first records have not left
is paused, and others go on. Bridges of one prefix are one consumer group, and share the partitions. What is committed says of each record whether it
is finished, so that the next owner of a partition takes up exactly what is not.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka import errors

from ...base import Batch, NotConnected
from ...clock import wall_clock
from ..link import Caught
from ..sources.connection import Connection, Handover
from ..sources.consumer import bootstrapped, consuming
from ..sources.fetched import Suspects
from ..sources.source import nothing
from ..wire.records import place_after
from .inbox import LevelInbox
from .queues import group
from .waiting import FULL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kafka import OffsetAndMetadata, TopicPartition

    from ...base import Received
    from ...levelled import Level
    from ..options import Kafka
    from ..sources.topics import Topics
    from ..wire.records import Place
    from .waiting import LevelRecord

_POLL, _HURRY = 200, 20  # ms; so often a paused partition is looked at, and while one is full
_FETCH = 256 << 10  # bytes of one partition in one answer
_STILL = 2.0
"""Seconds, see `still`. What cannot be delivered would hold up all bridges at each rebalance: with transactions its next owner takes it from its level."""
_TIMEOUT = 30_000  # ms, in which it is told where a partition ends


class LevelPoller(Connection):
    """One connection that serves all levels."""

    inbox: LevelInbox

    def __init__(self, consumer: Any, inbox: LevelInbox, patience: float, topics: Topics, *, returning: bool, moving: bool = False) -> None:
        super().__init__(consumer, inbox, inbox, patience, topics, returning=returning)
        self.still = _STILL if moving else self.still
        self.serving: set[str] = set()
        self.left: set[str] = set()

    def finished(self, found: Iterable[Any]) -> None:
        """See readers.Session."""
        self.inbox.finish(found, committed=True)

    def elsewhere(self, records: Sequence[LevelRecord], place: int) -> bool:
        """See base.Batch. Threads that deliver go on before this connection's own finds out that the process stood still, and that it is of no use."""
        return self.inbox.elsewhere(records[place]) or self.stood_still()

    @property
    def _holding(self) -> bool:
        return self.inbox.opened

    def _not_committed(self, offsets: dict[TopicPartition, Any], error: BaseException) -> None:
        """A level that was deleted may be made again before the next try, and what is committed there then would pass for finished."""
        if isinstance(error, errors.UnknownTopicOrPartitionError):
            self.drop(set(offsets))
            self.fail(NotConnected(f"a level was deleted, one of {', '.join(sorted({each.topic for each in offsets}))}"))
        else:
            super()._not_committed(offsets, error)

    def _poll(self) -> None:
        """Fetch of the partitions of which more is wanted."""
        self._mind_the_join()
        unwanted, full = self.inbox.unwanted(self.consumer.assignment(), wall_clock())
        self._pause(unwanted)
        fetched = self.consumer.poll(timeout_ms=_HURRY if full else _POLL, max_records=FULL)
        self._forgotten()
        self._mind_the_session()
        self._open({each: fetched[each] for each in self.inbox.unknown(fetched)})
        self.inbox.put(fetched, self._reached)

    def _reached(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """How far each of our partitions is read, with markers of transactions and what was aborted."""
        return dict(self.consumer._subscription.all_consumed_offsets())  # noqa: SLF001 - the public way may ask the cluster, for each one

    def _pause(self, unwanted: set[TopicPartition]) -> None:
        paused = self.consumer.paused()
        self._each(self.consumer.pause, unwanted - paused)
        self._each(self.consumer.resume, paused - unwanted)

    def _open(self, unknown: Mapping[TopicPartition, Sequence[Received]]) -> None:
        """Open the partitions of which the first records have come, with what their group has committed there.

        Records may lie before that, where another bridge has committed it meanwhile, or where a log has lost its end: then they are of a later epoch. Where
        the whole log does, and no epoch tells why, all of it is taken for new, which delivers twice rather than never.
        """
        if unknown:
            committed = self._committed_in(set(unknown))
            if not self.inbox.opened:
                self._member = self.consumer.group_metadata().member_id
            for each, records in unknown.items():
                position = committed.get(each)
                if position is not None and records and _unexplained(place_after(records[0]), position):
                    end = self.consumer.end_offsets([each], timeout_ms=_TIMEOUT)[each]
                    position = position if position.offset <= end else None
                self.inbox.open(each, position, self.consumer.assignment)

    def _positions(self, offsets: dict[TopicPartition, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
        return offsets


def _unexplained(first: Place, committed: OffsetAndMetadata) -> bool:
    """Whether the first record lies before what is committed, and its epoch does not tell that a lost one had its offset."""
    return first.offset <= int(committed.offset) and not 0 <= committed.leader_epoch < first.epoch


class Hub:
    """Shares one connection between all levels: opens it for the first level that asks, and closes it with the last. Any thread.

    `moving` says that a transactor finishes records, not the acknowledgement of their batch.
    """

    def __init__(self, options: Kafka, levels: Sequence[Level], *, moving: bool = False) -> None:
        self.group = group(levels[0].name)
        self.topics = frozenset(level.name for level in levels)
        self.moving = moving
        self._options = options
        self._levels = levels
        self._suspects = Suspects()
        self._lock = threading.Lock()
        self._poller: LevelPoller | None = None

    def source(self, level: Level) -> LevelSource:
        """A source for one of the levels."""
        return LevelSource(self, level.name)

    @property
    def poller(self) -> LevelPoller | None:
        """The connection, while there is one."""
        return self._poller

    def join(self, topic: str) -> LevelPoller:
        """The connection. Raises NotConnected. A level that is read anew gets what it did not finish: then all connect anew."""
        with self._lock:
            poller = self._poller
            if poller is not None and topic in poller.left and poller.inbox.held_of(topic):
                poller.inbox.fail(NotConnected(f"level {topic} is read anew"))
            if poller is not None and poller.inbox.failed:
                self._close(poller)
            if self._poller is None:
                caught = Caught(renewed=self._options.renewed)
                with caught.opening():
                    self._poller = self._opened(caught)
                self._poller.start()
            self._poller.serving.add(topic)
            self._poller.left.discard(topic)
            return self._poller

    def leave(self, poller: LevelPoller, topic: str) -> None:
        """The level needs the connection no more."""
        with self._lock:
            poller.serving.discard(topic)
            poller.left.add(topic)
            if poller is self._poller and not poller.serving:
                self._close(poller)

    def _close(self, poller: LevelPoller) -> None:
        self._poller = None
        poller.close()

    def _opened(self, caught: Caught) -> LevelPoller:
        options, names = self._options, sorted(self.topics)
        configs = consuming(options, "levels") | {
            "group_id": self.group, "group_instance_id": options.level_instance, "max_partition_fetch_bytes": _FETCH,
        }  # fmt: skip
        consumer, topics = bootstrapped(configs, caught, options, self._suspects)
        topics.require(names, "run `delaybridge apply`")
        poller = LevelPoller(
            consumer,
            LevelInbox(self._levels),
            options.connection_timeout,
            topics,
            returning=options.level_instance is not None,
            moving=self.moving,
        )
        consumer.subscribe(names, listener=Handover(poller))
        return poller


class LevelSource:
    """What leaves one level. See base.Source."""

    def __init__(self, hub: Hub, topic: str) -> None:
        self._hub = hub
        self._topic = topic
        self._poller: LevelPoller | None = None

    def connect(self) -> None:
        """See base.Source."""
        self.close()
        self._poller = self._hub.join(self._topic)

    def receive(self, limit: int, timeout: float) -> Batch | None:
        """See base.Source."""
        poller = self._poller
        if poller is None:
            raise NotConnected("the source is closed")
        inbox = poller.inbox
        records = inbox.leaving(self._topic, limit, timeout)
        if not records:
            return None
        received, elsewhere = [each.received for each in records], partial(poller.elsewhere, records)
        if self._hub.moving:
            return Batch(received, nothing, lambda _: None, elsewhere)
        return Batch(received, partial(inbox.finish, records), lambda places: inbox.finish(records[place] for place in places), elsewhere)

    @property
    def first_leaves(self) -> int | None:
        """See levelled.Foreseeing. Of the partitions that are this bridge's."""
        poller = self._poller
        return None if poller is None else poller.inbox.first_leaves(self._topic)

    @property
    def handed_over(self) -> int:
        """See base.Sharing."""
        poller = self._poller
        return 0 if poller is None else poller.inbox.handed_over

    def close(self) -> None:
        """See base.Source."""
        poller, self._poller = self._poller, None
        if poller is not None:
            self._hub.leave(poller, self._topic)
