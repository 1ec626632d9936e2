"""An ordinary producer and consumer on Kafka: librdkafka's, as it comes.

Most of Kafka's clients are it or Java's, which waits for 5 ms for more to send, too. One in Python would take a core of the two from what is measured.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from .traffic import Arrival, Ends, Traffic, asking, paced

FLUSHED = 30.0
"""Seconds within which all that was sent is taken."""


def produce(servers: str, topic: str, traffic: Traffic, stop: Path) -> tuple[int, float]:
    producer = Producer({"bootstrap.servers": servers})
    producer.list_topics(topic)  # which takes its time, once

    def send(body: bytes, delay: int) -> None:
        name, value = asking(delay)
        producer.produce(topic, body, headers=[(name, b"%d" % value)])

    sent = paced(traffic, stop, send, producer.poll)
    left = producer.flush(FLUSHED)
    assert not left, f"{left} messages were not taken within {FLUSHED:g} s"
    return sent


def consume(servers: str, topic: str, traffic: Traffic) -> list[Arrival]:
    gc.disable()  # see `paced`
    arrivals: list[Arrival] = []
    with consumer(servers, topic) as records:
        while len(arrivals) < traffic.count and (record := records.poll(traffic.patience)) is not None:
            now = time.time_ns() / 1_000_000
            assert record.error() is None, record.error()
            due = int(dict(record.headers() or ())["x-delay-due"])
            arrivals.append((due, now - due))
    return arrivals


@contextlib.contextmanager
def consumer(servers: str, topic: str) -> Iterator[Any]:
    """Of all that was committed there, from its beginning."""
    opened = Consumer({"bootstrap.servers": servers, "group.id": "bench", "isolation.level": "read_committed", "enable.auto.commit": False})
    try:
        partitions = opened.list_topics(topic).topics[topic].partitions
        opened.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        yield opened
    finally:
        opened.close()


ENDS = Ends(produce, consume)
