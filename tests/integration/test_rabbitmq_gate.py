"""The gate against a real RabbitMQ, with producers and consumers that know nothing of it. A stand-in takes the bridge's part."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from brokers.common import wait_until

from delaybridge.adapters.rabbitmq import amqp
from delaybridge.adapters.rabbitmq.management import Call, Management
from delaybridge.core.headers import DELAY_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable


from integration.gate import BINDINGS, MESSAGES, TYPES, Stage, Traffic, problems

# --- routing ---


@pytest.mark.parametrize("kind", TYPES)
def test_only_delayed_messages_take_the_way_to_the_bridge(stage: Stage, kind: str) -> None:
    """Undelayed ones reach the queues that they reached before; delayed ones reach the ingress queue only, under the producer's exchange and key."""
    stage.build(kind)
    assert all(step.done for step in stage.gate().apply())
    for key, headers, queues in MESSAGES[kind]:
        assert stage.publish(stage.exchange, key, headers, b"1")
        assert {queue for queue in BINDINGS[kind] if stage.bodies(queue)} == set(queues)
        assert stage.publish(stage.exchange, key, {**headers, "x-delay": 5_000}, b"2")
        assert not any(stage.bodies(queue) for queue in BINDINGS[kind])
        [(method, properties, _)] = stage.take(stage.ingress)
        assert (method.exchange, method.routing_key) == (stage.exchange, key)
        assert properties.headers == {**headers, "x-delay": 5_000}


@pytest.mark.parametrize("kind", TYPES)
def test_what_the_bridge_publishes_when_due_reaches_the_consumers_and_never_the_gate(stage: Stage, kind: str) -> None:
    """Also with the negated header that the plugin's users expect."""
    stage.build(kind)
    stage.gate().apply()
    for key, headers, queues in MESSAGES[kind]:
        assert stage.publish(f"{stage.exchange}.real", key, {**headers, "x-delay": -5_000}, b"1")
        assert {queue for queue in BINDINGS[kind] if stage.bodies(queue)} == set(queues)
    assert stage.take(stage.ingress) == []


def test_every_header_that_asks_something_of_the_bridge_is_caught(stage: Stage) -> None:
    stage.build("fanout")
    stage.gate().apply()
    values = itertools.cycle([1, "text", None, True, b"\xff"])
    for name in DELAY_NAMES:
        stage.publish(stage.exchange, "", {name.decode(): next(values)}, b"1")
    assert len(stage.take(stage.ingress)) == len(DELAY_NAMES)
    assert stage.bodies("1") == []


@pytest.mark.parametrize("kind", ["direct", "topic", "headers"])
def test_a_message_that_no_queue_takes_is_still_returned_to_its_publisher(stage: Stage, kind: str) -> None:
    stage.declare(kind)
    stage.queue("1", stage.exchange, [("a", {"x-match": "all", "kind": 1} if kind == "headers" else {})])
    assert not stage.publish(stage.exchange, "b")
    stage.gate().apply()
    assert not stage.publish(stage.exchange, "b"), "the producer"
    assert not stage.publish(f"{stage.exchange}.real", "b"), "the bridge"
    assert stage.publish(stage.exchange, "b", {"x-delay": 1}), "delayed: whether it can be routed is asked when it is due"


def test_consumers_that_bind_to_real_later_get_delayed_and_undelayed_messages(stage: Stage) -> None:
    """Also under a key that nobody had when the gate was made: the policy's part."""
    stage.build("direct")
    stage.gate().apply()
    stage.queue("9", f"{stage.exchange}.real", [("new", {})])
    assert stage.publish(stage.exchange, "new", {}, b"1")
    assert stage.publish(stage.exchange, "new", {"x-delay": 1}, b"2")
    assert stage.bodies("9") == [1]
    assert len(stage.take(stage.ingress)) == 1


# --- apply while producers publish ---


@pytest.mark.parametrize("kind", TYPES)
def test_apply_and_undo_lose_and_double_no_undelayed_message(stage: Stage, kind: str) -> None:
    stage.build(kind)
    gate = stage.gate()
    with Traffic(stage, kind) as traffic:
        gate.apply()
        traffic.wait()
        assert stage.bindings(f"{stage.exchange}.real") > set()
        gate.undo()
        traffic.wait()
    traffic.assert_each_once()
    queues = {stage.name(queue) for queue in BINDINGS[kind]}
    assert {destination for destination, _ in stage.bindings(stage.exchange)} == queues


class Stopped(Exception):
    """The machine was switched off, in a test."""


