"""What level queues say of themselves: each level in `delaybridge status`, and at the start what they cannot do."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, cast

import pytest
from contract.stores import T0
from structlog.testing import capture_logs

from delaybridge.adapters.base import BackOff
from delaybridge.bridge.config import Config
from delaybridge.bridge.downtimes import DowntimeFile
from delaybridge.bridge.engine import open_journal
from delaybridge.bridge.level_queues.build import Assembled, assembled
from delaybridge.bridge.level_queues.passage import Passage
from delaybridge.bridge.level_queues.publisher import Item
from delaybridge.bridge.metrics import Metrics
from delaybridge.core.downtimes import NONE
from delaybridge.core.message import Message
from delaybridge.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from delaybridge.adapters.base import Source


class Seen:
    """A level source that lets nothing go yet, and sees when the first may."""

    def __init__(self, first_leaves: int | None) -> None:
        self.first_leaves = first_leaves


@contextlib.contextmanager
def on(broker: dict[str, str], path: Path) -> Iterator[Assembled]:
    """Level queues there, of a bridge that has not connected to anything."""
    source = "topic" if broker["type"] == "kafka" else "queue"
    config = Config.model_validate({
        "store": {"kind": "level_queues", "broker": "here", "path": path},
        "limits": {"levels": "1s 1m"},
        "brokers": {"here": broker},
        "routes": [{"name": "jobs", "from": {"broker": "here", source: "in"}, "to": {"broker": "here", "address": "out"}}],
    })  # fmt: skip
    journal = open_journal(config)
    yield assembled(
        config,
        journal,
        lambda: T0,
        DowntimeFile(config.store.path / "downtimes.json", NONE),
        Metrics("0"),
        lambda *_: None,
        lambda *_: None,
    )
    journal.close()


@pytest.fixture
def queues(tmp_path: Path) -> Iterator[Assembled]:
    with on({"type": "memory", "name": str(tmp_path)}, tmp_path) as made:
        yield made


def test_a_level_of_which_nothing_is_seen_does_not_say_when_its_first_message_leaves(queues: Assembled) -> None:
    assert [each.first_leaves for each in queues.status()] == [None] * 3


def test_a_level_whose_broker_keeps_messages_until_they_leave_says_what_its_source_sees(queues: Assembled) -> None:
    onward: Any = None
    for worker, source in zip(queues.levels, (Seen(None), Seen(T0 + 900), Seen(T0 + 5)), strict=True):
        worker.passage = Passage(worker.passage.level, cast("Source", source), onward, lambda: T0, timed=False)
    assert [each.first_leaves for each in queues.status()] == [None, T0 + 900, T0 + 5]


def test_a_level_that_is_not_connected_says_why(queues: Assembled) -> None:
    queues.levels[1].error = "nobody listens at localhost:5672"
    assert [each.error for each in queues.status()] == ["", "nobody listens at localhost:5672", ""]


def test_what_waits_for_the_queues_to_be_declared_says_what_is_in_the_way_of_that(tmp_path: Path) -> None:
    with on({"type": "kafka", "bootstrap_servers": "127.0.0.1:9092"}, tmp_path) as queues:
        queues.publisher.error = "no broker answers"
        queues.levels[0].connected = True
        queues.levels[1].error = "there is no topic"

        assert [each.error for each in queues.status()] == ["", "there is no topic", "no broker answers"]
        publisher, _, register = queues.checks()
        assert (publisher.detail, register.detail) == ("no broker answers", "no broker answers")


def test_a_bridge_whose_level_refuses_is_not_ready_and_says_why(queues: Assembled) -> None:
    """Else all lights are green while nothing is taken in: the connections stand, and nothing is overdue."""
    queues.publisher.connected = True
    assert queues.checks()[0].ok
    assert queues.refusing == 0

    address = queues.addresses[1]
    queues.publisher._keep([Item([(address, Message(b""))], lambda: None, lambda: True)], BackOff(Reason.REFUSED_BY_BROKER, "it is full"))

    check = queues.checks()[0]
    assert (check.name, check.ok, check.detail) == ("level publisher", False, f"{address}: refused_by_broker: it is full")
    for worker in queues.levels:
        worker.connected = True
    assert [each.error for each in queues.status()] == ["", "refused_by_broker: it is full", ""]
    assert queues.refusing == 1


def test_a_bridge_whose_level_broker_takes_nothing_for_now_is_not_ready(queues: Assembled) -> None:
    class Blocked:
        blocked = "memory alarm"

    queues.publisher.connected = True
    queues.publisher._sink = Blocked()  # type: ignore[assignment]  # only this is asked
    check = queues.checks()[0]
    assert (check.ok, check.detail) == (False, "memory alarm")


@pytest.mark.parametrize(
    ("broker", "told"),
    [
        ({"type": "rabbitmq", "url": "amqp://127.0.0.1"}, True),
        ({"type": "activemq", "url": "stomp://127.0.0.1:61613"}, True),
        ({"type": "kafka", "bootstrap_servers": "127.0.0.1:9092"}, False),
    ],
)
def test_a_bridge_says_at_its_start_where_an_id_neither_cancels_nor_replaces(broker: dict[str, str], told: bool, tmp_path: Path) -> None:
    with capture_logs() as logs, on(broker, tmp_path):
        pass
    assert ("level_queues_without_ids" in [line["event"] for line in logs]) == told
