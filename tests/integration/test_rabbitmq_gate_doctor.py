"""What `doctor` finds about a gate, and its probe, on a real RabbitMQ."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import pytest
from brokers.common import wait_until

from delaybridge.adapters.base import AdapterError
from delaybridge.adapters.rabbitmq import probe
from delaybridge.core.headers import DELAY_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator


from integration.gate import BINDINGS, MESSAGES, TYPES, Stage, gated, problems

# --- check ---


def test_check_finds_a_binding_that_came_back_and_apply_takes_it_away_again(stage: Stage) -> None:
    """A consumer that declares its binding at each start. The other consumers must not notice."""
    stage.build("fanout")
    stage.gate().apply()
    stage.channel.queue_bind(stage.name("1"), stage.exchange)
    assert any("by-pass" in problem for problem in problems(stage.gate().check()))
    stage.publish(stage.exchange, "", {}, b"1")
    assert [stage.bodies(queue) for queue in "123"] == [[1], [1], [1]]
    stage.gate().apply()
    assert not any("by-pass" in problem for problem in problems(stage.gate().check()))
    stage.publish(stage.exchange, "", {"x-delay": 5}, b"2")
    assert [stage.bodies(queue) for queue in "123"] == [[], [], []]


@pytest.mark.parametrize("kind", TYPES)
def test_a_binding_that_came_back_takes_no_undelayed_message_from_other_consumers(stage: Stage, kind: str) -> None:
    stage.build(kind)
    stage.gate().apply()
    for key, arguments in BINDINGS[kind]["1"]:
        stage.channel.queue_bind(stage.name("1"), stage.exchange, key, arguments)
    for key, headers, queues in MESSAGES[kind]:
        stage.publish(stage.exchange, key, headers, b"1")
        assert {queue: stage.bodies(queue) for queue in BINDINGS[kind]} == {
            queue: [1] if queue in queues else [] for queue in BINDINGS[kind]
        }


def test_check_finds_a_gate_behind_which_nothing_is_bound(stage: Stage) -> None:
    stage.declare("topic")
    stage.gate().apply()
    assert any(f"nothing is bound to `{stage.exchange}.real`" in problem for problem in problems(stage.gate().check()))
    stage.queue("1", f"{stage.exchange}.real", [("#", {})])
    assert problems(stage.gate().check()) == [f"queue `{stage.ingress}` has no consumers"]


def test_an_older_gate_that_misses_a_header_is_found_and_brought_up_to_date(stage: Stage) -> None:
    stage.build("topic")
    stage.gate().apply()
    gate = f"{stage.exchange}.gate"
    names = {name.decode(): None for name in DELAY_NAMES}
    stage.channel.queue_unbind(stage.ingress, gate, "", {"x-match": "any-with-x", **names})
    stage.channel.queue_bind(stage.ingress, gate, "", {"x-match": "any-with-x", "x-delay": None})
    assert any(f"missing: `{gate}` leads messages with a delay header" in problem for problem in problems(stage.gate().check()))
    assert all(step.done for step in stage.gate().apply())
    assert stage.bindings(gate) == {(stage.ingress, "")}
    assert problems(stage.gate().check()) == [f"queue `{stage.ingress}` has no consumers"]


def test_check_finds_a_policy_that_outranks_the_gates(stage: Stage) -> None:
    stage.build("direct")
    stage.gate().apply()
    both = f"^{stage.exchange}(.real)?$"
    stage.policy(f"{stage.exchange}-later", pattern=both, definition={"alternate-exchange": "amq.fanout"}, priority=50)
    assert any("missing: policy" in problem for problem in problems(stage.gate().check()))
    assert all(step.done for step in stage.gate().apply())


def test_check_finds_an_exchange_that_leads_to_the_gate_as_its_alternate(stage: Stage) -> None:
    stage.build("topic")
    stage.gate().apply()
    stage.declare("direct", f"{stage.exchange}-first", arguments={"alternate-exchange": stage.exchange})
    assert any("as its alternate exchange" in problem for problem in problems(stage.gate().check()))


def test_a_wrong_password_is_told_in_a_sentence(stage: Stage) -> None:
    wrong = stage.management_url.replace("guest:guest", "guest:wrong")
    with pytest.raises(AdapterError, match="needs the right password and the tag"):
        gated(stage.url, wrong, stage.ingress, stage.exchange).plan()


def test_a_user_that_is_no_administrator_can_apply_and_check(stage: Stage) -> None:
    stage.build("direct")
    with stage.user("policymaker,monitoring") as (url, management_url):
        gate = gated(url, management_url, stage.ingress, stage.exchange)
        assert all(step.done for step in gate.apply())
        assert problems(gate.check()) == [f"queue `{stage.ingress}` has no consumers"]


def test_check_finds_what_the_bridges_user_has_no_permission_for(stage: Stage) -> None:
    stage.build("fanout")
    stage.gate().apply()
    with stage.user("administrator", write="^nothing$", read="^nothing$") as (url, management_url):
        found = problems(gated(url, management_url, stage.ingress, stage.exchange).check())
    user = f"user `{stage.exchange}-user` may not"
    assert {f"{user} read `{stage.ingress}`", f"{user} write `{stage.exchange}.real`"} < set(found)


def test_check_looks_at_the_permissions_of_the_user_who_publishes_though_another_reads_the_management_api(stage: Stage) -> None:
    stage.build("fanout")
    stage.gate().apply()
    with stage.user("", write="^nothing$") as (url, _):
        found = problems(gated(url, stage.management_url, stage.ingress, stage.exchange).check())
    assert f"user `{stage.exchange}-user` may not write `{stage.exchange}.real`" in found


def test_a_gate_is_built_by_the_user_of_the_management_api_alone(stage: Stage) -> None:
    """Bindings that only AMQP can make included: the bridge's own user may neither write to the ingress queue nor read from the gate."""
    stage.build("fanout")
    stage.channel.queue_declare(stage.ingress, durable=True)
    with stage.user("", configure="^$", write="^$", read="^$") as (url, _):
        gate = gated(url, stage.management_url, stage.ingress, stage.exchange)
        assert all(step.done for step in gate.apply())
        assert all(step.done for step in gate.plan())


