"""What the cluster says of the topics that a source reads: their ids, and how many partitions they and their destinations have."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka import errors
from kafka.protocol.metadata import MetadataRequest

from ...base import NotConnected
from ..identity import identity
from ..options import destination
from ..wire.records import Origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafka import TopicPartition

_LOOK_EVERY = 1.0  # seconds
_COUNT_EVERY = 60.0  # seconds
_CREATE = "create it, and the bridge will read it"


class _Topic(NamedTuple):
    """`identity` is empty where the broker knows no topic ids."""

    identity: bytes
    partitions: list[int]


class Topics:
    """Asked by the thread that drives the consumer only. Each topic is looked up once, a destination of which nothing is told once a second.

    Partitions may be added to either: they are counted once a minute. A topic that is read must be ours to describe. A destination need not: it may be on
    another broker, and whoever delivers there is told what is not allowed.
    """

    def __init__(self, consumer: Any, suffix: str, timeout: float) -> None:
        self._consumer = consumer
        self._suffix = suffix
        self._timeout = timeout
        self._known: dict[str, _Topic] = {}
        self._lasting: tuple[str, ...] = ()  # topics that must go on to be there
        self._gone: tuple[str, ...] = ()  # of these
        self._untold: set[str] = set()  # destinations that are missing, or not to be described, since the last check
        self._looked = self._counted = time.monotonic()

    def require(self, topics: Sequence[str], remedy: str = _CREATE, *, lasting: bool = False) -> None:
        """Raises NotConnected where one of these does not exist; `lasting`: so does `check` from then on."""
        if topics:
            self._look_up(topics)
        missing = [topic for topic in topics if topic not in self._known]
        if missing:
            raise _missing(missing, remedy)
        if lasting:
            self._lasting = tuple(topics)

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic that was looked up."""
        return self._known[topic].partitions

    def identity(self, topic: str) -> str:
        """The id of a topic, in hexadecimal; empty where the broker knows no topic ids. Raises NotConnected."""
        if topic not in self._known:
            self._look_up((topic,))
        return self._told(topic).identity.hex()

    def _told(self, topic: str) -> _Topic:
        """A topic that was looked up. A broker that has just started may not know it yet: without its id, what was committed would be another topic's."""
        if topic not in self._known:
            raise NotConnected(f"the cluster does not tell of topic {topic}")
        return self._known[topic]

    def origin(self, partition: TopicPartition) -> Origin:
        """What a partition's records have in common. Raises NotConnected."""
        name, number = partition
        address = destination(name, self._suffix)
        own = (name,) if name not in self._known else ()
        other = (address,) if address and address not in self._known and address not in self._untold else ()
        if own or other:
            self._look_up(own, other)
        topic, leads_to = self._told(name), self._known.get(address)
        same = leads_to is not None and topic.partitions == leads_to.partitions
        return Origin(name, number, topic.identity, address, same)

    def check(self) -> None:
        """Raises NotConnected where a topic was created again: offsets mean something else from then on; and where one that has to last is gone.

        kafka-python finds out that by a fetch, and waits for it to come back. It also lacks topics of which it was told nothing for a moment: so the cluster
        is asked once more.
        """
        now = time.monotonic()
        if now - self._looked < _LOOK_EVERY:
            return
        self._looked = now
        self._untold.clear()
        if self._gone:
            raise _missing(self._gone, _CREATE)
        cluster = self._consumer._cluster  # noqa: SLF001 - nothing public says what is known without asking
        if any(cluster.partitions_for_topic(name) is None for name in self._lasting):
            self._consumer._manager.send(_request(self._lasting)).add_callback(self._miss)  # noqa: SLF001 - nobody waits for it
        for name, topic in self._known.items():
            found = identity(cluster.topic_id(name))
            if found and topic.identity and found != topic.identity:
                raise NotConnected(f"topic {name} was deleted and created again")
        if self._known and now - self._counted >= _COUNT_EVERY:
            self._counted = now
            self._consumer._manager.send(_request(self._known)).add_callback(self._count)  # noqa: SLF001 - while the cluster is away nobody waits for it

    def _count(self, answer: Any) -> None:
        for topic in answer.topics:
            known = self._known.get(topic.name)
            if known is not None and topic.error_code == errors.NoError.errno:
                self._known[topic.name] = known._replace(partitions=_numbers(topic))

    def _miss(self, answer: Any) -> None:
        self._gone = tuple(topic.name for topic in answer.topics if topic.error_code == errors.UnknownTopicOrPartitionError.errno)

    def _look_up(self, own: Sequence[str], others: Sequence[str] = ()) -> None:
        """Raises NotConnected where one of our `own` may not be described."""
        request = _request((*own, *others))
        manager = self._consumer._manager  # noqa: SLF001 - the consumer's own way asks for all topics and never gives up
        answer = self._consumer._net.run(manager.wait_for, manager.send(request), int(self._timeout * 1000))  # noqa: SLF001
        for topic in answer.topics:
            if topic.error_code == errors.NoError.errno:
                self._known[topic.name] = _Topic(identity(topic.topic_id), _numbers(topic))
            elif topic.name in others:
                self._untold.add(topic.name)
            elif topic.error_code == errors.TopicAuthorizationFailedError.errno:
                raise NotConnected(f"the bridge may not describe topic {topic.name}")


def _missing(topics: Iterable[str], remedy: str) -> NotConnected:
    return NotConnected(f"there is no topic {', '.join(topics)}: {remedy}")


def _numbers(topic: Any) -> list[int]:
    return sorted(each.partition_index for each in topic.partitions)


def _request(topics: Iterable[str]) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
