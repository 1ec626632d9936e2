"""The sink's bookkeeping against a scripted broker: every message gets one outcome, and a broker that does not answer is noticed."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from unit.activemq.sink_stage import BLOCKED, Stage

from delaybridge.adapters.activemq import doors, standing
from delaybridge.adapters.activemq import sink as module
from delaybridge.adapters.activemq.frames import RECEIPT, Frame
from delaybridge.adapters.activemq.sink import STALL
from delaybridge.adapters.base import BackOff, NotConnected, Outgoing, Rejected
from delaybridge.core.message import message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType


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


def test_an_answer_that_has_come_counts_though_the_connection_takes_nothing_more(stage: Stage) -> None:
    stage.trust()
    stage.publish("a", "b")
    stage.sent(b"COMMIT")
    stage.publish("alone", to="other")
    stage.sent(b"receipt:3\n")
    stage.publish("c", "d")
    stage.sent(b"transaction:4\n")
    stage.link.broken = True
    stage.answer(2, 3)  # the commit of 4 cannot be written any more
    assert stage.outcomes(3) == Counter(["a", "b", "alone"])
    stage.link.drop(NotConnected("the broker is gone"))
    assert stage.outcomes(5) == Counter(["a", "b", "c", "d", "alone"])
    assert [tag for tag, error in stage.heard if error is None] == [b"a", b"b", b"alone"]


@pytest.mark.parametrize(
    ("said", "largest"), [("The maximum frame size was exceeded", b"headers"), ("The maximum data length was exceeded", b"body")]
)
def test_of_what_was_under_way_when_activemq_closed_the_connection_over_a_size_the_largest_is_too_large(
    stage: Stage, said: str, largest: bytes
) -> None:
    stage.trust()
    stage.publish("a", "b")
    stage.sent(b"COMMIT")
    stage.sink.publish(
        [
            Outgoing(b"headers", "other", message(b"", {"much": "x" * 900})),
            Outgoing(b"body", "other", message(b"x" * 500)),
        ]
    )  # the second waits for the receipt of the first
    stage.sent(b"receipt:3\n")
    stage.link.drop(NotConnected(f"ActiveMQ: {said}"))
    assert stage.outcomes(4) == Counter(["a", "b", "headers", "body"])
    assert [(tag, error.reason) for tag, error in stage.heard if isinstance(error, Rejected)] == [(largest, "too_large")]
    assert sum(isinstance(error, NotConnected) for _, error in stage.heard) == 3


@pytest.mark.parametrize(("place", "breaks"), [(module, "headers_of"), (doors, "alone")])
def test_what_nobody_foresaw_leaves_no_message_without_its_outcome(
    stage: Stage, place: ModuleType, breaks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.trust()
    stage.publish("a", "b")
    stage.sent(b"COMMIT")

    def broken(*_: object, **__: object) -> Any:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(place, breaks, broken)
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


def test_what_waits_for_the_first_receipt_of_its_destination_goes_then_and_in_its_order(stage: Stage) -> None:
    stage.publish(*"abcd")
    stage.sent(b"receipt:1\n")
    assert [data.count(b"SEND\n") for data in stage.link.written] == [1]
    stage.answer(1)
    stage.sent(b"COMMIT\ntransaction:2\nreceipt:2\n\n\0")
    (sent,) = (data for data in stage.link.written if b"COMMIT" in data)
    assert [body[-1:] for body in sent.split(b"\0")[1:4]] == [b"b", b"c", b"d"]
    stage.answer(2)
    stage.outcomes(4)
    assert stage.heard == [(tag.encode(), None) for tag in "abcd"]


def test_of_a_transaction_that_was_rolled_back_each_message_goes_alone_and_nothing_overtakes_them(stage: Stage) -> None:
    stage.trust()
    stage.publish("a", "b")
    stage.sent(b"COMMIT")
    stage.publish("c", "d")
    stage.sent(b"BEGIN\ntransaction:3\n")
    stage.refuse(2, b"Transaction 'TX:2' has not been started, rollback only")
    stage.sent(b"receipt:5\n")
    wire = b"".join(stage.link.written)
    _, *again = wire[wire.index(b"ABORT\ntransaction:3\n") :].split(b"\0")[:-1]
    assert [(frame.partition(b"receipt:")[2][:1], frame[-1:]) for frame in again] == [(b"4", b"a"), (b"5", b"b")]
    stage.refuse(4, b"no")
    stage.answer(5)
    assert stage.outcomes(4) == Counter("abcd")
    assert [type(error) for _, error in stage.heard] == [BackOff, type(None), NotConnected, NotConnected]


def test_a_connection_over_which_a_transaction_was_rolled_back_ends_with_the_last_answer_and_takes_nothing_more_until_then(
    stage: Stage,
) -> None:
    """Until it ends ActiveMQ counts what it has rolled back as in its memory."""
    stage.roll_back()
    stage.publish("c")
    stage.publish("other", to="other")
    stage.answer(3)
    assert stage.outcomes(1) == Counter("a")
    assert stage.link.dropped is None
    stage.answer(4)
    assert stage.outcomes(4) == Counter(["a", "b", "c", "other"])
    assert [tag for tag, error in stage.heard if isinstance(error, NotConnected)] == [b"c", b"other"]
    assert b"receipt:5\n" not in b"".join(stage.link.written)
    assert "rolled a transaction back" in str(stage.link.dropped)


def test_what_refuses_a_message_alone_after_its_transaction_was_rolled_back_gets_no_transaction_over_the_next_connection(
    stage: Stage,
) -> None:
    stage.roll_back()
    stage.refuse(3, b"full")
    stage.answer(4)
    assert stage.outcomes(2) == Counter("ab")
    stage.connect_again()
    stage.publish("a", "b", "c")
    stage.sent(b"receipt:3\n")
    assert b"BEGIN" not in b"".join(stage.link.written)


def test_where_a_full_queue_holds_back_an_answer_others_do_not_wait_for_the_end_of_such_a_connection(stage: Stage) -> None:
    stage.roll_back()
    stage.answer(3)
    stage.publish("other", to="other")
    assert stage.outcomes(1) == Counter("a")
    stage.now += STALL
    stage.sent(b"receipt:5\n")
    stage.answer(5)
    assert stage.outcomes(2) == Counter(["a", "other"])
    assert stage.link.dropped is None
    stage.answer(4)
    assert stage.outcomes(3) == Counter(["a", "b", "other"])
    assert all(error is None for _, error in stage.heard)


def test_a_transaction_that_fails_for_another_reason_may_have_been_taken(stage: Stage) -> None:
    stage.trust()
    stage.publish("a", "b")
    stage.sent(b"COMMIT")
    stage.refuse(2, b"the disk is gone")
    assert stage.outcomes(2) == Counter("ab")
    assert {type(error) for _, error in stage.heard} == {NotConnected}
    assert "the disk is gone" in str(stage.link.dropped)
    stage.connect_again()
    stage.publish("c", "d")
    stage.sent(b"receipt:1\n")
    assert b"BEGIN" not in b"".join(stage.link.written), "what was on board has to earn trust again"


@pytest.mark.parametrize(
    ("why", "body", "word"),
    [
        (b"not authorized", b"", BackOff),
        (b"Illegal destination name", b"", Rejected),
        (b"no", b"jakarta.jms.InvalidDestinationException", Rejected),
        (b"no", b"jakarta.jms.MessageFormatException", Rejected),
        (b"Unsupported message type", b"", Rejected),
    ],
)
def test_what_activemq_refuses_is_tried_again_unless_that_is_useless(stage: Stage, why: bytes, body: bytes, word: type) -> None:
    stage.publish("a", "b", "c")
    stage.sent(b"receipt:1\n")
    stage.refuse(1, why, body)
    stage.sent(b"receipt:2\n")
    assert b"BEGIN" not in b"".join(stage.link.written), "a refusal earns no trust"
    stage.answer(2)
    stage.sent(b"receipt:3\n")
    stage.answer(3)
    assert stage.outcomes(3) == Counter("abc")
    assert [type(error) for _, error in stage.heard] == [word, type(None), type(None)]


def test_a_destination_that_held_back_an_answer_takes_messages_again_when_that_comes(stage: Stage) -> None:
    stage.publish("a", "b", to="full")
    stage.sent(b"receipt:1\n")
    stage.now += BLOCKED + 1
    assert stage.outcomes(1) == Counter("b")
    stage.publish("c", to="full")
    assert stage.outcomes(2) == Counter("bc")
    stage.answer(1)
    assert stage.outcomes(3) == Counter("abc")
    stage.publish("d", to="full")
    stage.sent(b"receipt:2\n")
    stage.answer(2)
    assert stage.outcomes(4) == Counter("abcd")
    assert [type(error) for _, error in stage.heard] == [BackOff, BackOff, type(None), type(None)]


def _stall(stage: Stage) -> None:
    """Let a transaction for `orders` have no answer, and connect again."""
    stage.trust()
    stage.publish("a", "b")
    stage.sent(b"COMMIT")
    stage.now += STALL + 1
    stage.outcomes(2)
    stage.connect_again()


def test_a_destination_that_stopped_the_connection_is_trusted_again_after_enough_answers_though_more_always_waits(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "_FORGIVEN", 5)
    _stall(stage)
    stage.publish(*"cdefghijkl")
    stage.sent(b"receipt:4\n")
    assert b"receipt:5\n" not in b"".join(stage.link.written), "more are in flight than may be lost to a queue that is soon full"
    stage.answer(1, 2, 3, 4, 5, 6, 7)
    assert stage.outcomes(7) == Counter("cdefghi")
    assert b"BEGIN" not in b"".join(stage.link.written), "what goes in a transaction may overtake the one that is in flight alone"
    stage.answer(8)
    stage.sent(b"COMMIT\ntransaction:9\n")
    stage.answer(9)
    assert stage.outcomes(10) == Counter("cdefghijkl")


def test_one_answer_shows_that_a_destination_that_stopped_the_connection_takes_messages_again(stage: Stage) -> None:
    _stall(stage)
    stage.publish(*"cdefgh")
    stage.sent(b"receipt:4\n")
    stage.now += BLOCKED + 1
    assert stage.outcomes(2) == Counter("gh"), "what is in flight stays so"
    stage.answer(1)
    stage.outcomes(3)
    stage.publish("i")
    stage.sent(b"receipt:5\n")
    stage.answer(2, 3, 4, 5)
    assert stage.outcomes(7) == Counter("cdefghi")


def test_what_comes_while_a_message_of_its_destination_is_in_flight_alone_does_not_overtake_it(stage: Stage) -> None:
    stage.trust()
    stage.publish("a")
    stage.sent(b"receipt:2\n")
    stage.publish("b", "c")
    stage.publish("elsewhere", to="other")
    stage.sent(b"receipt:3\n")
    assert b"BEGIN" not in b"".join(stage.link.written)
    stage.answer(2)
    stage.sent(b"COMMIT\ntransaction:4\n")


def test_a_connection_that_is_lost_leaves_nothing_that_waits_for_a_receipt_without_its_outcome(stage: Stage) -> None:
    stage.publish("a", "b")
    stage.sent(b"receipt:1\n")
    stage.link.drop(NotConnected("the broker is gone"))
    assert stage.outcomes(2) == Counter("ab")
    assert {type(error) for _, error in stage.heard} == {NotConnected}


def test_a_refusal_long_ago_is_not_taken_for_an_answer_that_is_held_back(stage: Stage) -> None:
    stage.publish("a")
    stage.sent(b"receipt:1\n")
    stage.refuse(1, b"no")
    stage.outcomes(1)
    stage.now += BLOCKED + 1
    stage.publish("b")
    stage.sent(b"receipt:2\n")
    stage.publish("c")
    stage.answer(2)
    stage.sent(b"receipt:3\n")
    stage.answer(3)
    assert stage.outcomes(3) == Counter("abc")


def test_so_many_destinations_are_remembered_and_then_all_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "_MOST", 3)
    known = standing.Standing()
    for name in "abcd":
        known.trust(name)
        known.suspect([name])
    assert [name for name in "abcd" if known.trusts(name)] == ["d"]
    assert [name for name in "abcd" if known.suspects(name)] == ["d"]


def test_on_a_sink_that_is_closed_nothing_is_published(stage: Stage) -> None:
    stage.sink.close()
    with pytest.raises(NotConnected):
        stage.publish("a")


def test_a_body_may_be_as_large_as_the_operator_says_and_no_larger(stage: Stage) -> None:
    for size in (1000, 1001):
        stage.sink.publish([Outgoing(b"%d" % size, "orders", message(b"x" * size))])
    stage.sent(b"receipt:1\n")
    stage.answer(1)
    assert stage.outcomes(2) == Counter(["1000", "1001"])
    assert {tag: getattr(error, "reason", None) for tag, error in stage.heard} == {b"1000": None, b"1001": "too_large"}
