"""What goes into the level queues: tried again in its place where it is insisted on, answered at once where it is not."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from brokers.common import wait_until
from structlog.testing import capture_logs

from delaybridge.adapters.base import AdapterError, BackOff, Confirm, NotConnected, Outgoing, Rejected
from delaybridge.bridge.level_queues import publisher as module
from delaybridge.bridge.level_queues.publisher import Item, Publisher
from delaybridge.bridge.metrics import Metrics
from delaybridge.core.message import Message
from delaybridge.core.reasons import Reason
from delaybridge.core.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Flaky:
    """A sink that confirms at once, refuses for addresses in `full` and `missing`, and breaks when told.

    It rejects what is larger than `largest`; `beside` says how many others were under way each time. While it is `silent` the test says what became of
    the others.
    """

    def __init__(self) -> None:
        self.full: set[str] = set()
        self.missing: set[str] = set()
        self.largest = 1_000
        self.broken = False
        self.silent = False
        self.unanswered: list[bytes] = []
        self.beside: list[int] = []
        self.taken: list[tuple[str, bytes]] = []
        self._confirm: Confirm | None = None

    def connect(self, confirm: Confirm) -> None:
        if self.broken:
            raise NotConnected("down")
        self._confirm = confirm

    def publish(self, messages: Sequence[Outgoing]) -> None:
        if self.broken:
            raise NotConnected("went down")
        for outgoing in messages:
            refused: AdapterError | None = BackOff(Reason.REFUSED_BY_BROKER, "full") if outgoing.address in self.full else None
            refused = BackOff(Reason.UNROUTABLE, "no queue") if outgoing.address in self.missing else refused
            if outgoing.message.size > self.largest:
                refused = Rejected(Reason.REJECTED_BY_BROKER, "too large")
                self.beside.append(len(self.unanswered) + len(messages) - 1)
            if refused is None:
                self.taken.append((outgoing.address, outgoing.message.body or b""))
            if not self.silent or isinstance(refused, Rejected):
                self.answer(outgoing.tag, refused)
            else:
                self.unanswered.append(outgoing.tag)

    def answer(self, tag: bytes, error: AdapterError | None) -> None:
        assert self._confirm is not None
        self._confirm([(tag, error)])

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def sink() -> Flaky:
    return Flaky()


@pytest.fixture
def publisher(sink: Flaky) -> Iterator[Publisher]:
    failures: list[BaseException] = []
    worker = Publisher("rabbit", sink, Metrics("0"), lambda _, error: failures.append(error))
    with capture_logs() as logs:  # tests look at what is said once it is connected, and no line may come while they begin to
        worker.start()
        wait_until(lambda: bool(logs), "a connection")
    yield worker
    worker.stop()
    assert worker.join(10)
    assert not failures


class Answers:
    """What has landed, in order."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def item(self, address: str, body: str, wanted: Callable[[], bool] = lambda: True) -> Item:
        return Item([(address, Message(body.encode()))], lambda: self.all.append(body), wanted)

    def wait(self, count: int) -> list[str]:
        wait_until(lambda: len(self.all) >= count, f"{count} answers")
        return self.all


def test_what_is_submitted_goes_out_in_order_and_is_answered(publisher: Publisher, sink: Flaky) -> None:
    answers = Answers()
    publisher.submit([answers.item("1s", str(number)) for number in range(2_000)])

    assert answers.wait(2_000) == [str(number) for number in range(2_000)]
    assert [body for _, body in sink.taken] == [b"%d" % number for number in range(2_000)]


def test_a_refused_message_is_tried_again_before_all_that_came_later(publisher: Publisher, sink: Flaky) -> None:
    answers = Answers()
    sink.full.add("1s")
    publisher.submit([answers.item("1s", "first")])
    publisher.submit([answers.item("1s", "second"), answers.item("5s", "other")])
    assert answers.wait(1) == ["other"], "a queue that refuses harms no other"
    sink.full.clear()

    answers.wait(3)
    assert [body for address, body in sink.taken if address == "1s"] == [b"first", b"second"]


