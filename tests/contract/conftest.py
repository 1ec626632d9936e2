"""The stores that every sentence about stores is tried on. A new kind of store is one more entry in STORES."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from brokers.kafka import create_topic

from contract.level_queues import Stepped
from contract.levels_on_brokers import OnBroker, Setting
from contract.stores import partition_of
from delaybridge.core.store import Store
from delaybridge.core.time_index import TimeIndex

if TYPE_CHECKING:
    from collections.abc import Iterator


def _time_index(request: pytest.FixtureRequest, path: Path) -> Callable[[], Store]:
    del request
    return lambda: TimeIndex(
        path, bridge="test", memory_ms=3_600_000, recent_tokens=10, min_free_disk=0, reserve_bytes=0, partition_of=partition_of
    )


def _level_queues(request: pytest.FixtureRequest, path: Path) -> Callable[[], Store]:
    del request
    return lambda: Stepped(path)


def _on_broker(request: pytest.FixtureRequest, path: Path, broker: dict[str, Any], door: str = "") -> Callable[[], Store]:
    setting = Setting(broker, door, path)
    request.addfinalizer(setting.clear)
    return lambda: OnBroker(setting)


def _on_rabbitmq(request: pytest.FixtureRequest, path: Path) -> Callable[[], Store]:
    return _on_broker(request, path, {"type": "rabbitmq", "url": request.getfixturevalue("rabbitmq").url})


def _on_kafka(request: pytest.FixtureRequest, path: Path) -> Callable[[], Store]:
    url, door = request.getfixturevalue("kafka").url, f"contract-{secrets.token_hex(6)}"
    create_topic(url, door)
    return _on_broker(request, path, {"type": "kafka", "bootstrap_servers": url, "level_partitions": 3}, door)


def _on_activemq(request: pytest.FixtureRequest, path: Path) -> Callable[[], Store]:
    return _on_broker(request, path, {"type": "activemq", "url": request.getfixturevalue("activemq").url})


STORES: dict[str, Callable[[pytest.FixtureRequest, Path], Callable[[], Store]]] = {
    "time_index": _time_index,
    "level_queues": _level_queues,
    "level_queues_rabbitmq": _on_rabbitmq,
    "level_queues_kafka": _on_kafka,
    "level_queues_activemq": _on_activemq,
}


LARGEST = {"level_queues_activemq": 8 << 20}
"""What a broker of the tests takes, in bytes, where that is not enough: ActiveMQ runs in 384 MB here."""


@pytest.fixture(params=STORES)
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Opens the test's store; opening it again closes it first, as a restart does."""
    if LARGEST.get(request.param, sys.maxsize) < request.node.callspec.params.get("size", 0):
        pytest.skip("the tests' broker has not enough memory")
    opened: list[Store] = []
    opening = STORES[request.param](request, tmp_path / "store")

    def open_it() -> Store:
        if opened:
            opened.pop().close()
        opened.append(opening())
        return opened[0]

    yield open_it
    opened.pop().close()


@pytest.fixture
def store(open_store: Callable[[], Store]) -> Store:
    """An empty store."""
    return open_store()
