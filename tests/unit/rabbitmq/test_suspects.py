"""A message over which RabbitMQ fails, and closes the connection, is found; whatever else was under way is delivered."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pika.exceptions import ConnectionClosedByBroker, StreamLostError
from unit.rabbitmq.sink_stage import Stage, word

from delaybridge.adapters.base import Outcome, Outgoing
from delaybridge.adapters.rabbitmq import sink, suspects
from delaybridge.adapters.rabbitmq.link import not_connected
from delaybridge.adapters.rabbitmq.suspects import TIMES, Suspects
from delaybridge.core.message import message

FAILURE = ConnectionClosedByBroker(541, "INTERNAL_ERROR")


def ends(stage: Stage, reason: Exception = FAILURE) -> None:
    """The connection ends: pika tells its channels first."""
    stage.wire.is_open = False
    for channel in list(stage.wire.open.values()):
        channel.breaks(reason)
    stage.session.lost(not_connected(reason))


def rounds(known: Suspects, waiting: list[str], poison: str) -> dict[str, str]:
    """Connects again and again to a broker that fails over one message, as a lane does, until all is answered; gives how each message ended."""
    ended: dict[str, str] = {}
    for _ in range(20):
        stage = Stage(suspects=known)
        stage.publish(*waiting)
        for number in range(1, len(waiting) + 1):
            if len(stage.heard) < stage.wire.published:
                if poison in waiting and waiting.index(poison) < stage.wire.published:
                    ends(stage)
                    break
                stage.ack(number)
        ended |= {tag: word for tag, word in stage.outcomes.items() if word != "NotConnected"}
        waiting = [tag for tag in waiting if tag not in ended]
        if not waiting:
            return ended
    raise AssertionError(f"never ends: {waiting}")


@pytest.mark.parametrize("place", range(3))
def test_a_message_over_which_rabbitmq_fails_is_rejected_and_all_others_are_delivered(place: int) -> None:
    tags = ["a", "b"]
    tags.insert(place, "bad")
    assert rounds(Suspects(), tags, "bad") == {"a": "confirmed", "b": "confirmed", "bad": "rejected_by_broker"}


def test_a_message_is_rejected_once_rabbitmq_has_failed_several_times_over_this_one_alone_and_then_all_others_go_together() -> None:
    known = Suspects()
    words = []
    for tags in (["bad", "late"], *[["bad"]] * TIMES):
        stage = Stage(suspects=known)
        stage.publish(*tags)
        ends(stage)
        words.append(stage.outcomes["bad"])
    assert words == ["NotConnected"] * TIMES + ["rejected_by_broker"]
    stage = Stage(suspects=known)
    stage.publish("late", "later")
    assert stage.wire.published == 2


def test_a_message_that_was_taken_after_all_begins_anew() -> None:
    known = Suspects()
    for _ in range(TIMES - 1):
        stage = Stage(suspects=known)
        stage.publish("unlucky")
        ends(stage)
    stage = Stage(suspects=known)
    stage.publish("unlucky")
    stage.ack(1)
    stage = Stage(suspects=known)
    stage.publish("unlucky")
    ends(stage)
    assert stage.outcomes == {"unlucky": "NotConnected"}


def test_while_there_are_suspects_one_message_is_on_the_wire_over_all_exchanges_and_then_all_are_together_again() -> None:
    known = Suspects()
    stage = Stage(suspects=known)
    stage.publish("a", "b")
    ends(stage)
    stage = Stage(suspects=known)
    stage.publish("a")
    stage.publish("b", address="/exchanges/y/k")
    stage.publish("c", "d")
    assert stage.wire.published == 1
    stage.ack(1)
    assert stage.wire.published == 2
    stage.ack(1, channel=2)
    assert stage.wire.published == 4
    ends(stage)
    assert stage.outcomes == {"a": "confirmed", "b": "confirmed", "c": "NotConnected", "d": "NotConnected"}


def test_what_waits_for_a_suspect_that_could_not_be_sent_goes_at_once() -> None:
    known = Suspects()
    known.left = 2
    stage = Stage(suspects=known)
    stage.wire.channels_left = 0
    stage.publish("a", "b")
    assert stage.outcomes == {"a": "refused_by_broker", "b": "refused_by_broker"}


def test_a_suspect_that_is_not_answered_holds_up_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where its queue has no majority. RabbitMQ fails at once, where it does."""
    known = Suspects()
    known.left = 9
    stage = Stage(suspects=known)
    stage.publish("stuck", "late")
    assert stage.wire.published == 1
    monkeypatch.setattr(sink, "_PATIENCE", 0)
    stage.publish()
    assert stage.wire.published == 2


def test_after_one_suspect_was_waited_for_in_vain_no_other_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(sink, "time", SimpleNamespace(monotonic=lambda: now))
    known = Suspects()
    known.left = 9
    stage = Stage(suspects=known)
    stage.publish("stuck", *"abc")
    assert stage.wire.published == 1
    now += sink._PATIENCE
    stage.publish()
    assert stage.wire.published == 4


@pytest.mark.parametrize("reason", [ConnectionClosedByBroker(320, "CONNECTION_FORCED"), StreamLostError("gone")], ids=["forced", "lost"])
def test_a_connection_that_ends_otherwise_makes_no_suspects(reason: Exception) -> None:
    known = Suspects()
    for _ in range(TIMES + 1):
        stage = Stage(suspects=known)
        stage.publish("a")
        ends(stage, reason)
        assert stage.outcomes == {"a": "NotConnected"}
    stage = Stage(suspects=known)
    stage.publish("a", "b")
    assert stage.wire.published == 2


def test_so_many_suspects_are_remembered_and_then_all_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "_MOST", 2)
    known = Suspects()
    for tag in (b"a", b"b", b"c"):
        assert [known.culprit([tag]) for _ in range(TIMES - 1)] == [None] * (TIMES - 1)
    assert known.culprit([b"a"]) is None


def test_a_sink_knows_its_suspects_from_one_connection_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    stages: list[Stage] = []
    left: list[object] = []

    class Link:
        def __init__(self, _: object, session: sink._Publisher, *__: object) -> None:
            stages.append(Stage(session=session))

        def start(self) -> None: ...

        def close(self) -> None:
            left.append(self)

    monkeypatch.setattr(sink, "Link", Link)
    one, heard = sink.RabbitSink(list, timeout=1, impersonates=False), list[Outcome]()
    for _ in range(TIMES):
        one.connect(heard.extend)
        one.publish([Outgoing(b"poison", "/exchanges/x/k", message(b""))])
        stages[-1].run()
        ends(stages[-1])
    assert [word(error) for _, error in heard] == ["NotConnected"] * (TIMES - 1) + ["rejected_by_broker"]
    assert len(left) == TIMES - 1, "each connection but the last has been left"