def test_a_message_that_is_refused_while_nothing_else_goes_out_is_tried_again_soon(
    publisher: Publisher, sink: Flaky, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE", 60.0)
    answers = Answers()
    sink.silent = True
    publisher.submit([answers.item("1s", "only")])
    wait_until(lambda: bool(sink.unanswered), "the first try")
    sink.silent = False
    sink.answer(sink.unanswered.pop(), BackOff(Reason.REFUSED_BY_BROKER, "not now"))

    assert answers.wait(1) == ["only"]


def test_what_is_submitted_survives_a_lost_connection(publisher: Publisher, sink: Flaky) -> None:
    answers = Answers()
    sink.broken = True
    publisher.submit([answers.item("1s", "lost with it")])
    wait_until(lambda: not publisher.connected, "the loss")
    publisher.submit([answers.item("1s", "came meanwhile")])
    assert answers.all == []
    sink.broken = False

    assert answers.wait(2) == ["lost with it", "came meanwhile"]


@pytest.mark.parametrize(("losses", "told"), [(3, []), (6, ["lost 4"])], ids=["a broker that starts again", "again and again"])
def test_a_queue_whose_connection_is_lost_with_a_message_is_told_to_refuse_it_only_where_that_goes_on(
    publisher: Publisher, sink: Flaky, losses: int, told: list[str]
) -> None:
    """A broker that starts again may take a connection or two, and drop them."""
    answers = Answers()
    sink.silent = True
    with capture_logs() as logs:
        publisher.submit([answers.item("1s", "only")])
        for number in range(1, losses + 1):
            wait_until(lambda: bool(sink.unanswered), "the next try")
            sink.silent = number < losses
            sink.answer(sink.unanswered.pop(), NotConnected(f"lost {number}"))
        assert answers.wait(1) == ["only"]
    assert [each["error"] for each in logs if each["event"] == "level_refuses"] == told


def test_a_queue_that_refuses_is_named_with_the_reason_until_it_takes_messages(publisher: Publisher, sink: Flaky) -> None:
    answers = Answers()
    sink.full.add("1s")
    assert publisher.refused == {}
    with capture_logs() as logs:
        publisher.submit([answers.item("1s", "first"), answers.item("5s", "other")])
        wait_until(lambda: publisher.refused == {"1s": "refused_by_broker: full"}, "the refusal")
        sink.full.clear()
        answers.wait(2)
    assert publisher.refused == {}
    assert [(each["event"], each["queue"]) for each in logs] == [("level_refuses", "1s"), ("level_takes_again", "1s")]


def test_a_message_that_was_rejected_and_is_taken_after_all_is_told(publisher: Publisher, sink: Flaky) -> None:
    """As where somebody raises the limit that it was too large for."""
    answers = Answers()
    with capture_logs() as logs:
        publisher.submit([answers.item("1s", "x" * 2_000)])
        wait_until(lambda: bool(publisher.refused), "the rejection")
        sink.largest = 10_000
        answers.wait(1)
    assert [(each["event"], each["queue"]) for each in logs] == [("level_refuses", "1s"), ("level_takes_again", "1s")]


def test_a_queue_whose_messages_nobody_wants_any_more_refuses_nothing(publisher: Publisher, sink: Flaky) -> None:
    answers, wanted = Answers(), threading.Event()
    wanted.set()
    sink.full.add("1s")
    publisher.submit([answers.item("1s", "gone", wanted.is_set)])
    wait_until(lambda: bool(publisher.refused), "the refusal")
    wanted.clear()

    assert publisher.refused == {}


def test_a_message_that_the_broker_rejects_keeps_no_other_for_its_queue_waiting(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue that is full holds what is for it; one message that is too large holds itself."""
    monkeypatch.setattr(publisher._retry, "seconds", lambda _: 60.0)
    answers = Answers()
    publisher.submit([answers.item("1s", "x" * 2_000)])
    wait_until(lambda: publisher.refused == {"1s": "rejected_by_broker: too large"}, "the rejection")
    publisher.submit([answers.item("1s", "small")])

    assert answers.wait(1) == ["small"]
    assert publisher.refused == {"1s": "rejected_by_broker: too large"}


def test_a_rejected_message_that_has_another_form_is_tried_in_that_at_once_and_nobody_is_told(
    publisher: Publisher, sink: Flaky, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher._retry, "seconds", lambda _: 60.0)
    monkeypatch.setattr(publisher, "_enclosed", lambda place: (place[0], Message(b"other form")))
    answers = Answers()
    with capture_logs() as logs:
        publisher.submit([answers.item("shelf", "x" * 2_000)])
        answers.wait(1)
    assert sink.taken == [("shelf", b"other form")]
    assert logs == []


def test_a_message_that_is_rejected_in_its_other_form_too_is_told_of_and_tried_again_with_growing_waits(
    publisher: Publisher, sink: Flaky, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher._retry, "seconds", lambda _: 60.0)
    monkeypatch.setattr(publisher, "_enclosed", lambda place: (place[0], Message(b"y" * 3_000)))
    wanted = threading.Event()
    wanted.set()
    with capture_logs() as logs:
        publisher.submit([Answers().item("shelf", "x" * 2_000, wanted.is_set)])
        wait_until(lambda: bool(logs), "the warning")
    wanted.clear()
    assert [each["event"] for each in logs] == ["level_refuses"]
    assert len(sink.beside) == 2


def test_a_message_that_the_broker_rejected_is_tried_again_while_no_other_is_under_way(
    publisher: Publisher, sink: Flaky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what is under way beside it may be published twice, with each try."""
    monkeypatch.setattr(publisher._retry, "seconds", lambda _: 0.0)
    answers, large = Answers(), "x" * 2_000
    sink.silent = True
    publisher.submit([answers.item("1s", "first")])
    wait_until(lambda: len(sink.unanswered) == 1, "the first message")
    publisher.submit([answers.item("1s", large)])
    wait_until(lambda: sink.beside == [1], "the first try")
    publisher.submit([answers.item("5s", "second")])
    wait_until(lambda: len(sink.unanswered) == 2, "the second message")
    for tag in sink.unanswered:
        sink.answer(tag, None)
    sink.unanswered.clear()
    wait_until(lambda: len(sink.beside) > 2, "more tries")
    assert not any(sink.beside[1:])
    sink.silent, sink.largest = False, 10_000

    assert answers.wait(3) == ["first", "second", large]
    assert (publisher.refused, publisher._rejections) == ({}, {})


def test_the_others_wait_for_the_answer_to_a_message_that_is_tried_by_itself(
    publisher: Publisher, sink: Flaky, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher._retry, "seconds", lambda _: 0.0)
    monkeypatch.setattr(module, "ALONE", 60.0)
    answers, large = Answers(), "x" * 2_000

    def publish(messages: Sequence[Outgoing]) -> None:
        Flaky.publish(sink, messages)
        if len(sink.unanswered) == 1:
            publisher.submit([answers.item("5s", "other")])

    monkeypatch.setattr(sink, "publish", publish)
    publisher.submit([answers.item("1s", large)])
    wait_until(lambda: bool(sink.beside), "the first try")
    sink.silent, sink.largest = True, 10_000
    wait_until(lambda: bool(publisher._items), "another message, while the try has no answer")

    (alone,) = sink.unanswered
    sink.unanswered.clear()
    sink.silent = False
    sink.answer(alone, None)
    assert answers.wait(2) == [large, "other"]


def test_a_rejected_message_that_nobody_wants_any_more_is_forgotten(publisher: Publisher) -> None:
    answers, wanted = Answers(), threading.Event()
    wanted.set()
    publisher.submit([answers.item("1s", "x" * 2_000, wanted.is_set)])
    wait_until(lambda: bool(publisher._rejections), "the rejection")
    wanted.clear()

    wait_until(lambda: not publisher._rejections, "it to be forgotten")
    assert answers.all == []


def test_a_queue_that_somebody_deleted_is_made_again(sink: Flaky) -> None:
    answers, failures = Answers(), []  # type: tuple[Answers, list[BaseException]]
    publisher = Publisher("rabbit", sink, Metrics("0"), lambda _, error: failures.append(error), sink.missing.clear)
    publisher.start()
    wait_until(lambda: publisher.connected, "a connection")
    sink.missing.add("1s")
    publisher.submit([answers.item("1s", "first")])

    assert answers.wait(1) == ["first"]
    publisher.stop()
    assert publisher.join(10)
    assert not failures


def test_what_could_not_be_published_for_long_goes_where_it_belongs_by_then_in_its_order(sink: Flaky) -> None:
    answers, failures = Answers(), []  # type: tuple[Answers, list[BaseException]]
    sink.broken = True
    publisher = Publisher(
        "rabbit", sink, Metrics("0"), lambda _, error: failures.append(error), anew=lambda place: (f"after {place[0]}", place[1])
    )
    publisher.submit([answers.item("5s", "first"), answers.item("1s", "second"), answers.item("5s", "third")])
    publisher.start()
    sink.broken = False
    assert answers.wait(3)
    assert [place for place in sink.taken if place[0] == "after 5s"] == [("after 5s", b"first"), ("after 5s", b"third")]
    assert {address for address, _ in sink.taken} == {"after 5s", "after 1s"}
    publisher.stop()
    assert publisher.join(10)
    assert not failures


def test_a_missing_queue_that_cannot_be_made_now_costs_no_connection(sink: Flaky) -> None:
    calls: list[int] = []

    def prepare() -> None:
        calls.append(len(calls))
        if len(calls) == 2:
            raise NotConnected("too many connections")
        sink.missing.clear()

    answers, failures = Answers(), []  # type: tuple[Answers, list[BaseException]]
    metrics = Metrics("0")
    publisher = Publisher("rabbit", sink, metrics, lambda _, error: failures.append(error), prepare)
    publisher.start()
    wait_until(lambda: publisher.connected, "a connection")
    sink.missing.add("1s")
    publisher.submit([answers.item("1s", "first")])

    assert answers.wait(1) == ["first"]
    assert len(calls) == 3
    assert b'broker_reconnects_total{broker="rabbit"} 0.0' in metrics.expose()[0]
    publisher.stop()
    assert publisher.join(10)
    assert not failures


def test_what_nobody_wants_any_more_is_not_tried_again(publisher: Publisher, sink: Flaky) -> None:
    answers, wanted = Answers(), threading.Event()
    wanted.set()
    sink.full.add("1s")
    publisher.submit([answers.item("1s", "gone", wanted.is_set), answers.item("1s", "kept")])
    wait_until(lambda: bool(publisher._refusals), "the refusal")
    wanted.clear()
    sink.full.clear()

    answers.wait(1)
    assert sink.taken == [("1s", b"kept")]


def test_what_nobody_wants_any_more_does_not_go_out_at_all(publisher: Publisher, sink: Flaky) -> None:
    answers = Answers()
    publisher.submit([answers.item("1s", "gone", lambda: False), answers.item("1s", "kept")])

    answers.wait(1)
    assert sink.taken == [("1s", b"kept")]


def test_an_answer_that_cannot_be_taken_ends_the_daemon_and_the_others_are_told(sink: Flaky) -> None:
    """As where the disk of the ledger's rows fails: the sink's thread, and what shares it, must not."""

    def failing() -> None:
        raise StoreError("the disk failed")

    answers, failures = Answers(), []  # type: tuple[Answers, list[BaseException]]
    publisher = Publisher("rabbit", sink, Metrics("0"), lambda _, error: failures.append(error))
    publisher.start()
    wait_until(lambda: publisher.connected, "a connection")
    sink.silent = True
    publisher.submit([Item([("1s", Message(b"first"))], failing, lambda: True), answers.item("1s", "second")])
    wait_until(lambda: len(sink.unanswered) == 2, "both")

    assert sink._confirm is not None
    sink._confirm([(tag, None) for tag in sink.unanswered])

    assert answers.all == ["second"]
    assert [type(each) for each in failures] == [StoreError]
    publisher.stop()
    assert publisher.join(10)
