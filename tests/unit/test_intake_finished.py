"""How an intake ends: whether its source may give again what is stored, and so whether what looks like that is taken for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from brokers.common import wait_until
from contract.stores import T0

from delaybridge.adapters.base import Batch, NotConnected, Received
from delaybridge.bridge.intake.intake import Intake
from delaybridge.bridge.intake.planner import Planner, Route
from delaybridge.bridge.intake.worker import IntakeWorker
from delaybridge.bridge.metrics import Metrics
from delaybridge.core.message import message
from delaybridge.core.schedule import Limits
from delaybridge.core.store import StoreFull

if TYPE_CHECKING:
    from delaybridge.core.time_index import TimeIndex


class Queue:
    """Gives what it holds, and nothing once it is `away`."""

    def __init__(self, *messages: Received) -> None:
        self.messages = list(messages)
        self.away = False
        self.acked = threading.Event()

    def connect(self) -> None:
        self._look()

    def receive(self, limit: int, timeout: float) -> Batch | None:  # noqa: ARG002 - the contract's arguments
        self._look()
        batch, self.messages = self.messages, []
        return Batch(batch, self.acked.set) if batch else None

    def _look(self) -> None:
        if self.away:
            raise NotConnected("the broker is away")

    def close(self) -> None:
        pass


def daily(*, redelivered: bool = False) -> Received:
    """The same content each day."""
    return Received(message(b"daily", {"x-delay": 5000}), "/queues/a", b"its content", redelivered)


def takes_in(queue: Queue, index: TimeIndex, *, lost: bool = False, exact: bool = False) -> None:
    """From start to stop; the connection may be `lost` before that."""
    planner = Planner(Route(name="orders", source_broker="rabbit", source="in", lane="rabbit"), Limits())
    intake = Intake(planner, queue, index, lambda: T0, lambda *_: None, Metrics("test"), exact=exact)
    failures: list[BaseException] = []
    worker = IntakeWorker(intake, queue.close, lambda: True, Metrics("test"), lambda _, error: failures.append(error))
    worker.start()
    assert queue.acked.wait(10)
    if lost:
        queue.away = True
        wait_until(lambda: not worker.connected, "the loss to be noticed")
    worker.stop()
    assert worker.join(10)
    assert not failures


def test_after_a_stop_in_order_a_message_that_was_on_its_way_and_looks_like_an_earlier_one_is_taken_in(index: TimeIndex) -> None:
    takes_in(Queue(daily()), index)
    takes_in(Queue(daily(redelivered=True)), index)

    assert index.counts().pending == 2


@pytest.mark.parametrize("how", [{"lost": True}, {"exact": True}], ids=["the connection was lost", "the token names one message"])
def test_what_is_stored_and_may_come_again_is_recognised_after_the_next_start(index: TimeIndex, how: dict[str, bool]) -> None:
    takes_in(Queue(daily()), index, **how)
    takes_in(Queue(daily(redelivered=True)), index, **how)

    assert index.counts().pending == 1


def test_a_stop_in_order_is_none_the_worse_for_a_full_disk(index: TimeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: str) -> None:
        raise StoreFull("no room")

    monkeypatch.setattr(index, "forget", full)
    takes_in(Queue(daily()), index)

    assert index.came("orders").tokens == [b"its content"]
