"""How long a Kafka route into level queues waits for its transaction."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from delaybridge.adapters.base import NotConnected
from delaybridge.adapters.kafka import Kafka
from delaybridge.adapters.kafka.level_queues import joined
from delaybridge.adapters.kafka.level_queues.joined import JoinedSource
from delaybridge.adapters.kafka.sources.progress import Given
from delaybridge.adapters.kafka.sources.source import KafkaSource, Subscription


class Stuck:
    """A producer whose transaction does not end; each time that it is asked whether it still works, a second has passed."""

    def __init__(self) -> None:
        self.now = 0.0

    def check(self) -> None:
        self.now += 1

    def begin(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(("session", "waited"), [(5, 10), (10, 10), (30, 30)])
def test_it_waits_at_least_as_long_as_a_transaction_may_take(session: int, waited: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck: Any = Stuck()
    options = Kafka(bootstrap_servers="127.0.0.1:9092", session_timeout=session)
    source = KafkaSource(options, Subscription(("t",), None, "g", None))
    markers, producers = None, None
    route = JoinedSource(source, "g", markers, producers)  # type: ignore[arg-type]  # not asked for here
    route._transactor = stuck
    monkeypatch.setattr(joined, "_LOOK", 0)
    monkeypatch.setattr(joined, "time", SimpleNamespace(monotonic=lambda: stuck.now))

    with pytest.raises(NotConnected, match="did not end"):
        route._move((), Given({}, 0, b""))

    assert stuck.now == waited + 1
