"""The sink's bookkeeping against a scripted broker: every message gets one outcome, and a broker that does not answer is noticed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from brokers.common import wait_until

from delaybridge.adapters.activemq import sink as module
from delaybridge.adapters.activemq.frames import RECEIPT, Frame
from delaybridge.adapters.activemq.sink import STALL, ActiveSink, Settings
from delaybridge.adapters.activemq.transport import Times
from delaybridge.adapters.base import BackOff, NotConnected, Outcome, Outgoing
from delaybridge.core.message import message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BLOCKED = 2.0


class FakeLink:
    """A connection that takes everything and answers what the script says. Once `broken` it takes nothing more, and nobody was told yet."""

    def __init__(self, _: object, session: Any, *__: object) -> None:
        self.session = session
        self.written: list[bytes] = []
        self.broken = False
        self.dropped: NotConnected | None = None
        links.append(self)

    def start(self) -> None: ...

    def write(self, data: bytes) -> None:
        if self.broken:
            raise NotConnected("the broker is gone")
        self.written.append(data)

    def drop(self, reason: NotConnected) -> None:
        if self.dropped is None:
            self.dropped = reason
            self.session.lost(reason)

    def close(self) -> None:
        self.drop(NotConnected("closed"))


links: list[FakeLink] = []


class Stage:
    """A sink that is connected; its clock stands still unless it is set."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        links.clear()
        self.now = 1000.0
        patch.setattr(module, "Link", FakeLink)
        patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now, time=time.time))
        self.heard: list[Outcome] = []
        self.sink = ActiveSink(list, times=Times(1, 0, BLOCKED), settings=Settings(persistent=True, largest=1000))
        self.sink.connect(self.heard.extend)
        self.link = links[-1]

    def publish(self, *tags: str, to: str = "orders") -> None:
        self.sink.publish([Outgoing(tag.encode(), to, message(tag.encode())) for tag in tags])

    def sent(self, data: bytes) -> None:
        """Return when this stands in what was written."""
        wait_until(lambda: any(data in each for each in self.link.written), f"{data!r} on the wire")

    def answer(self, *receipts: int) -> None:
        """What one read from the socket brings."""
        self.link.session.heard([Frame(RECEIPT, {b"receipt-id": b"%d" % number}, b"", False) for number in receipts])

    def outcomes(self, count: int) -> Counter[str]:
        wait_until(lambda: len(self.heard) >= count, f"{count} outcomes")
        return Counter(tag.decode() for tag, _ in self.heard)

    def trust(self) -> None:
        """Let `orders` into transactions; the next number is 2."""
        self.publish("first")
        self.sent(b"receipt:1\n")
        self.answer(1)
        self.outcomes(1)
        self.heard.clear()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    one = Stage(monkeypatch)
    yield one
    one.sink.close()


def _trickle(stage: Stage, to: str, seconds: float) -> Sequence[str]:
    """A message every twentieth of a second, by the sink's clock, and often enough for it never to be idle; until something comes of it."""
    tags: list[str] = []
    while stage.now < 1000 + seconds and not stage.heard:
        tags.append(f"trickle {len(tags)}")
        stage.publish(tags[-1], to=to)
        stage.now += 0.05
        threading.Event().wait(0.005)
    return tags


def test_a_transaction_without_an_answer_is_noticed_however_many_messages_come(stage: Stage) -> None:
    stage.trust()
    stage.publish("a", "b")
    stage.sent(b"COMMIT")
    tags = _trickle(stage, "orders", 4 * STALL)
    assert stage.link.dropped is not None
    assert "did not answer a transaction" in str(stage.link.dropped)
    assert stage.outcomes(len(tags) + 2) == Counter(["a", "b", *tags])


def test_a_message_without_an_answer_is_noticed_however_many_messages_come(stage: Stage) -> None:
    stage.publish("a", to="full")
    _trickle(stage, "full", 4 * BLOCKED)
    assert stage.heard, "nothing was held back"
    assert {type(error) for _, error in stage.heard} == {BackOff}
    assert "a" not in stage.outcomes(1)


def test_an_answer_that_has_come_counts_though_the_sink_had_no_time_for_it(stage: Stage) -> None:
    stage.trust()
    stage.publish("a", "b")
    stage.sent(b"COMMIT")
    held, let_go = threading.Event(), threading.Event()

    def slow(data: bytes) -> None:
        stage.link.written.append(data)
        held.set()
        let_go.wait(5)

    stage.link.write = slow  # type: ignore[method-assign]
    stage.publish("slow", to="slow")
    assert held.wait(5)
    stage.now += 10 * STALL
    stage.publish("c", to="other")
    stage.answer(2)
    let_go.set()
    assert stage.outcomes(2) == Counter("ab")
    stage.sent(b"/queue/other")
    assert stage.link.dropped is None


def test_an_answer_behind_one_that_ended_the_connection_gives_no_second_outcome(stage: Stage) -> None:
    stage.trust()
    stage.publish("a", "b")
    stage.sent(b"COMMIT")
    stage.publish("alone", to="other")
    stage.sent(b"receipt:3\n")
    stage.publish("c", "d")
    stage.sent(b"transaction:4\n")
    stage.link.broken = True
    stage.answer(2, 3)  # the commit of 4 cannot be written any more
    assert stage.outcomes(5) == Counter(["a", "b", "c", "d", "alone"])
    assert [tag for tag, error in stage.heard if error is None] == [b"a", b"b"]


@pytest.mark.parametrize("breaks", ["headers_of", "alone"])
def test_what_nobody_foresaw_leaves_no_message_without_its_outcome(stage: Stage, breaks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.trust()
    stage.publish("a", "b")
    stage.sent(b"COMMIT")

    def broken(*_: object, **__: object) -> Any:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(module, breaks, broken)
    stage.publish("c", "d", to="other")
    assert stage.outcomes(4) == Counter("abcd")
    assert {str(error) for _, error in stage.heard} == {"the sink failed: RuntimeError('nobody foresaw this')"}
    with pytest.raises(NotConnected, match="nobody foresaw this"):
        stage.sink.publish(())
    assert stage.link.dropped is not None


def test_an_answer_that_makes_no_sense_leaves_no_message_without_its_outcome(stage: Stage) -> None:
    stage.trust()
    stage.publish("a", "b")
    stage.sent(b"COMMIT")
    stage.link.session.heard([Frame(RECEIPT, {}, b"", False)])
    assert stage.outcomes(2) == Counter("ab")
    assert {type(error) for _, error in stage.heard} == {NotConnected}
