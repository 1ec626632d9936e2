"""The raw relay on Kafka: plain kafka-python, topic to topic, no store. See relay.py.

A consumer in a group, up to 2,000 records a poll; one idempotent producer, batches of 256 KiB, 5 ms of linger; a poll's offsets are committed when all of
it is confirmed, while up to three later polls are under way.

`python kafka_relay.py SERVERS SOURCE DESTINATION` runs until it is killed.
"""

from __future__ import annotations

import secrets
import sys
from collections import deque
from typing import Any, NamedTuple

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

POLL = 2000
UNDER_WAY = 4


class Portion(NamedTuple):
    """What one poll gave: its publications, and the offsets behind it."""

    futures: list[Any]
    offsets: dict[TopicPartition, OffsetAndMetadata]

    def finish(self, consumer: KafkaConsumer) -> None:
        """Wait until it is confirmed, then commit. Raises what went wrong."""
        for future in self.futures:
            future.get(30)
        consumer.commit_async(self.offsets)


def relay(servers: str, source: str, destination: str) -> None:
    consumer = KafkaConsumer(
        source, bootstrap_servers=servers, group_id=f"relay-{secrets.token_hex(8)}", auto_offset_reset="earliest", enable_auto_commit=False,
        isolation_level="read_committed", max_poll_records=POLL, max_partition_fetch_bytes=4 << 20, metrics_enabled=False,
    )  # fmt: skip
    producer = KafkaProducer(
        bootstrap_servers=servers, enable_idempotence=True, acks="all", batch_size=256 << 10, linger_ms=5, metrics_enabled=False
    )
    portions: deque[Portion] = deque()
    while True:
        polled = consumer.poll(timeout_ms=5 if portions else 1000)
        if polled:
            portions.append(passed_on(producer, destination, polled))
        while portions and (len(portions) == UNDER_WAY or not polled or portions[0].futures[-1].is_done):
            portions.popleft().finish(consumer)


def passed_on(producer: KafkaProducer, destination: str, polled: dict[TopicPartition, list[Any]]) -> Portion:
    """Publish all that a poll gave, as it came."""
    futures = [producer.send(destination, record.value, record.key, record.headers) for records in polled.values() for record in records]
    return Portion(futures, {partition: OffsetAndMetadata(records[-1].offset + 1, "", -1) for partition, records in polled.items()})


if __name__ == "__main__":
    relay(*sys.argv[1:])
