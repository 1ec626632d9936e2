"""A Kafka source's poller on a consumer that a test scripts, without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from delaybridge.adapters.kafka.sources.inbox import Inbox
from delaybridge.adapters.kafka.sources.poller import Poller


def client() -> Any:
    """What stands in the consumer's `_client`: one without connections."""
    return SimpleNamespace(_manager=SimpleNamespace(_conns={}))


def poller_on(consumer: Any, prefetch: int = 10) -> Poller:
    """Not started; all topics have the same identity, and are there."""
    topics: Any = SimpleNamespace(identity=lambda _: "id", check=lambda: None)
    return Poller(consumer, Inbox(prefetch), 1.0, topics, returning=False)
