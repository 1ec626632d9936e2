"""How often a Kafka source asks its broker while nothing is in a hurry."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from unit.kafka.poller import client, poller_on

from delaybridge.adapters.base import Gathering, Received
from delaybridge.adapters.kafka import Endpoint, Kafka, adapter
from delaybridge.adapters.kafka.level_queues.joined import JoinedSource
from delaybridge.adapters.kafka.sources.source import KafkaSource
from delaybridge.core.message import Message

PARTITION = TopicPartition("t", 0)


class Consumer:
    """Answers each fetch with so many records."""

    def __init__(self, count: int, body: bytes) -> None:
        self.config = {"group_id": None, "session_timeout_ms": 10_000}
        self._client = client()
        self._coordinator = SimpleNamespace(_join_task=None)
        self._records = [Received(Message(body), "t", bytes(24))] * count

    def assignment(self) -> set[TopicPartition]:
        return {PARTITION}

    def poll(self, **_: Any) -> dict[TopicPartition, list[Received]]:
        return {PARTITION: self._records} if self._records else {}


def pauses(count: int, body: bytes = b"", *, calm: bool = True, kind: type[KafkaSource] = KafkaSource, prefetch: int = 2000) -> list[float]:
    """For how long a source's thread waits after a fetch of so many records."""
    poller = poller_on(Consumer(count, body), prefetch)
    waited: list[float] = []
    poller._stopping = SimpleNamespace(wait=waited.append)  # type: ignore[assignment]
    source = kind.__new__(kind)
    source._poller = poller
    source.gather(calm=calm)
    poller._poll()
    assert poller.inbox.take(10_000, 0, lambda _, number: number)[1] == (count or None)
    return waited


@pytest.mark.parametrize(("kind", "seconds"), [(KafkaSource, 0.03), (JoinedSource, 0.1)])
def test_after_a_fetch_of_little_a_calm_source_waits_for_what_comes_meanwhile(kind: type[KafkaSource], seconds: float) -> None:
    assert pauses(1, kind=kind) == [seconds]
    assert pauses(499, kind=kind) == [seconds]


def test_where_anything_may_be_in_a_hurry_it_asks_again_at_once() -> None:
    assert pauses(1, calm=False) == []


@pytest.mark.parametrize(("count", "size", "prefetch"), [(500, 0, 2000), (20, 0, 20), (4, 64 << 10, 2000), (1, 1 << 20, 2000)])
def test_a_flood_is_fetched_as_fast_as_it_comes(count: int, size: int, prefetch: int) -> None:
    """A fetch brings no more than `prefetch` records, and one MiB of each partition: few of a flood of large ones."""
    assert pauses(count, bytes(size), prefetch=prefetch) == []


def test_what_comes_to_a_quiet_topic_is_fetched_at_once() -> None:
    assert pauses(0) == []


def test_a_source_that_is_not_connected_can_be_told_too() -> None:
    source = adapter.source(Kafka(bootstrap_servers="127.0.0.1:1"), Endpoint(topic="t"))
    assert isinstance(source, Gathering)
    source.gather(calm=True)