@pytest.mark.parametrize(("write", "told"), [("", "may not write"), ("(?<x>orders)", "none of Python's")])
def test_patterns_are_read_as_rabbitmq_reads_them_or_not_at_all(stage: Stage, write: str, told: str) -> None:
    stage.build("fanout")
    stage.gate().apply()
    with stage.user("administrator", write=write) as (url, management_url):
        found = [finding.what for finding in gated(url, management_url, stage.ingress, stage.exchange).check()]
    assert any(told in what and f"`{stage.exchange}.real`" in what for what in found)


def test_check_finds_by_what_an_ingress_queue_loses_messages(stage: Stage) -> None:
    stage.channel.queue_declare(stage.ingress, durable=True, arguments={"x-max-length": 5})
    stage.policy(f"{stage.exchange}-users", pattern=f"^{stage.exchange}", definition={"message-ttl": 60_000}, **{"apply-to": "queues"})
    operator = f"/operator-policies/%2F/{stage.exchange}-operators"
    body = {"pattern": f"^{stage.exchange}", "definition": {"expires": 90_000}, "apply-to": "queues"}
    stage.http.put(operator, json=body).raise_for_status()
    gate = gated(stage.url, stage.management_url, stage.ingress)
    try:
        wait_until(lambda: len(problems(gate.check())) == 4, "RabbitMQ to apply the policies")
        found = problems(gate.check())
    finally:
        stage.http.delete(operator).raise_for_status()
    policies = f"policy `{stage.exchange}-users` or `{stage.exchange}-operators`"
    assert found[:3] == [
        f"queue `{stage.ingress}` drops what no bridge took within 60000 ms (`message-ttl` in {policies})",
        f"queue `{stage.ingress}` is deleted, with all that is in it, when no bridge has read it for 90000 ms (`expires` in {policies})",
        f"queue `{stage.ingress}` holds 5 messages: RabbitMQ drops or refuses what is more (argument `x-max-length`)",
    ]


@pytest.mark.parametrize("kind", ["direct", "topic"])
def test_check_finds_a_gate_that_the_configuration_names_no_more(stage: Stage, kind: str) -> None:
    stage.build(kind)
    stage.gate().apply()
    without = gated(stage.url, stage.management_url, stage.ingress)
    assert any(f"`{stage.exchange}` is gated, but no route names it" in problem for problem in problems(without.check()))
    assert not any("is gated, but" in problem for problem in problems(stage.gate().check()))
    stage.gate().undo()
    assert not any("is gated, but" in problem for problem in problems(without.check()))


def test_check_counts_the_consumers_of_an_ingress_queue_that_are_more_than_one_bridge(stage: Stage) -> None:
    plain = gated(stage.url, None, stage.ingress)
    plain.apply()
    with stage.connected() as first, stage.connected() as second:
        first.basic_consume(stage.ingress, lambda *_: None)
        assert plain.crowds() == {}
        second.basic_consume(stage.ingress, lambda *_: None)
        assert plain.crowds() == {stage.ingress: 2}


# --- probe ---


@contextlib.contextmanager
def bridge(stage: Stage, wait: float = 0.3) -> Iterator[None]:
    """A stand-in that sends what it takes in to `x-delay-to`, `wait` seconds later."""
    stop = threading.Event()

    def run() -> None:
        with stage.connected() as channel:
            for _, properties, body in channel.consume(stage.ingress, auto_ack=True, inactivity_timeout=0.05):
                if stop.is_set():
                    return
                if properties is not None and properties.headers and body is not None:
                    time.sleep(wait)
                    channel.basic_publish("", properties.headers["x-delay-to"].rpartition("/")[2], body)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_probe_proves_queue_and_gate_end_to_end_and_no_consumer_sees_it(stage: Stage) -> None:
    stage.build("fanout")
    gate = stage.gate()
    gate.apply()
    with bridge(stage):
        findings = gate.probe()
    assert [finding.ok for finding in findings] == [True, True]
    assert f"`{stage.exchange}`" in findings[1].what
    assert [stage.bodies(queue) for queue in "123"] == [[], [], []]


def test_a_probe_that_comes_too_early_is_a_problem(stage: Stage) -> None:
    gate = stage.gate()
    stage.build("topic")
    gate.apply()
    with bridge(stage, wait=0.0):
        assert any("too early" in problem for problem in problems(gate.probe()))


def test_a_probe_that_does_not_come_back_is_a_problem(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PATIENCE", 0.2)
    gate = stage.gate()
    stage.build("topic")
    gate.apply()
    assert any("did not come back" in problem for problem in problems(gate.probe()))
    wait_until(lambda: stage.count(stage.ingress) == 0, "the probe to vanish, which nobody waits for any more")


def test_no_probe_is_sent_through_a_gate_that_consumers_go_round(stage: Stage) -> None:
    stage.build("fanout")
    gate = stage.gate()
    gate.apply()
    stage.channel.queue_bind(stage.name("1"), stage.exchange)
    with bridge(stage):
        assert any("no probe was sent" in problem for problem in problems(gate.probe()))
    assert stage.bodies("1") == []
