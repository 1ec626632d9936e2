"""Bridges that move exactly once between levels and topics of one Kafka, and what a consumer sees of it."""

from __future__ import annotations

import contextlib
import secrets
import time
from typing import TYPE_CHECKING

from brokers.common import wait_until
from brokers.kafka import create_topic
from kafka import KafkaConsumer, TopicPartition

from contract.kafka_user import named, receive
from contract.outcomes import word
from contract.test_kafka_levels import Levels
from delaybridge.adapters.kafka import adapter
from delaybridge.adapters.kafka.cluster.transactions import Transactions
from delaybridge.adapters.moves import Move
from delaybridge.core.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from delaybridge.adapters.base import Outcome, Received, Source
    from delaybridge.adapters.kafka.level_queues.transactional import KafkaMover, KafkaTransactionalLevels


KINDS = ("as the cluster can", "as before Kafka 4")
"""Of transactions, see adapters/kafka/transactions/implicit.py."""

ENDING = 5.0
"""Seconds that the end of a transaction may take to be written everywhere."""


def moving(transactional: KafkaTransactionalLevels) -> KafkaMover:
    mover = transactional.mover()
    assert mover is not None
    return mover


class Bridge:
    """One bridge, as far as moves need it, on levels that others share."""

    def __init__(self, levels: Levels, name: str = "", **options: str | float) -> None:
        self.transactional = transactional = adapter.transactional_levels(levels.user.options(**options), levels.levels, name)
        self.outcomes: list[Outcome] = []
        self.source: Source = transactional.source(levels.levels[0])
        self.mover = moving(transactional)
        self.connect()

    def move(self, messages: list[Received], address: str, *more: tuple[str, Message], size: int = 0) -> None:
        self.mover.move(self.moves(messages, address, *more, size=size))

    @staticmethod
    def moves(messages: list[Received], address: str, *more: tuple[str, Message], size: int = 0) -> list[Move]:
        """Each message to an address, with so many bytes more, and to where else."""
        return [
            Move(
                one.token,
                ((address, Message((one.message.body or b"") + secrets.token_bytes(size), key=one.message.key)), *more),
                one.token,
            )
            for one in messages
        ]

    def words(self, count: int, timeout: float = 60) -> list[str]:
        """What became of the next so many."""
        wait_until(lambda: len(self.outcomes) >= count, f"{count} outcomes", timeout)
        found = [word(error) for _, error in self.outcomes]
        self.outcomes.clear()
        return found

    def connect(self) -> None:
        self.source.connect()
        self.mover.connect(self.outcomes.extend)

    def close(self) -> None:
        self.source.close()
        self.mover.close()


class World:
    def __init__(self, url: str) -> None:
        self.levels = Levels(url, 0).apply()
        self.destination = named("out")
        create_topic(url, self.destination)
        self.url = url
        self._bridges: list[Bridge] = []

    def bridge(self, name: str = "", **options: str | float) -> Bridge:
        self._bridges.append(Bridge(self.levels, name, **options))
        return self._bridges[-1]

    def read(self, topic: str = "", timeout: float = 60) -> list[str]:
        """What a consumer sees that reads what is committed."""
        consumer = KafkaConsumer(bootstrap_servers=self.url, isolation_level="read_committed")
        partition = TopicPartition(topic or self.destination, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        self._wait_for_ends(consumer, partition)
        found, end, deadline = [], consumer.end_offsets([partition])[partition], time.monotonic() + timeout
        while consumer.position(partition) < end and time.monotonic() < deadline:
            found += [one.value.decode() for records in consumer.poll(100).values() for one in records]
        consumer.close()
        return found

    def _wait_for_ends(self, consumer: KafkaConsumer, partition: TopicPartition) -> None:
        """Kafka says that a transaction has ended before all of its partitions say so. One that stays open is not waited for."""
        with contextlib.closing(KafkaConsumer(bootstrap_servers=self.url)) as other:
            written, deadline = other.end_offsets([partition])[partition], time.monotonic() + ENDING
        while consumer.end_offsets([partition])[partition] < written and time.monotonic() < deadline:
            time.sleep(0.05)

    def close(self) -> None:
        for bridge in self._bridges:
            bridge.close()
        self.levels.close()


@contextlib.contextmanager
def world_with(kind: str, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Bridges with one of KINDS."""
    if kind == "as before Kafka 4":
        monkeypatch.setattr(Transactions, "implicit", lambda _: False)
    with contextlib.closing(World(url)) as made:
        yield made


def taken(bridge: Bridge, count: int) -> list[Received]:
    return receive(bridge.source, count)  # type: ignore[arg-type]
