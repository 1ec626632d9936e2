"""A bridge that had a time index, and has level queues now, under the same `store.path`; and one that goes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract.stores import T0, record

from delaybridge.adapters.base import Received
from delaybridge.bridge.config import Config
from delaybridge.bridge.engine import Engine, open_journal
from delaybridge.bridge.intake.redeliveries import Redeliveries
from delaybridge.bridge.metrics import Metrics
from delaybridge.core.message import Message
from delaybridge.core.store import Put, SourceProgress

if TYPE_CHECKING:
    from pathlib import Path

    from delaybridge.core.store import Store

TOKENS = [b"one", b"two"]


def configured(path: Path, kind: str, **store: str) -> Config:
    brokers = {"rabbit": {"type": "rabbitmq", "url": "amqp://127.0.0.1:1"}, "active": {"type": "activemq", "url": "stomp://127.0.0.1:1"}}
    routes = [{"name": name, "from": {"broker": name, "queue": "in"}, "to": {"broker": name, "address": "out"}} for name in brokers]
    return Config.model_validate({"store": {"kind": kind, "path": path} | store, "brokers": brokers, "routes": routes})


@pytest.fixture
def before(tmp_path: Path) -> Config:
    """What has taken in two messages of each route."""
    config = configured(tmp_path, "time_index")
    index = open_journal(config)
    for source in ("rabbit", "active"):
        index.put([Put(record()), Put(record())], T0, SourceProgress(source, TOKENS))
    index.close()
    return config


def engine(config: Config) -> Engine:
    return Engine(config, lambda: T0, Metrics("0"), lambda *_: None)


def suppressed(store: Store, source: str) -> list[bytes]:
    """Of messages that look like those, and that the bridge has not seen yet, what is taken for stored."""
    redeliveries = Redeliveries(exact=False)
    redeliveries.begin(store.came(source))
    prefetched = [Received(Message(token), "", token, redelivered=True) for token in TOKENS]
    fresh = redeliveries.fresh(prefetched)
    return [each.token for each in prefetched if each not in fresh]


def test_what_looks_like_a_message_that_the_time_index_took_in_from_rabbitmq_is_taken_in(before: Config, tmp_path: Path) -> None:
    made = engine(configured(tmp_path, "level_queues", broker="rabbit"))
    assert suppressed(made.store, "rabbit") == []
    made.store.close()

    back = engine(before)
    assert suppressed(back.store, "rabbit") == [], "it has not seen what came meanwhile"
    back.store.close()


def test_what_a_broker_names_one_by_one_is_known_to_both(before: Config, tmp_path: Path) -> None:
    for config in (configured(tmp_path, "level_queues", broker="rabbit"), before):
        made = engine(config)
        assert made.store.came("active").tokens == TOKENS
        made.store.close()
