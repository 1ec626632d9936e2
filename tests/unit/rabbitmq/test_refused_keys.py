"""Routing keys that the bridge has no right to write, as by RabbitMQ's topic permissions, beside others of the same exchange."""

from __future__ import annotations

import pytest
from pika.exceptions import ChannelClosedByBroker

from delaybridge.adapters.rabbitmq import outlet

from .sink_stage import Stage

BAD = "/exchanges/x/bad"


def refuse(stage: Stage, channel: int) -> None:
    stage.wire.open[channel].breaks(ChannelClosedByBroker(403, "the broker's words"))


@pytest.fixture
def stage() -> Stage:
    """Its next channel is the second one; the key of BAD was refused over the first."""
    one = Stage()
    one.publish("first", address=BAD)
    refuse(one, 1)
    return one


def test_what_is_tried_again_at_a_refused_key_waits_for_what_is_on_the_wire_so_that_a_refusal_doubles_nothing(stage: Stage) -> None:
    stage.publish("a", "b")
    assert stage.wire.published == 1 + len("ab")
    stage.publish("again", address=BAD)
    assert stage.wire.published == 1 + len("ab")
    stage.ack(2, channel=2, multiple=True)
    assert stage.wire.published == 1 + len("ab") + 1
    refuse(stage, 2)
    assert stage.wire.published == 1 + len("ab") + 1
    assert stage.outcomes == {"first": "refused_by_broker", "a": "confirmed", "b": "confirmed", "again": "refused_by_broker"}


def test_what_comes_while_a_refused_key_is_tried_again_waits_for_the_answer_and_is_published_once(stage: Stage) -> None:
    stage.publish("again", address=BAD)
    stage.publish("a", "b")
    assert stage.wire.published == 1 + 1
    refuse(stage, 2)
    assert stage.wire.published == 1 + 1 + len("ab")
    stage.ack(2, channel=3, multiple=True)
    assert stage.outcomes == {"first": "refused_by_broker", "again": "refused_by_broker", "a": "confirmed", "b": "confirmed"}


def test_a_key_that_may_be_written_again_goes_together_with_others(stage: Stage) -> None:
    stage.publish("again", address=BAD)
    stage.ack(1, channel=2)
    stage.publish("a")
    stage.publish("b", address=BAD)
    assert stage.wire.published == 1 + 1 + len("ab")


def test_a_message_that_is_refused_for_itself_says_nothing_of_its_key() -> None:
    stage = Stage()
    stage.publish("too large", address=BAD)
    stage.wire.open[1].breaks(ChannelClosedByBroker(406, "the broker's words"))
    stage.publish("a")
    stage.publish("b", address=BAD)
    assert stage.wire.published == 1 + len("ab")


def test_of_keys_that_are_refused_and_never_tried_again_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet, "_KEYS", 2)
    stage = Stage()
    for number in range(3):
        stage.publish(str(number), address=f"/exchanges/x/{number}")
        refuse(stage, 1 + number)
    stage.publish("a", "b")
    stage.publish("free", address="/exchanges/x/0")
    assert stage.wire.published == 3 + len("ab") + 1
    stage.publish("alone", address="/exchanges/x/2")
    assert stage.wire.published == 3 + len("ab") + 1
