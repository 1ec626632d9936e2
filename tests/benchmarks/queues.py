"""Queues of the broker under measurement: made, filled and watched from outside the bridge."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Self

import pika
from brokers.rabbitmq import wait_until
from pydantic import SecretStr

from delaybridge.adapters.base import Outcome, Outgoing
from delaybridge.adapters.rabbitmq import RabbitMQ, adapter
from delaybridge.core.message import Message

WATCH_EVERY = 0.02
STALLED_AFTER = 60.0


class Queues:
    """Durable classic queues, over one connection that nobody has to attend to."""

    def __init__(self, url: str) -> None:
        self.url = url
        parameters = pika.URLParameters(url)
        parameters.heartbeat = 0
        self._connection = pika.BlockingConnection(parameters)
        self._channel = self._connection.channel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def empty(self, *names: str) -> None:
        """Have these queues, with nothing in them."""
        for name in names:
            self._channel.queue_delete(name)
            self._channel.queue_declare(name, durable=True)

    def depth(self, name: str) -> int:
        """Messages ready in a queue."""
        count: int = self._channel.queue_declare(name, passive=True).method.message_count
        return count

    def load(self, name: str, messages: Sequence[Message]) -> None:
        """Publish with confirms, as fast as it goes."""
        window = threading.Semaphore(4000)

        def confirmed(outcomes: Sequence[Outcome]) -> None:
            for _, error in outcomes:
                assert error is None, error
                window.release()

        sink = adapter.sink(RabbitMQ(url=SecretStr(self.url)))
        sink.connect(confirmed)
        try:
            for start in range(0, len(messages), 500):
                batch = messages[start : start + 500]
                for _ in batch:
                    window.acquire()
                sink.publish([Outgoing(b"", name, message) for message in batch])
            for _ in range(4000):
                window.acquire()
        finally:
            sink.close()

    def speed(self, passed: Callable[[], int], count: int) -> float:
        """Messages per second while `passed` rises from a tenth of `count` to nineteen twentieths, so that start and end do not tell."""
        marks = []
        low, high = count // 10, count * 19 // 20
        last, moved_at = -1, time.monotonic()
        while True:
            now, number = time.monotonic(), passed()
            if number != last:
                last, moved_at = number, now
            elif now - moved_at > STALLED_AFTER:
                raise RuntimeError(f"nothing moved for {STALLED_AFTER} s at {number} of {count} messages")
            if low <= number:
                marks.append((now, number))
            if number >= high:
                return (number - marks[0][1]) / (now - marks[0][0])
            time.sleep(WATCH_EVERY)

    def wait_for(self, name: str, count: int) -> None:
        """Wait until so many messages are ready in a queue."""
        wait_until(lambda: self.depth(name) >= count, f"{count} messages in {name}", STALLED_AFTER)
