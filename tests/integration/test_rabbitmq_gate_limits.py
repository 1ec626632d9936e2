"""What cannot be gated, and what the gate needs the management API for, on a real RabbitMQ."""

from __future__ import annotations

from typing import Any

import httpx
import pika
import pytest
from brokers.common import wait_until

from delaybridge.adapters.base import AdapterError, NotConnected
from integration.gate import BINDINGS, Stage, gated, problems

# --- what cannot be gated ---


def refused(stage: Stage, *exchanges: str) -> str:
    """Why apply refuses; that it changed nothing is part of it."""
    gate = stage.gate(*exchanges)
    with pytest.raises(AdapterError) as refusal:
        gate.apply()
    assert not all(step.done for step in gate.plan())
    assert problems(gate.check())
    assert stage.http.get(f"/queues/%2F/{stage.ingress}").status_code == httpx.codes.NOT_FOUND
    return str(refusal.value)


def test_a_missing_exchange_is_not_invented(stage: Stage) -> None:
    assert "does not exist" in refused(stage)


def test_one_exchange_that_cannot_be_gated_stops_apply_before_any_other_is_touched(stage: Stage) -> None:
    stage.build("topic")
    assert "default exchange" in refused(stage, stage.exchange, "")
    assert {destination for destination, _ in stage.bindings(stage.exchange)} == {stage.name(queue) for queue in BINDINGS["topic"]}


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        ("topic", {"auto_delete": True}, "auto-delete"),
        ("topic", {"internal": True}, "internal"),
        ("direct", {"arguments": {"alternate-exchange": "amq.fanout"}}, "alternate exchange, which wins over a policy"),
    ],
)
def test_an_exchange_that_a_gate_would_break_is_refused(stage: Stage, kind: str, options: dict[str, Any], reason: str) -> None:
    stage.declare(kind, **options)
    assert reason in refused(stage)


def test_exchanges_of_the_names_that_a_gate_needs_are_not_taken_over(stage: Stage) -> None:
    stage.declare("topic")
    stage.declare("fanout", f"{stage.exchange}.real")
    stage.declare("fanout", f"{stage.exchange}.gate")
    assert "is of type fanout, not topic" in refused(stage)


def test_a_binding_by_an_array_is_left_to_its_user_there_and_back_so_that_no_message_is_lost(stage: Stage) -> None:
    arguments = {"x-match": "all", "v": ["a", 1]}
    stage.declare("headers")
    stage.queue("1", stage.exchange, [("", arguments)])
    assert "an array or a table (`v`)" in refused(stage)
    assert stage.publish(stage.exchange, "", {"v": ["a", 1]})
    stage.declare("headers", f"{stage.exchange}.real")
    stage.bind(f"{stage.exchange}.real", stage.name("1"), "", arguments)
    gate = stage.gate()
    assert all(step.done for step in gate.apply())
    assert stage.publish(stage.exchange, "", {"v": ["a", 1]})
    with pytest.raises(AdapterError, match="an array or a table"):
        gate.undo()
    stage.bind(stage.exchange, stage.name("1"), "", arguments)
    assert all(step.done for step in gate.undo())
    assert stage.publish(stage.exchange, "", {"v": ["a", 1]})
    stage.wait_for("1", 3)


# --- what docs/interception.md says can go past it ---


def test_a_queue_that_only_its_consumer_can_bind_stands_in_the_way_of_an_undo_until_that_has_bound_it(stage: Stage) -> None:
    stage.build("topic")
    stage.gate().apply()
    mine = stage.channel.queue_declare("", exclusive=True).method.queue
    stage.channel.queue_bind(mine, f"{stage.exchange}.real", "a.#")

    with pytest.raises(AdapterError, match=f"queue `{mine}` is bound to `{stage.exchange}.real` and exclusive to its consumer"):
        stage.gate().undo()
    stage.channel.queue_bind(mine, stage.exchange, "a.#")

    assert all(step.done for step in stage.gate().undo())
    stage.publish(stage.exchange, "a.b", {}, b"1")
    wait_until(lambda: stage.channel.basic_get(mine, auto_ack=True)[2] == b"1", "the message")


def test_an_unbinding_from_the_gated_exchange_has_no_effect_on_a_binding_that_was_moved(stage: Stage) -> None:
    stage.declare("topic")
    stage.queue("1", stage.exchange, [("a", {})])
    stage.gate().apply()
    stage.channel.queue_unbind(stage.name("1"), stage.exchange, "a")
    assert stage.publish(stage.exchange, "a", {}, b"1")
    stage.channel.queue_unbind(stage.name("1"), f"{stage.exchange}.real", "a")
    assert not stage.publish(stage.exchange, "a", {}, b"2")
    assert stage.bodies("1") == [1]


def test_no_delay_by_a_header_is_routed_to_the_bridge_and_not_returned(stage: Stage) -> None:
    stage.declare("topic")
    stage.gate().apply()
    assert not stage.publish(stage.exchange, "nobody", {})
    assert stage.publish(stage.exchange, "nobody", {"x-delay": 0})


def test_the_bridge_sees_cc_and_never_bcc(stage: Stage) -> None:
    stage.declare("topic")
    stage.gate().apply()
    stage.publish(stage.exchange, "a", {"x-delay": 5, "CC": ["b"], "BCC": ["c"]})
    ((_, properties, _),) = stage.take(stage.ingress)
    assert properties.headers == {"x-delay": 5, "CC": ["b"]}


def test_a_message_that_expires_while_no_bridge_runs_is_gone(stage: Stage) -> None:
    stage.declare("topic")
    stage.gate().apply()
    headers = pika.BasicProperties(headers={"x-delay": 60_000}, expiration="1")
    stage.channel.basic_publish(stage.exchange, "a", b"", headers)
    stage.publish(stage.exchange, "a", {"x-delay": 60_000}, b"lasts")
    wait_until(lambda: stage.count(stage.ingress) == 1, "RabbitMQ to drop what has expired")
    assert [body for _, _, body in stage.take(stage.ingress)] == [b"lasts"]


# --- without the management API ---


def test_a_plain_ingress_queue_needs_no_management_api(stage: Stage) -> None:
    plain = gated(stage.url, None, stage.ingress)
    assert [step.done for step in plain.plan()] == [False]
    assert [step.done for step in plain.apply()] == [True]
    assert problems(plain.check()) == [f"queue `{stage.ingress}` has no consumers"]


def test_a_gate_without_the_management_api_says_what_it_needs(stage: Stage) -> None:
    stage.build("topic")
    gate = stage.gate(management=False)
    assert [step.done for step in gate.plan()] == [False, False]
    with pytest.raises(AdapterError, match="management_url"):
        gate.apply()
    assert any("management_url" in problem for problem in problems(gate.check()))


def test_an_unreachable_management_api_is_a_finding_and_not_a_crash(stage: Stage) -> None:
    gate = gated(stage.url, "http://127.0.0.1:1", stage.ingress, stage.exchange)
    assert any("does not answer" in problem for problem in problems(gate.check()))
    with pytest.raises(NotConnected):
        gate.apply()
