"""What a source acknowledges, and what it takes, on a scripted link."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from delaybridge.adapters.base import NotConnected
from delaybridge.adapters.rabbitmq import source as module
from delaybridge.adapters.rabbitmq.source import Ingress, RabbitSource, _Subscriber
from delaybridge.adapters.rabbitmq.wire import Delivery, ack_frame, encode
from delaybridge.core.message import NO_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from delaybridge.adapters.base import Batch
    from delaybridge.adapters.rabbitmq.wire import Event


class FakeLink:
    """Runs at once what is posted. `sent` is what all links have written."""

    def __init__(self, session: _Subscriber, sent: list[bytes]) -> None:
        self.session = session
        session.channel = cast("Any", SimpleNamespace(is_open=True, channel_number=1))
        session._wire = cast("Any", SimpleNamespace(write=sent.extend))

    def start(self) -> None: ...

    def post(self, call: Callable[[], None]) -> None:
        call()

    def close(self) -> None:
        cast("Any", self.session.channel).is_open = False


class Stage:
    def __init__(self, sent: list[bytes]) -> None:
        self.source = RabbitSource(list, Ingress("q", create=True), prefetch=100, timeout=1)
        self.sent = sent
        self.connect()

    def connect(self) -> None:
        """Delivery tags begin anew with each channel."""
        self.source.connect()
        self.tags = 0

    def arrives(self, count: int, body: bytes = b"b") -> None:
        come: list[Event] = []
        for _ in range(count):
            self.tags += 1
            come.append(Delivery(self.tags, False, b"", b"q", encode(NO_PROPERTIES, b""), body))
        self.source._session.heard(come)

    def batch(self, count: int, body: bytes = b"b") -> Batch:
        """So many messages arrive, and are taken."""
        self.arrives(count, body)
        batch = self.source.receive(1000, 0)
        assert batch is not None
        return batch


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    sent: list[bytes] = []
    monkeypatch.setattr(module, "Link", lambda _, session, __, ___: FakeLink(session, sent))
    return Stage(sent)


def one(tag: int) -> bytes:
    return ack_frame(1, tag, multiple=False)


def up_to(tag: int) -> bytes:
    return ack_frame(1, tag, multiple=True)


def test_a_batch_costs_one_acknowledgement_where_nothing_older_is_open(stage: Stage) -> None:
    first, second = stage.batch(3), stage.batch(3)
    first.ack()
    second.ack()
    assert stage.sent == [up_to(3), up_to(6)]


def test_batches_that_are_acknowledged_out_of_turn_cost_the_later_ones_nothing(stage: Stage) -> None:
    first, second, third = stage.batch(1), stage.batch(2), stage.batch(3)
    second.ack()
    first.ack()
    third.ack()
    assert stage.sent == [one(2), one(3), up_to(1), up_to(6)]
    stage.batch(2).ack()
    assert stage.sent[4:] == [up_to(8)]


def test_a_batch_of_an_earlier_connection_acknowledges_nothing_on_this_one(stage: Stage) -> None:
    old, older = stage.batch(3), stage.batch(2)
    stage.connect()
    new = [stage.batch(3), stage.batch(1)]
    old.ack()
    older.ack()
    assert stage.sent == []
    for batch in new:
        batch.ack()
    assert stage.sent == [up_to(3), up_to(4)]


class Watched(threading.Event):
    """`before` happens just before it is cleared, or waited for. `woken`: whether each wait was ended by what happened."""

    def __init__(self, before: str, happens: Callable[[], None]) -> None:
        super().__init__()
        self._before = before
        self._happens = happens
        self.woken: list[bool] = []

    def clear(self) -> None:
        if self._before == "clear":
            self._happens()
        super().clear()

    def wait(self, timeout: float | None = None) -> bool:
        if self._before == "wait":
            self._happens()
        self.woken.append(super().wait(timeout))
        return self.woken[-1]


def test_a_message_ends_the_wait_for_it_however_late_it_comes(stage: Stage) -> None:
    for before, woken in (("clear", []), ("wait", [True])):
        stage.source._session.arrived = watched = Watched(before, lambda: stage.arrives(1))
        batch = stage.source.receive(1, 0.01)
        assert batch is not None
        assert watched.woken == woken


def test_the_end_of_the_connection_ends_the_wait_for_messages(stage: Stage) -> None:
    session = stage.source._session
    for before, woken in (("clear", []), ("wait", [True])):
        session.reason = None
        session.arrived = watched = Watched(before, lambda: session.lost(NotConnected("gone")))
        with pytest.raises(NotConnected, match="gone"):
            stage.source.receive(1, 0.01)
        assert watched.woken == woken


def test_what_came_over_a_connection_that_is_gone_is_not_given_any_more(stage: Stage) -> None:
    """The broker gives it again, and it could not be acknowledged."""
    stage.arrives(1)
    stage.source._session.lost(NotConnected("gone"))
    with pytest.raises(NotConnected, match="gone"):
        stage.source.receive(1, 0)


def test_large_messages_come_in_short_batches(stage: Stage) -> None:
    """So that what the bridge has in memory at once has a bound."""
    body = b"x" * (module._BATCH_BYTES // 2)
    assert len(stage.batch(3, body).messages) == 2
    assert len(stage.batch(1).messages) == 2
