"""Where a daemon's messages wait: what is said of a message's way holds for each of these places.

The fixture `waiting` (conftest.py) is one of STORES. A test that is about something else stays with the time index, and says why at its mark.
"""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from brokers.level_queues import remove

STORES = ("time_index", "rabbitmq", "kafka", "activemq")
"""The time index, and the brokers that hold level queues."""

LEVELS = "100ms 300ms 1s 5s"
"""Short ones, so that a delay is several hops."""


def in_time_index(why: str, *others: str) -> pytest.MarkDecorator:
    """For a test that is not tried in level queues, or in `others` only; `why` is for the reader."""
    del why
    return pytest.mark.parametrize("waiting", ["time_index", *others], indirect=True)


class Waiting:
    """One of STORES. `broker` is the section of a broker of that type, for a daemon that has none; `close` takes the level queues away."""

    def __init__(self, kind: str, broker: dict[str, Any]) -> None:
        self.kind = kind
        self._broker = broker
        self._used: list[tuple[dict[str, Any], str]] = []

    def __call__(self, config: dict[str, Any]) -> dict[str, Any]:
        """The configuration with messages waiting here, in queues that no other daemon has."""
        if self.kind == "time_index":
            return config
        brokers = dict(config["brokers"])
        name = next((name for name, broker in brokers.items() if broker["type"] == self.kind), "levels")
        brokers[name] = _lasting(brokers.get(name) or self._broker)
        prefix = f"levels-{secrets.token_hex(4)}"
        self._used.append((brokers[name], prefix))
        store = {"kind": "level_queues", "broker": name, "prefix": prefix}
        return config | {"brokers": brokers, "store": store, "limits": config.get("limits", {}) | {"levels": LEVELS}}

    def close(self) -> None:
        for broker, prefix in self._used:
            remove(broker, prefix, LEVELS)


def _lasting(broker: dict[str, Any]) -> dict[str, Any]:
    """A bridge that was killed need not wait on Kafka until its ghost has left the group."""
    return broker | ({"level_instance": "the-one", "level_partitions": 3} if broker["type"] == "kafka" else {})
