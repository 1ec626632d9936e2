"""Producers and consumers of Kafka, on kafka-python."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, ClassVar

from brokers.kafka import create_topic
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from crash.traffic import BURST, Consumer, Ends, Producer, now_ms
from delaybridge.adapters.kafka.link import TIDY

if TYPE_CHECKING:
    import random

PARTITIONS = 3


class KafkaSender(Producer):
    """Publishes to a topic. It never tries again, so that no duplicate is its own."""

    GONE: ClassVar = (KafkaError, OSError)

    def __init__(self, url: str, topic: str, rng: random.Random, rate: int) -> None:
        super().__init__(rng, rate)
        self._url, self._topic = url, topic

    def work(self) -> None:
        limits = {"request_timeout_ms": 4000, "delivery_timeout_ms": 5000, "max_block_ms": 1000, "bootstrap_timeout_ms": 5000}
        limits["reconnect_backoff_max_ms"] = 500
        producer = KafkaProducer(bootstrap_servers=self._url, acks="all", enable_idempotence=False, retries=0, **TIDY, **limits)
        try:
            while not self.stopping.wait(BURST):
                for _ in range(self.burst):
                    self._publish(producer)
            producer.flush(20)
        finally:
            producer.close(5)

    def _publish(self, producer: Any) -> None:
        number, asked = self.ask()
        headers = [(name, str(value).encode()) for name, value in asked.items()]
        producer.send(self._topic, str(number).encode(), headers=headers).add_callback(lambda _: self.confirmed.add(number))


class KafkaReader(Consumer):
    """Reads from its beginning what is committed of a topic."""

    GONE: ClassVar = (KafkaError, OSError)
    LIMITS: ClassVar[dict[str, Any]] = {"bootstrap_timeout_ms": 5000, "reconnect_backoff_max_ms": 500, "isolation_level": "read_committed"}

    def __init__(self, url: str, topic: str) -> None:
        super().__init__(topic)
        self._url = url
        self._next = {TopicPartition(topic, number): 0 for number in range(PARTITIONS)}

    def work(self) -> None:
        with contextlib.closing(KafkaConsumer(bootstrap_servers=self._url, **TIDY, **self.LIMITS)) as consumer:
            consumer.assign(list(self._next))
            for partition, offset in self._next.items():
                consumer.seek(partition, offset)
            while not self.stopping.is_set() or self._behind(consumer):
                fetched = consumer.poll(timeout_ms=100)
                at = now_ms()
                for partition, records in fetched.items():
                    for record in records:
                        self.note(record.value, dict(record.headers), at, again=False)
                        self._next[partition] = record.offset + 1

    def _behind(self, consumer: Any) -> bool:
        ends = consumer.end_offsets(list(self._next))  # a transaction's marker has an offset, and is no record
        return any(consumer.position(partition) < end for partition, end in ends.items())


class KafkaEnds(Ends):
    """`instance`, so that a bridge that was killed need not wait for its own ghost to leave the group."""

    def __init__(self, broker: Any) -> None:
        super().__init__(broker)
        self._asked: Any = None

    def options(self) -> dict[str, Any]:
        return {"type": "kafka", "bootstrap_servers": self.broker.url}

    def route(self, kind: str) -> tuple[dict[str, Any], str]:
        for end in ("in", "out"):
            create_topic(self.broker.url, self._topic(kind, end), PARTITIONS)
        return {"topic": self._topic(kind, "in"), "group": self.prefix, "instance": "the-one"}, self._topic(kind, "out")

    def _topic(self, kind: str, end: str) -> str:
        return f"{self.prefix}.{kind}.{end}"

    def producer(self, kind: str, rng: random.Random, rate: int) -> KafkaSender:
        return KafkaSender(self.broker.url, self._topic(kind, "in"), rng, rate)

    def consumer(self, kind: str) -> KafkaReader:
        return KafkaReader(self.broker.url, self._topic(kind, "out"))

    def waiting(self, kind: str) -> int:
        if self._asked is None:
            self._asked = KafkaConsumer(bootstrap_servers=self.broker.url, group_id=self.prefix, **TIDY)
        partitions = [TopicPartition(self._topic(kind, "in"), number) for number in range(PARTITIONS)]
        ends = self._asked.end_offsets(partitions)
        return sum(ends[partition] - (self._asked.committed(partition) or 0) for partition in partitions)

    def close(self) -> None:
        if self._asked is not None:
            self._asked.close()
