"""A source's connection: records of the topics that a route reads, or of a topic that is listened at.

With each offset the id of its topic is committed: a topic that was deleted and created again is read from its beginning, also when an offset of the
old one was committed after that.
"""

from __future__ import annotations

import contextlib
from itertools import chain
from typing import TYPE_CHECKING, Any

from kafka import OffsetAndMetadata, TopicPartition

from ..identity import of_others, text_of
from ..link import not_connected
from .connection import POLL, Connection
from .inbox import Inbox, size_of
from .progress import MOST, Progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...base import Received
    from .topics import Topics

_FEW, _SMALL = 500, 256 << 10  # records, bytes: a fetch of less is little; a full one brings more, of the largest records too


class Poller(Connection):
    """Fetches into an `Inbox` for as long as that has room."""

    inbox: Inbox
    progress: Progress

    def __init__(self, consumer: Any, inbox: Inbox, patience: float, topics: Topics, *, returning: bool) -> None:
        super().__init__(consumer, inbox, Progress(), patience, topics, returning=returning)
        self.pause = 0.0  # s after a fetch of little: the next one brings what comes meanwhile
        self._grouped = consumer.config["group_id"] is not None
        self._met: set[TopicPartition] = set()

    def _poll(self) -> None:
        """Fetch; or, while nobody receives, keep the place in the group without fetching."""
        self._mind_the_join()
        if self.inbox.wait_for_room(min(1.0, self._session / 6)):
            fetched = self.consumer.poll(timeout_ms=POLL, max_records=self.inbox.prefetch)
        else:
            paused = self.consumer.assignment()
            self._each(self.consumer.pause, paused)
            fetched = self.consumer.poll(timeout_ms=POLL)
            self._each(self.consumer.resume, paused)
        self._forgotten()
        self._mind_the_session()
        created_again = self._meet(self.consumer.assignment() - self._met)
        for partition, records in fetched.items():
            if partition not in created_again:
                self.inbox.put(partition, records, self.consumer.assignment)
        if self.pause and self._little(list(chain.from_iterable(fetched.values()))):
            self._stopping.wait(self.pause)

    def _little(self, records: Sequence[Received]) -> bool:
        """Whether something has come, and nothing that looks like a flood."""
        return 0 < len(records) < min(_FEW, self.inbox.prefetch) and sum(map(size_of, records)) < _SMALL

    def _meet(self, come: set[TopicPartition]) -> set[TopicPartition]:
        """Note partitions that have come. Returns those with a committed offset of an earlier topic of that name: these are read from their beginning."""
        if not come or not self._grouped:
            return set()
        if not self._met:
            self._member = self.consumer.group_metadata().member_id
        for each in come:
            self._of(each)  # on this thread; from here on it is known on any
        committed = self._committed_in(come)
        again = {each for each, position in committed.items() if of_others(position.metadata, self._of(each))}
        for each in again:
            with contextlib.suppress(ValueError):  # it has just gone to another bridge
                self.consumer.seek_to_beginning(each)
        self._met |= come
        return again

    @property
    def _holding(self) -> bool:
        return bool(self._met)

    def _positions(self, offsets: dict[TopicPartition, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
        """What is committed for these."""
        return {each: OffsetAndMetadata(place.offset, self._of(each), place.epoch) for each, place in offsets.items()}

    def _of(self, partition: TopicPartition) -> str:
        return text_of(self._topics.identity(partition.topic))

    def room(self, timeout: float) -> int:
        """See Progress. Where little is left, what was acknowledged is committed now: the next poll may be long in coming. Any thread."""
        if self.progress.room(0) < MOST // 2:
            try:
                self._commit_some()
            except Exception as error:  # noqa: BLE001 - kafka-python's thread has died, of whatever it was: the same is raised at every call
                self.fail(not_connected(error))
        return self.progress.room(timeout)

    def finished(self, found: Iterable[Any]) -> None:
        """See readers.Session."""
        self.progress.commit(found)

    def drop(self, lost: set[TopicPartition]) -> None:
        """Forget these partitions."""
        self._met -= lost
        super().drop(lost)
