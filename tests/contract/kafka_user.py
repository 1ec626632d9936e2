"""What the tests of the Kafka adapter share: topics of their own, a user of the broker on kafka-python, and what the adapter opened."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from brokers.common import wait_until
from brokers.kafka import Native, admin, create_topic, native
from brokers.private import running
from conftest import unavailable
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern

from contract.outcomes import words
from delaybridge.adapters.base import NotConnected, Outcome, Outgoing
from delaybridge.adapters.kafka import Endpoint, Kafka, adapter
from delaybridge.bridge.apart.frames import Setup
from delaybridge.bridge.apart.source import ApartSource
from delaybridge.bridge.config import Logs
from delaybridge.core.message import NO_PROPERTIES, Message, Properties, message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delaybridge.adapters.base import Received
    from delaybridge.adapters.kafka.sinks.sink import KafkaSink
    from delaybridge.adapters.kafka.sources.source import KafkaSource


def named(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(6)}"


@contextlib.contextmanager
def private(*settings: Any) -> Iterator[Native]:
    """A Kafka of one's own with these settings: see brokers.kafka.Native. Without one the test is skipped, or fails where Kafka is required."""
    if not native():
        unavailable("kafka", "needs java and the broker's artifacts (python -m brokers.kafka --install)")
    with running(Native(*settings)) as broker:
        yield broker


_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plain.plain.sasl.jaas.config": f'{_MODULE} required user_alice="alice";',
    "transaction.max.timeout.ms": "60000",
}
"""Settings of a private broker on which alice has the rights that she is given; PLAIN is the listener for her."""

PLAIN = {"PLAIN": "SASL_PLAINTEXT"}


def alice(broker: Native) -> dict[str, Any]:
    """Options by which she connects."""
    return {
        "bootstrap_servers": broker.urls["PLAIN"], "connection_timeout": 15, "sasl": "PLAIN", "username": "alice", "password": "alice",
    }  # fmt: skip


def allow(broker: Native, kind: str, name: str, *operations: ACLOperation, pattern: str = ACLResourcePatternType.LITERAL) -> None:
    """Give alice these rights, besides those that she has."""
    resource = ResourcePattern(kind, name, pattern)
    with contextlib.closing(admin(broker.url)) as cluster:
        cluster.create_acls([ACL("User:alice", "*", each, ACLPermissionType.ALLOW, resource) for each in operations])
        given = ACLFilter("User:alice", "*", ACLOperation.ANY, ACLPermissionType.ALLOW, resource)
        wait_until(
            lambda: set(operations) <= {each.operation for each in cluster.describe_acls(given)[0]}, "the broker to know these rights"
        )


