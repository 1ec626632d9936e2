"""A probe: a delayed message of our own through each ingress topic into the running bridge, which takes it to a topic of our own."""

from __future__ import annotations

import contextlib
import secrets
import time
from typing import TYPE_CHECKING, Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from ..probes import DELAY, NAME, PATIENCE, ends, judged
from .link import Caught

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..preparing import Finding
    from .cluster import Cluster
    from .options import Kafka

_EARLY = "look whether something besides the bridge reads it"


def probe(options: Kafka, cluster: Cluster, topics: Sequence[str]) -> list[Finding]:
    """One finding for each of these ingress topics. The topic for the answers is deleted at the end, and a probe that comes later expires."""
    own = NAME + secrets.token_hex(8)
    cluster.create(own, 1, -1, {"retention.ms": "3600000"})
    try:
        with _consumer(options, own) as consumer:
            sent = _sent(options, own, topics)
            came = _came(consumer, len(topics))
        return [
            judged(f"topic `{topic}`", None if topic not in came else (came[topic] - sent[topic]) * 1000 - DELAY, _EARLY)
            for topic in topics
        ]
    finally:
        cluster.delete(own)


@contextlib.contextmanager
def _consumer(options: Kafka, topic: str) -> Iterator[Any]:
    caught = Caught()
    try:
        consumer = KafkaConsumer(**options.waiting_client("doctor"), kafka_client=caught)
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        yield consumer
        consumer.close()
    finally:
        caught.close()


def _sent(options: Kafka, to: str, topics: Sequence[str]) -> dict[str, float]:
    """Send one through each; the key says which. The monotonic time of each.

    The producer ends first, also where nothing can be sent: its thread uses the client, and would make another error of why.
    """
    caught, ended = Caught(), {"delivery_timeout_ms": int(options.delivery_timeout * 1000)}
    headers = [("x-delay", b"%d" % DELAY), ("x-delay-to", to.encode()), ("x-delay-ends", b"%d" % ends())]
    sent = {}
    try:
        with contextlib.closing(KafkaProducer(**options.waiting_client("doctor") | ended, kafka_client=caught, acks="all")) as producer:
            for topic in topics:
                sent[topic] = time.monotonic()
                producer.send(topic, b"delaybridge doctor", topic.encode(), headers).get(options.delivery_timeout)
        return sent
    finally:
        caught.close()


def _came(consumer: Any, count: int) -> dict[str, float]:
    came: dict[str, float] = {}
    deadline = time.monotonic() + PATIENCE
    while len(came) < count and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=100).values():
            for record in records:
                came.setdefault(record.key.decode(), time.monotonic())
    return came
