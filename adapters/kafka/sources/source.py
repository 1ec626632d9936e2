"""Records from Kafka topics, in batches, with explicit commits: what `receive` gives is what a Poller has fetched."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from kafka import TopicPartition

from ...base import Batch, NotConnected
from ..link import Caught
from .connection import Handover
from .consumer import bootstrapped, consuming
from .fetched import Suspects
from .inbox import Inbox
from .membership import present
from .poller import Poller

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from kafka.structs import ConsumerGroupMetadata

    from ...base import Received
    from ..options import Kafka
    from .progress import Given
    from .topics import Topics


_MOMENT = 1.0
"""Seconds within which what has arrived is given, while nothing is in the way."""

_SOON = 0.01  # s


class Subscription(NamedTuple):
    """What a group reads: topics by name, or by pattern."""

    topics: tuple[str, ...]
    pattern: str | None
    group: str
    instance: str | None

    @property
    def member(self) -> str | None:
        """The instance, with a digest of what is read: two members of one name in a group, such as two routes of a bridge, would throw each other out."""
        return self.instance and f"{self.instance}-{crc32((self.pattern or ','.join(self.topics)).encode()):08x}"


class Tap(NamedTuple):
    """A topic that is read without a group, from its end."""

    topic: str


class Listener(Poller):
    """Reads a topic without a group, from where it is put. Partitions that the topic gets later are read from their beginning."""

    AGE = 5_000  # ms; so old may be what is known of the topic's partitions
    _ends: tuple[tuple[float, dict[TopicPartition, int]], ...] = ()

    @property
    def behind(self) -> bool:
        """See base.Trailing: whether records are not fetched that were there a second ago, as the answers told then."""
        old = time.monotonic() - _MOMENT
        then = [ends for at, ends in self._ends if at <= old]
        positions = self._states("position")
        return bool(then) and any(each in positions and positions[each].offset < end for each, end in then[-1].items())

    def _states(self, name: str) -> dict[TopicPartition, Any]:
        """What is known of each partition under this name."""
        states = list(self.consumer._subscription.assignment.items())  # noqa: SLF001 - the public way may ask the cluster
        return {each: value for each, state in states if (value := getattr(state, name)) is not None}

    def _note_ends(self) -> None:
        """Where the partitions end, about ten times in a moment; of what is older than that, the latest is kept."""
        now = time.monotonic()
        if not self._ends or now - self._ends[-1][0] >= _MOMENT / 10:
            old = sum(at <= now - _MOMENT for at, _ in self._ends)
            self._ends = (*self._ends[max(0, old - 1) :], (now, self._states("highwater")))

    def _poll(self) -> None:
        assigned = self.consumer.assignment()
        topics = {each.topic for each in assigned}
        known = {TopicPartition(topic, number) for topic in topics for number in self.consumer._cluster.partitions_for_topic(topic) or ()}  # noqa: SLF001 - the public way may ask the cluster
        if new := known - assigned:
            self.consumer.assign([*assigned, *new])
            self.consumer.seek_to_beginning(*new)
        super()._poll()
        self._note_ends()


class KafkaSource:
    """Reads topics as a member of a group, or listens at one (a Tap)."""

    GATHERING = 0.03  # s; with 1,000 messages a second, 33 fetches instead of some hundred

    def __init__(self, options: Kafka, subscription: Subscription | Tap) -> None:
        self.options = options
        self.subscription = subscription
        self._suspects = Suspects()
        self._poller: Poller | None = None
        self._given: Given | None = None

    def connect(self) -> None:
        """See base.Source. A topic that is named must exist."""
        self.close()
        caught = Caught(renewed=self.options.renewed)
        with caught.opening():
            poller = self._opened(caught)
        poller.start()
        self._poller = poller

    def _opened(self, caught: Caught) -> Poller:
        consumer, topics = bootstrapped(self._configs(), caught, self.options, self._suspects, self.options.delayed_suffix)
        returning = isinstance(self.subscription, Subscription) and self.subscription.instance is not None
        kind = Listener if isinstance(self.subscription, Tap) else Poller
        poller = kind(consumer, Inbox(self.options.prefetch), self.options.connection_timeout, topics, returning=returning)
        if isinstance(self.subscription, Tap):
            self._listen(consumer, topics, self.subscription.topic)
        else:
            topics.require(self.subscription.topics, lasting=True)
            consumer.subscribe(self.subscription.topics, self._pattern(), listener=Handover(poller))
        return poller

    def _configs(self) -> dict[str, Any]:
        options, subscription = self.options, self.subscription
        configs = consuming(options, "tap" if isinstance(subscription, Tap) else "source")
        if isinstance(subscription, Tap):
            return configs | {"metadata_max_age_ms": Listener.AGE}
        return configs | {"group_id": subscription.group, "group_instance_id": subscription.member}

    def _pattern(self) -> str | None:
        assert isinstance(self.subscription, Subscription)
        return self.subscription.pattern and f"(?:{self.subscription.pattern})$"

    def _listen(self, consumer: Any, topics: Topics, topic: str) -> None:
        topics.require((topic,), "create it first")
        partitions = [TopicPartition(topic, partition) for partition in topics.partitions(topic)]
        consumer.assign(partitions)
        for partition, end in consumer.end_offsets(partitions, timeout_ms=int(self.options.connection_timeout * 1000)).items():
            consumer.seek(partition, end)

    def receive(self, limit: int, timeout: float) -> Batch | None:
        """See base.Source."""
        if self._poller is None:
            raise NotConnected("the source is closed")
        if isinstance(self.subscription, Tap):  # without a group there is nothing to commit
            records, _ = self._poller.inbox.take(limit, timeout)
            return Batch(records, nothing) if records else None
        room = self._poller.room(timeout)
        records, given = self._poller.inbox.take(min(limit, room), timeout if room else 0, self._poller.progress.give)
        if not records:
            return None
        self._given = given
        return self._batch(self._poller, records, given)

    def gather(self, *, calm: bool) -> None:
        """See base.Gathering. What comes in a pause is received at its end, or, where an answer was there already, after the next one."""
        if self._poller is not None:
            self._poller.pause = self.GATHERING if calm else 0.0

    @property
    def behind(self) -> bool:
        """See base.Trailing."""
        return isinstance(self._poller, Listener) and self._poller.behind

    def _batch(self, poller: Poller, records: Sequence[Received], given: Given) -> Batch:
        return Batch(records, partial(poller.progress.ack, given))

    def tenure(self) -> ConsumerGroupMetadata:
        """See base.Holding: the member that reads, in one generation of its group. Each time that partitions come or go there is another generation."""
        given, poller = self._given, self._poller
        if given is None or poller is None:
            raise NotConnected("the source is closed")
        member = poller.member()
        try:
            poller.progress.positions([given])
        except KeyError:
            member = None
        if member is None:
            raise NotConnected("a part of these messages has gone to another bridge")
        return member._replace(state=None)

    def affirm(self, tenure: Hashable) -> bool:
        """See base.Holding."""
        poller = self._poller
        if poller is None:
            raise NotConnected("the source is closed")
        if present(poller.consumer, tenure, self.options.connection_timeout):
            return True
        deadline = time.monotonic() + self.options.connection_timeout
        while self.tenure() == tenure:  # the group is ahead of its member, by moments as a rule
            if time.monotonic() > deadline:
                raise NotConnected("the group has gone on without this bridge")
            time.sleep(_SOON)  # kafka-python hears of it with one of its next answers, and tells nobody
        return False

    def close(self) -> None:
        """See base.Source."""
        poller, self._poller, self._given = self._poller, None, None
        if poller is not None:
            poller.close()


def nothing() -> None:
    """Acknowledge where there is nothing to."""