class User:
    """One broker, one topic, and everything that a test opens there."""

    def __init__(self, url: str, partitions: int = 1, *, create: bool = True, **options: Any) -> None:
        self.url = url
        self.topic = named("topic")
        self.group = named("group")
        self.outcomes: list[Outcome] = []
        self._options = options
        self._opened: list[KafkaSource | KafkaSink | ApartSource] = []
        if create:
            create_topic(url, self.topic, partitions)

    def options(self, **options: Any) -> Kafka:
        return Kafka.model_validate({"bootstrap_servers": self.url, "connection_timeout": 15} | self._options | options)

    def source(self, topic: str | None = None, **options: Any) -> KafkaSource:
        source = adapter.source(self.options(**options), Endpoint(topic=topic or self.topic, group=self.group))
        self._opened.append(source)
        source.connect()
        return source

    def apart(self) -> ApartSource:
        """The same in a process of its own, connected."""
        source = ApartSource(Setup("kafka", self.options(), Endpoint(topic=self.topic, group=self.group), Logs(), frozenset()), "test")
        self._opened.append(source)
        source.connect()
        return source

    def sink(self, **options: Any) -> KafkaSink:
        sink = adapter.sink(self.options(**options))
        self._opened.append(sink)
        sink.connect(self.outcomes.extend)
        return sink

    def producer(self, **configs: Any) -> Any:
        return contextlib.closing(KafkaProducer(bootstrap_servers=self.url, enable_idempotence=True, **configs))

    def send(self, *values: bytes, topic: str | None = None, **rest: Any) -> None:
        """Send records as any client does."""
        with self.producer() as producer:
            for value in values:
                producer.send(topic or self.topic, value, **rest)
            producer.flush(20)

    def committed(self) -> dict[int, int]:
        """The offsets that the group has committed, by partition."""
        with contextlib.closing(KafkaConsumer(bootstrap_servers=self.url, group_id=self.group)) as consumer:
            found = {number: consumer.committed(TopicPartition(self.topic, number)) for number in consumer.partitions_for_topic(self.topic)}
        return {number: offset for number, offset in found.items() if offset is not None}

    def read(self, count: int, topic: str | None = None) -> list[Any]:
        """That many records of a topic, as any client gets them, partition by partition in order."""
        records: list[Any] = []
        with contextlib.closing(KafkaConsumer(bootstrap_servers=self.url, auto_offset_reset="earliest")) as consumer:
            consumer.assign([TopicPartition(topic or self.topic, number) for number in consumer.partitions_for_topic(topic or self.topic)])
            deadline = time.monotonic() + 60
            while len(records) < count:
                assert time.monotonic() < deadline, f"{len(records)} of {count} records came"
                for fetched in consumer.poll(200).values():
                    records += fetched
        return records

    def words(self, count: int, timeout: float = 60) -> dict[str, str]:
        """The outcome of each tag, when that many have come."""
        return words(self.outcomes, count, timeout)

    def close(self) -> None:
        for opened in self._opened:
            opened.close()
            if isinstance(opened, ApartSource):
                opened.end()


def out(
    tag: str, address: str, body: bytes | None = b"", properties: Properties = NO_PROPERTIES, key: bytes | None = None, **headers: Any
) -> Outgoing:
    table = message(b"", headers).headers
    return Outgoing(tag.encode(), address, Message(body, table, properties, key))


def receive(source: KafkaSource | ApartSource, count: int, *, ack: bool = True) -> list[Received]:
    """That many messages; acknowledged batch by batch."""
    messages: list[Received] = []
    deadline = time.monotonic() + 60
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages came"
        batch = source.receive(min(500, count - len(messages)), 0.5)
        if batch is not None:
            messages += batch.messages
            if ack:
                batch.ack()
    return messages


def bodies(messages: Sequence[Received]) -> list[str]:
    return [(one.message.body or b"").decode() for one in messages]


class Intake(threading.Thread):
    """A bridge's intake: receives, stores (which takes `pace` seconds), acknowledges, until it is stopped.

    Where a connection is lost it connects again, and recognises what it has, as the bridge does.
    """

    def __init__(self, source: KafkaSource, limit: int = 50, pace: float = 0.005) -> None:
        super().__init__(daemon=True)
        self.stored: list[bytes] = []
        self._source = source
        self._limit = limit
        self._pace = pace
        self._known: set[bytes] = set()
        self._stop_asked = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._stop_asked.is_set():
            try:
                self._take()
            except NotConnected:
                self._known = set(self.stored)
                self._stop_asked.wait(0.1)
                with contextlib.suppress(NotConnected):
                    self._source.connect()

    def _take(self) -> None:
        batch = self._source.receive(self._limit, 0.1)
        if batch is not None:
            self._stop_asked.wait(self._pace)
            self.stored += [one.token for one in batch.messages if one.token not in self._known]
            batch.ack()

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


def slowest_of_others(user: User, sink: KafkaSink, until: str) -> float:
    """The longest (s) that another topic's message took, for four seconds and until there is an outcome for `until`."""

    def heard(tag: str) -> bool:
        return any(each == tag.encode() for each, _ in user.outcomes)

    began, slowest = time.monotonic(), 0.0
    while time.monotonic() - began < 4 or not heard(until):
        tag, at = named("other"), time.monotonic()
        sink.publish([out(tag, user.topic)])
        wait_until(partial(heard, tag), "another topic's message to be confirmed")
        slowest = max(slowest, time.monotonic() - at)
    return slowest
