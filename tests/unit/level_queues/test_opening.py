"""A bridge that has just started: it takes no messages before it has read what the log of ids says, as another one could deliver them meanwhile."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from brokers.common import wait_until
from contract.stores import T0

from delaybridge.adapters.base import NotConnected
from delaybridge.adapters.memory import MemoryIdLog, broker
from delaybridge.bridge.config import Config
from delaybridge.bridge.engine import Engine
from delaybridge.bridge.level_queues.build import Assembled
from delaybridge.bridge.level_queues.ids.lines import claiming
from delaybridge.bridge.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from delaybridge.adapters.id_log import Line

LINES = [claiming(name, name.encode() * 8, T0, T0) for name in "abc"]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Of a bridge in whose log of ids something stands already; not started."""
    name = str(tmp_path)
    broker(name).append("delaybridge.level.ids", LINES)
    made = Engine(
        Config.model_validate({
            "store": {"kind": "level_queues", "broker": "here", "path": tmp_path},
            "limits": {"levels": "1s 1m"},
            "brokers": {"here": {"type": "memory", "name": name}},
            "routes": [{"name": "jobs", "from": {"broker": "here", "queue": "in"}, "to": {"broker": "here", "address": "out"}}],
        }),
        lambda: T0, Metrics("0"), lambda *_: None,
    )  # fmt: skip
    yield made
    made.drain(5)


def takes(engine: Engine) -> list[bool]:
    """Whether its route and its levels are connected."""
    assert isinstance(engine.queues, Assembled)
    return [worker.connected for worker in (*engine.intakes.values(), *engine.queues.levels)]


def test_while_it_reads_the_log_of_ids_it_takes_no_messages(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, goes_on, reads = threading.Event(), threading.Event(), MemoryIdLog.read

    def slow(self: MemoryIdLog, timeout: float) -> tuple[int, list[tuple[int, Line]]]:
        asked.set()
        return reads(self, timeout) if goes_on.wait(timeout) else (0, [])

    monkeypatch.setattr(MemoryIdLog, "read", slow)
    engine.start()
    assert asked.wait(10)
    assert {level.error for level in engine.queues.status()} == {"waits for the log of ids: 0 of 3 lines are read"}
    assert takes(engine) == [False] * 4
    assert [intake.error for intake in engine.intakes.values()] == ["the store does not take messages yet"]

    goes_on.set()

    wait_until(lambda: all(takes(engine)), "the bridge to take messages")
    assert [intake.error for intake in engine.intakes.values()] == [""]


@pytest.mark.parametrize("what", ["connect", "end", "read"])
def test_where_the_log_cannot_be_read_it_takes_them_all_the_same(engine: Engine, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Not every message has an id."""

    def fails(*_: object) -> None:
        raise NotConnected("it is not there")

    monkeypatch.setattr(MemoryIdLog, what, fails)
    engine.start()
    wait_until(lambda: all(takes(engine)), "the bridge to take messages")


def test_one_that_is_stopped_while_it_reads_the_log_has_taken_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def never(_: MemoryIdLog, timeout: float) -> tuple[int, list[tuple[int, Line]]]:
        asked.set()
        threading.Event().wait(timeout)
        return 0, []

    monkeypatch.setattr(MemoryIdLog, "read", never)
    engine.start()
    assert asked.wait(10)
    assert engine.drain(5)
    assert takes(engine) == [False] * 4
