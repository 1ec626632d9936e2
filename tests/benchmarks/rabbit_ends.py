"""An ordinary producer and consumer on RabbitMQ: plain pika."""

from __future__ import annotations

import contextlib
import gc
import time
from pathlib import Path

import pika

from .traffic import Arrival, Ends, Traffic, asking, paced


def produce(url: str, queue: str, traffic: Traffic, stop: Path) -> tuple[int, float]:
    with contextlib.closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        channel = connection.channel()

        def send(body: bytes, delay: int) -> None:
            channel.basic_publish("", queue, body, pika.BasicProperties(headers=dict([asking(delay)]), delivery_mode=2))

        sent = paced(traffic, stop, send, connection.sleep)
        connection.process_data_events()
        return sent


def consume(url: str, queue: str, traffic: Traffic) -> list[Arrival]:
    gc.disable()  # see `paced`
    arrivals: list[Arrival] = []
    with contextlib.closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        for _, properties, _ in connection.channel().consume(queue, auto_ack=True, inactivity_timeout=traffic.patience):
            now = time.time_ns() / 1_000_000
            if properties is None:
                break
            due = properties.headers["x-delay-due"]
            arrivals.append((due, now - due))
            if len(arrivals) == traffic.count:
                break
    return arrivals


ENDS = Ends(produce, consume)
