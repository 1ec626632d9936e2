"""How an intake ends: whether its source may give again what is stored, and so whether what looks like that is taken for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from brokers.common import wait_until
from contract.stores import T0

from delaybridge.adapters.base import Batch, NotConnected, Received
from delaybridge.bridge.intake.intake import Intake
from delaybridge.bridge.intake.planner import PlannedRoute, Planner
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
        self.parted = True
        self.acked = threading.Event()
        self.emptied = threading.Event()

    def connect(self) -> None:
        self._look()

    def receive(self, limit: int, timeout: float) -> Batch | None:  # noqa: ARG002 - the contract's arguments
        self._look()
        batch, self.messages = self.messages, []
        if not batch:
            self.emptied.set()
            return None
        return Batch(batch, self.acked.set)

    def _look(self) -> None:
        if self.away:
            raise NotConnected("the broker is away")

    def close(self) -> None:
        pass


def daily(*, redelivered: bool = False) -> Received:
    """The same content each day."""
    return Received(message(b"daily", {"x-delay": 5000}), "/queues/a", b"its content", redelivered)


def takes_in(queue: Queue, index: TimeIndex, *, lost: bool = False, silent: bool = False, exact: bool = False, room: bool = True) -> None:
    """From start to stop; the connection may be `lost` before that, or the broker `silent` at the farewell. Without `room` nothing is read."""
    queue.parted = not silent
    planner = Planner(PlannedRoute(name="orders", source_broker="rabbit", source="in", lane="rabbit"), Limits())
    intake = Intake(planner, queue, index, lambda: T0, lambda *_: None, Metrics("test"), exact=exact)
    failures: list[BaseException] = []
    worker = IntakeWorker(intake, queue.close, lambda: room, Metrics("test"), lambda _, error: failures.append(error))
    awaited = queue.acked if queue.messages else queue.emptied
    worker.start()
    if not room:
        wait_until(lambda: worker.connected, "the source to be connected")
    else:
        assert awaited.wait(10)
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


@pytest.mark.parametrize(
    "how",
    [{"lost": True}, {"silent": True}, {"exact": True}],
    ids=["the connection was lost", "and nobody had noticed", "the token names one message"],
)
def test_what_is_stored_and_may_come_again_is_recognised_after_the_next_start(index: TimeIndex, how: dict[str, bool]) -> None:
    takes_in(Queue(daily()), index, **how)
    takes_in(Queue(daily(redelivered=True)), index, **how)

    assert index.counts().pending == 1


def test_what_a_kill_left_unacknowledged_is_recognised_also_where_the_bridge_is_stopped_in_order_before_it_comes_again(
    index: TimeIndex,
) -> None:
    takes_in(Queue(daily()), index, lost=True)
    takes_in(Queue(daily(redelivered=True)), index, room=False)
    takes_in(Queue(daily(redelivered=True)), index)

    assert index.counts().pending == 1


@pytest.mark.parametrize(
    "since", [(), (Received(message(b"other", {"x-delay": 5000}), "/queues/a", b"other content"),)], ids=["nothing", "other"]
)
def test_once_the_queue_was_empty_or_gave_another_message_what_a_kill_left_has_come_and_what_looks_like_it_is_taken_in(
    index: TimeIndex, since: tuple[Received, ...]
) -> None:
    takes_in(Queue(daily()), index, lost=True)
    takes_in(Queue(*since), index)
    takes_in(Queue(daily(redelivered=True)), index)

    assert index.counts().pending == 2 + len(since)


def test_a_stop_in_order_is_none_the_worse_for_a_full_disk(index: TimeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: str) -> None:
        raise StoreFull("no room")

    monkeypatch.setattr(index, "forget", full)
    takes_in(Queue(daily()), index)

    assert index.came("orders").tokens == [b"its content"]
