"""A Kafka that test files share, one after the other, while it is as good as new."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import confluent_kafka

from brokers import kafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

YOUNG = 300.0
"""Seconds. One that had served for a quarter of an hour, with a thousand topics, answered nobody for a minute now and then."""

FEW = 300
"""Topics."""


def topics(url: str) -> float:
    """How many it has: very many where it does not say."""
    try:
        return kafka.topics(url, within=10)
    except confluent_kafka.KafkaException:
        return float("inf")


class Lasting:
    """It is replaced where it has run for long, holds much, or was restarted. `close` ends it."""

    def __init__(
        self,
        start: Callable[[], AbstractContextManager[kafka.Broker]] = kafka.start,
        clock: Callable[[], float] = time.monotonic,
        count: Callable[[str], float] = topics,
    ) -> None:
        self._start, self._clock, self._count = start, clock, count
        self._running = ExitStack()
        self._broker: kafka.Broker | None = None
        self._began = 0.0

    @contextmanager
    def serving(self) -> Iterator[kafka.Broker]:
        """One for a file of tests. Raises Unavailable."""
        yield self.get()
        self.spare()

    def get(self) -> kafka.Broker:
        """One that serves. Raises Unavailable."""
        self.spare()
        if self._broker is None:
            self._broker = self._running.enter_context(self._start())
            self._began = self._clock()
        return self._broker

    def spare(self) -> None:
        """End it, unless it is as good as new."""
        if self._broker is not None and not self._fresh(self._broker):
            self.close()

    def _fresh(self, broker: kafka.Broker) -> bool:
        if not broker.restartable:
            return True
        once = getattr(broker, "starts", 0) == 1  # a container does not count them
        return once and self._clock() - self._began < YOUNG and self._count(broker.url) < FEW

    def close(self) -> None:
        self._broker = None
        self._running.close()