def stopping_after(calls: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Let so many changes through, then stop; tells whether it came to that."""
    left = itertools.count(calls, -1)
    stopped = []

    def limited(real: Callable[..., None]) -> Callable[..., None]:
        def change(*arguments: Any) -> None:
            if next(left) <= 0:
                stopped.append(True)
                raise Stopped
            real(*arguments)

        return change

    monkeypatch.setattr(Management, "do", limited(Management.do))
    monkeypatch.setattr(amqp, "bind", limited(amqp.bind))
    return lambda: bool(stopped)


@pytest.mark.parametrize("kind", ["direct", "topic"])
def test_apply_can_be_stopped_after_each_change_and_run_again(stage: Stage, kind: str) -> None:
    url, management_url = stage.url, stage.management_url
    for calls in itertools.count():
        stage = Stage(url, management_url)
        stage.build(kind)
        with Traffic(stage, kind) as traffic:
            with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Stopped):
                stopped = stopping_after(calls, patch)
                stage.gate().apply()
            traffic.wait(20)
            assert all(step.done for step in stage.gate().apply())
            traffic.wait(20)
        traffic.assert_each_once()
        assert {destination for destination, _ in stage.bindings(stage.exchange)} == {f"{stage.exchange}.gate"}
        stage.clear()
        if not stopped():
            break
    assert calls > 10


@pytest.mark.parametrize("kind", ["direct", "topic"])
def test_undo_tells_what_it_took_away(stage: Stage, kind: str) -> None:
    stage.build(kind)
    gate = stage.gate()
    gate.apply()
    told = {step.what: step.done for step in gate.undo()}
    assert all(told.values())
    assert any(what.startswith(f"`{stage.exchange}` no longer leads to exchange `{stage.exchange}.gate`") for what in told)
    assert (f"policy `{stage.exchange}.gate` is gone" in told) == (kind == "direct")


def test_a_second_apply_changes_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.build("direct")
    stage.gate().apply()
    stopped = stopping_after(0, monkeypatch)
    assert all(step.done for step in stage.gate().apply())
    assert not stopped()


def test_plan_changes_nothing_and_names_every_change_that_apply_makes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.build("topic")
    with pytest.MonkeyPatch.context() as patch:
        stopped = stopping_after(0, patch)
        steps = stage.gate().plan()
        assert not stopped()
    made: list[Call] = []
    do = Management.do

    def recorded(api: Management, call: Call) -> None:
        made.append(call)
        do(api, call)

    monkeypatch.setattr(Management, "do", recorded)
    stage.gate().apply()
    assert not any(step.done for step in steps)
    assert len(steps) == len(made) + 1  # the gate's own binding is made by AMQP


@pytest.mark.skipif(shutil.which("curl") is None, reason="the commands need curl")
@pytest.mark.parametrize("kind", ["direct", "headers"])
def test_the_commands_of_the_plan_pasted_in_order_do_what_apply_does(stage: Stage, kind: str) -> None:
    stage.build(kind)
    parts = urlsplit(stage.url)
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RABBITMQ_URL": stage.url,
        "RABBITMQ_PASSWORD": parts.password or "",
    }
    for step in stage.gate().plan():
        subprocess.run(step.command, shell=True, check=True, env=environment, capture_output=True)
    assert all(step.done for step in stage.gate().plan())
    assert problems(stage.gate().check()) == [f"queue `{stage.ingress}` has no consumers"]


# --- what users have already ---


def test_a_policy_of_the_users_is_merged_and_its_alternate_exchange_still_gets_what_cannot_be_routed(stage: Stage) -> None:
    stage.declare("fanout", f"{stage.exchange}-unrouted")
    stage.queue("u", f"{stage.exchange}-unrouted", [("", {})])
    definition = {"alternate-exchange": f"{stage.exchange}-unrouted"}
    stage.policy(f"{stage.exchange}-users", pattern=f"^{stage.exchange}", definition=definition, priority=7, **{"apply-to": "all"})
    stage.build("direct")
    stage.gate().apply()
    applied = stage.http.get(f"/policies/%2F/{stage.exchange}.gate").json()
    assert applied["priority"] == 8
    assert stage.publish(stage.exchange, "unknown", {}, b"1")
    assert stage.publish(stage.exchange, "unknown", {"x-delay": 5}, b"2")
    assert stage.bodies("u") == [1]
    assert problems(stage.gate().check()) == [f"queue `{stage.ingress}` has no consumers"]


@pytest.mark.parametrize("kind", TYPES)
def test_an_alternate_exchange_that_is_set_after_gating_is_not_claimed_to_work_until_it_does(stage: Stage, kind: str) -> None:
    """The gate takes everything, so the exchange's own alternate is never asked: that of `.real` has to be the same."""
    alternate = f"{stage.exchange}-unrouted"
    stage.declare("fanout", alternate)
    stage.queue("u", alternate, [("", {})])
    stage.declare(kind)
    gate = stage.gate()
    assert all(step.done for step in gate.apply())
    policy = {"definition": {"alternate-exchange": alternate}, "apply-to": "exchanges"}
    stage.policy(f"{stage.exchange}-users", pattern=f"^{stage.exchange}$", **policy)
    (left,) = [step.what for step in gate.apply() if not step.done]
    assert f"goes nowhere, not to `{alternate}`" in left
    assert f"for `{stage.exchange}.real` as well" in left
    assert any("goes nowhere" in problem for problem in problems(gate.check()))
    assert not any(f"what cannot be routed goes on to `{alternate}`" in step.what for step in gate.plan())

    stage.policy(f"{stage.exchange}-real", pattern=f"^{stage.exchange}.real$", **policy)

    wait_until(lambda: all(step.done for step in gate.plan()), "the alternate exchange to be in force")
    assert stage.publish(stage.exchange, "unknown", {}, b"1")
    assert stage.bodies("u") == [1]


def test_an_alternate_exchange_of_the_users_own_declaration_is_kept(stage: Stage) -> None:
    stage.declare("fanout", f"{stage.exchange}-unrouted")
    stage.queue("u", f"{stage.exchange}-unrouted", [("", {})])
    stage.declare("topic", arguments={"alternate-exchange": f"{stage.exchange}-unrouted"})
    stage.queue("1", stage.exchange, [("a", {})])
    stage.gate().apply()
    assert stage.publish(stage.exchange, "unknown", {}, b"1")
    assert stage.publish(stage.exchange, "a", {}, b"2")
    assert stage.publish(stage.exchange, "unknown", {"x-delay": 5}, b"3")
    assert (stage.bodies("u"), stage.bodies("1")) == ([1], [2])
    assert len(stage.take(stage.ingress)) == 1


def test_what_is_due_and_cannot_be_routed_goes_past_the_gate_of_a_gated_alternate_exchange(stage: Stage) -> None:
    """Which would catch it, for it bears its header still: the bridge would get it again and again."""
    alternate = f"{stage.exchange}-unrouted"
    stage.declare("fanout", alternate)
    stage.queue("u", alternate, [("", {})])
    stage.declare("topic", arguments={"alternate-exchange": alternate})
    stage.queue("1", stage.exchange, [("a", {})])
    gate = stage.gate(stage.exchange, alternate)
    gate.apply()
    assert problems(gate.check()) == [f"queue `{stage.ingress}` has no consumers"]

    for exchange in (stage.exchange, alternate):
        assert stage.publish(exchange, "unknown", {"x-delay": 5}, b"0")
    assert len(stage.take(stage.ingress)) == 2
    assert stage.publish(f"{stage.exchange}.real", "unknown", {"x-delay": -5}, b"1")
    assert stage.publish(stage.exchange, "unknown", {}, b"2")
    assert stage.bodies("u") == [1, 2]
    assert not stage.take(stage.ingress)


def test_an_exchange_bound_to_the_gated_one_is_led_round_the_gate_so_that_nothing_can_come_twice(stage: Stage) -> None:
    source = f"{stage.exchange}-source"
    stage.build("topic")
    stage.declare("topic", source)
    stage.channel.exchange_bind(stage.exchange, source, "a.*")
    stage.gate().apply()
    assert stage.publish(source, "a.c", {}, b"1")
    assert stage.publish(source, "a.c", {"x-delay": 5}, b"2")
    assert {queue: stage.bodies(queue) for queue in BINDINGS["topic"]} == {"1": [1, 2], "2": [], "3": [1, 2], "4": [1, 2]}
    assert stage.take(stage.ingress) == []


def test_two_gated_exchanges_that_are_bound_to_each_other(stage: Stage) -> None:
    source = f"{stage.exchange}-source"
    stage.build("topic")
    stage.declare("direct", source)
    stage.channel.exchange_bind(stage.exchange, source, "a.c")
    gate = stage.gate(stage.exchange, source)
    assert all(step.done for step in gate.apply())
    assert stage.publish(source, "a.c", {}, b"1")
    assert stage.publish(source, "a.c", {"x-delay": 5}, b"2")
    assert stage.publish(f"{source}.real", "a.c", {"x-delay": -5}, b"3")
    assert {queue: stage.bodies(queue) for queue in BINDINGS["topic"]} == {"1": [1, 3], "2": [], "3": [1, 3], "4": [1, 3]}
    assert [method.exchange for method, _, _ in stage.take(stage.ingress)] == [source]


def test_names_and_keys_may_hold_any_character(stage: Stage) -> None:
    odd = f"{stage.exchange} a/b%2Fü~#?"
    stage.exchange = odd
    stage.ingress = f"{odd}.in"
    stage.declare("direct")
    stage.queue("1", odd, [("k ~%7E/#?ü", {})])
    assert all(step.done for step in stage.gate().apply())
    assert stage.publish(odd, "k ~%7E/#?ü", {}, b"1")
    assert stage.publish(odd, "k ~%7E/#?ü", {"x-delay": 1}, b"2")
    assert stage.bodies("1") == [1]


def test_an_exclusive_queue_stays_where_it_is_and_still_gets_each_undelayed_message_once(stage: Stage) -> None:
    stage.build("fanout")
    with stage.connected() as channel:
        name = f"{stage.exchange}.exclusive"
        channel.queue_declare(name, exclusive=True)
        channel.queue_bind(name, stage.exchange)
        stage.gate().apply()
        stage.publish(stage.exchange, "", {}, b"1")
        got: list[Any] = [channel.basic_get(name, auto_ack=True)[2] for _ in range(2)]
        assert got == [b"1", None]
        assert [stage.bodies(queue) for queue in "123"] == [[1], [1], [1]]
        assert any(f"by-pass: queue `{name}`" in problem for problem in problems(stage.gate().check()))
