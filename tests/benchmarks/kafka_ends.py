"""An ordinary producer and consumer on Kafka: plain kafka-python, as it comes."""

from __future__ import annotations

import contextlib
import gc
import time
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from .traffic import Arrival, Ends, Traffic, asking, paced


def produce(servers: str, topic: str, traffic: Traffic, stop: Path) -> tuple[int, float]:
    with contextlib.closing(KafkaProducer(bootstrap_servers=servers)) as producer:
        producer.partitions_for(topic)  # which takes its time, once

        def send(body: bytes, delay: int) -> None:
            name, value = asking(delay)
            producer.send(topic, body, headers=[(name, b"%d" % value)])

        sent = paced(traffic, stop, send)
        producer.flush()
        return sent


def consume(servers: str, topic: str, traffic: Traffic) -> list[Arrival]:
    gc.disable()  # see `paced`
    arrivals: list[Arrival] = []
    settled = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    with contextlib.closing(KafkaConsumer(bootstrap_servers=servers, **settled)) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)])
        while len(arrivals) < traffic.count and (polled := consumer.poll(timeout_ms=int(traffic.patience * 1000))):
            now = time.time_ns() / 1_000_000
            for records in polled.values():
                for record in records:
                    due = int(dict(record.headers)["x-delay-due"])
                    arrivals.append((due, now - due))
    return arrivals


ENDS = Ends(produce, consume)
