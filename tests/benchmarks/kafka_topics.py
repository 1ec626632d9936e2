"""Kafka's topics under measurement."""

from __future__ import annotations

import contextlib
import secrets
from typing import Any

from brokers import kafka
from kafka import KafkaConsumer, TopicPartition

from delaybridge.adapters.base import Sink
from delaybridge.adapters.kafka import Kafka, adapter

from .kafka_ends import ENDS
from .places import Places

PARTITIONS = 4


class Topics(Places):
    """Topics of four partitions."""

    name = "Kafka"
    relay = "kafka_relay.py"
    ends = ENDS

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.broker = {"type": "kafka", "bootstrap_servers": url}
        self._consumer = KafkaConsumer(bootstrap_servers=url)

    def close(self) -> None:
        self._consumer.close()

    def empty(self, *names: str) -> None:
        with contextlib.closing(kafka.admin(self.url)) as client:
            there = set(client.list_topics())
        for name in names:
            if name in there:
                kafka.delete_topic(self.url, name)
            kafka.create_topic(self.url, name, PARTITIONS)

    def depth(self, name: str) -> int:
        partitions = self._consumer.partitions_for_topic(name) or ()
        return sum(self._consumer.end_offsets([TopicPartition(name, number) for number in partitions]).values())

    def sink(self) -> Sink:
        return adapter.sink(Kafka(bootstrap_servers=self.url))

    def route(self, source: str, destination: str) -> dict[str, Any]:
        """With a group of its own each time: a topic that was made again begins at 0."""
        start = {"broker": "bench", "topic": source, "group": secrets.token_hex(8)}
        return {"name": "bench", "from": start, "to": {"broker": "bench", "address": destination}}
