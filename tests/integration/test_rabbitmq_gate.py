"""The gate against a real RabbitMQ, with producers and consumers that know nothing of it. A stand-in takes the bridge's part."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlsplit

import httpx
import pika
import pika.exceptions
import pytest
from brokers.rabbitmq import wait_until
from pika.exchange_type import ExchangeType

from delaybridge.adapters import rabbitmq_probe
from delaybridge.adapters.base import AdapterError, Finding, NotConnected
from delaybridge.adapters.rabbitmq import adapter
from delaybridge.adapters.rabbitmq_management import Call, Management
from delaybridge.core.headers import DELAY_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pika.adapters.blocking_connection import BlockingChannel

    from delaybridge.adapters.rabbitmq_gate import RabbitGate

TYPES = ("direct", "topic", "fanout", "headers")

# Per exchange type: the bindings of each queue (key, arguments), the messages that go round (key, headers), and the queues that each reaches.
BINDINGS: dict[str, dict[str, list[tuple[str, dict[str, Any]]]]] = {
    "direct": {"1": [("a", {})], "2": [("a", {}), ("b", {})], "3": [("c", {})]},
    "topic": {"1": [("a.*", {})], "2": [("*.b", {})], "3": [("#", {})], "4": [("a.#", {}), ("a.b", {})]},
    "fanout": {"1": [("", {})], "2": [("any", {}), ("", {})], "3": [("", {})]},
    "headers": {
        "1": [("", {"x-match": "all", "kind": 1, "colour": "red"})],
        "2": [("", {"x-match": "any", "kind": 2, "colour": "red"})],
        "3": [("", {"x-match": "any", "size": None})],
        "4": [("", {"x-match": "all", "ratio": 0.5})],
    },
}
MESSAGES: dict[str, list[tuple[str, dict[str, Any], str]]] = {
    "direct": [("a", {}, "12"), ("b", {}, "2"), ("c", {}, "3")],
    "topic": [("a.b", {}, "1234"), ("a.c", {}, "134"), ("x.b", {}, "23"), ("x", {}, "3"), ("a.b.c", {}, "34")],
    "fanout": [("", {}, "123"), ("any", {}, "123")],
    "headers": [("", {"kind": 1, "colour": "red"}, "12"), ("", {"kind": 2, "size": 7}, "23"), ("", {"size": "large"}, "3")],
}


def gated(url: str, management_url: str | None, queue: str, *exchanges: str) -> RabbitGate:
    options = adapter.options.model_validate({"url": url, "management_url": management_url})
    return adapter.interception(options, [adapter.endpoint(queue=queue, gate=exchanges)])


class Stage:
    """One exchange of a user's with queues, on names of its own."""

    def __init__(self, url: str, management_url: str) -> None:
        self.url, self.management_url = url, management_url
        self.exchange = f"gate-{secrets.token_hex(6)}"
        self.ingress = f"{self.exchange}.in"
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()
        self.http = httpx.Client(base_url=f"{management_url}/api", trust_env=False)

    def gate(self, *exchanges: str, management: bool = True) -> RabbitGate:
        return gated(self.url, self.management_url if management else None, self.ingress, *(exchanges or (self.exchange,)))

    def name(self, queue: str) -> str:
        return f"{self.exchange}.q{queue}"

    def declare(self, kind: str, name: str = "", **options: Any) -> None:
        self.channel.exchange_declare(name or self.exchange, ExchangeType(kind), durable=True, **options)

    def queue(self, queue: str, source: str, bindings: Sequence[tuple[str, dict[str, Any]]]) -> None:
        self.channel.queue_declare(self.name(queue), durable=True)
        for key, arguments in bindings:
            self.bind(source, self.name(queue), key, arguments)

    def bind(self, source: str, queue: str, key: str, arguments: dict[str, Any]) -> None:
        """Floats go over the management API, as a Java client would send them: pika cannot."""
        if not any(isinstance(value, float) for value in arguments.values()):
            self.channel.queue_bind(queue, source, key, arguments)
            return
        self.http.post(f"/bindings/%2F/e/{source}/q/{queue}", json={"routing_key": key, "arguments": arguments}).raise_for_status()

    def build(self, kind: str, **options: Any) -> None:
        self.declare(kind, **options)
        for queue, bindings in BINDINGS[kind].items():
            self.queue(queue, self.exchange, bindings)

    def publish(self, exchange: str, key: str, headers: dict[str, Any] | None = None, body: bytes = b"") -> bool:
        """Whether some queue took it."""
        with self.connected() as channel:
            channel.confirm_delivery()
            try:
                channel.basic_publish(exchange, key, body, pika.BasicProperties(headers=headers or {}), mandatory=True)
            except pika.exceptions.UnroutableError:
                return False
            return True

    @contextlib.contextmanager
    def connected(self) -> Iterator[BlockingChannel]:
        connection = pika.BlockingConnection(pika.URLParameters(self.url))
        try:
            yield connection.channel()
        finally:
            connection.close()

    def count(self, queue: str) -> int:
        return self.channel.queue_declare(queue, passive=True).method.message_count or 0

    def wait_for(self, queue: str, least: int) -> None:
        wait_until(lambda: self.count(self.name(queue)) >= least, f"{least} messages in queue {queue}")

    def take(self, queue: str) -> list[Any]:
        """All (method, properties, body) that wait in a queue."""
        count = self.count(queue)
        found = list(itertools.islice(self.channel.consume(queue, auto_ack=True), count)) if count else []
        self.channel.cancel()
        return found

    def bodies(self, queue: str) -> list[int]:
        return [int(body) for _, _, body in self.take(self.name(queue))]

    def bindings(self, source: str) -> set[tuple[str, str]]:
        found = self.http.get(f"/exchanges/%2F/{source}/bindings/source").raise_for_status().json()
        return {(each["destination"], each["routing_key"]) for each in found}

    def policy(self, name: str, **policy: Any) -> None:
        self.http.put(f"/policies/%2F/{name}", json=policy).raise_for_status()

    @contextlib.contextmanager
    def user(self, tags: str, **permissions: str) -> Iterator[tuple[str, str]]:
        """The two URLs of a user of its own, who may do everything but for `permissions`."""
        name, pattern = f"{self.exchange}-user", {"configure": ".*", "write": ".*", "read": ".*"}
        self.http.put(f"/users/{name}", json={"password": "secret", "tags": tags}).raise_for_status()
        self.http.put(f"/permissions/%2F/{name}", json=pattern | permissions).raise_for_status()
        yield tuple(f"{url.partition('//')[0]}//{name}:secret@{url.rpartition('@')[2]}" for url in (self.url, self.management_url))  # type: ignore[misc]
        self.http.delete(f"/users/{name}").raise_for_status()

    def clear(self) -> None:
        mine = [each for kind in ("queues", "exchanges", "policies") for each in self._listed(kind)]
        for kind, name in mine:
            self.http.delete(f"/{kind}/%2F/{quote(name, safe='')}").raise_for_status()
        self.connection.close()
        self.http.close()

    def _listed(self, kind: str) -> list[tuple[str, str]]:
        return [(kind, each["name"]) for each in self.http.get(f"/{kind}/%2F").json() if each["name"].startswith(self.exchange)]


@pytest.fixture
def stage(rabbitmq: Any) -> Iterator[Stage]:
    if not rabbitmq.management_url:
        pytest.skip("a gate needs RabbitMQ's management API")
    made = Stage(rabbitmq.url, rabbitmq.management_url)
    yield made
    made.clear()


class Traffic:
    """A producer of undelayed messages on its own thread, numbered, as fast as it can."""

    LIMIT = 30_000
    PAUSE = 0.0003  # seconds; some five messages pass while one change is made

    def __init__(self, stage: Stage, kind: str) -> None:
        self.stage, self.kind = stage, kind
        self.sent = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait(50)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def wait(self, more: int = 50) -> None:
        """Until `more` further messages are on their way."""
        goal = min(self.sent + more, self.LIMIT)
        wait_until(lambda: self.sent >= goal, "the producer to go on")

    def _run(self) -> None:
        with self.stage.connected() as channel:
            for number, (key, headers, _) in enumerate(itertools.cycle(MESSAGES[self.kind])):
                if self._stop.is_set() or number == self.LIMIT:
                    return
                channel.basic_publish(self.stage.exchange, key, str(number).encode(), pika.BasicProperties(headers=headers))
                self.sent = number + 1
                time.sleep(self.PAUSE)

    def expected(self, queue: str) -> list[int]:
        messages = MESSAGES[self.kind]
        return [number for number in range(self.sent) if queue in messages[number % len(messages)][2]]

    def assert_each_once(self) -> None:
        for queue in BINDINGS[self.kind]:
            expected = self.expected(queue)
            self.stage.wait_for(queue, len(expected))
            assert self.stage.bodies(queue) == expected, f"queue {queue}"
        assert self.stage.take(self.stage.ingress) == []


def problems(findings: Sequence[Finding]) -> list[str]:
    return [finding.what for finding in findings if not finding.ok]


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
    monkeypatch.setattr(rabbitmq_probe, "bind", limited(rabbitmq_probe.bind))
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


def test_an_older_gate_that_misses_a_header_is_found_and_brought_up_to_date(stage: Stage) -> None:
    stage.build("topic")
    stage.gate().apply()
    gate = f"{stage.exchange}.gate"
    names = {name.decode(): None for name in DELAY_NAMES}
    stage.channel.queue_unbind(stage.ingress, gate, "", {"x-match": "any-with-x", **names})
    stage.channel.queue_bind(stage.ingress, gate, "", {"x-match": "any-with-x", "x-delay": None})
    assert any("missing: messages with a delay header" in problem for problem in problems(stage.gate().check()))
    assert all(step.done for step in stage.gate().apply())
    assert stage.bindings(gate) == {(stage.ingress, "")}
    assert problems(stage.gate().check()) == [f"queue `{stage.ingress}` has no consumers"]


def test_check_finds_a_policy_that_outranks_the_gates(stage: Stage) -> None:
    stage.build("direct")
    stage.gate().apply()
    stage.policy(f"{stage.exchange}-later", pattern=f"^{stage.exchange}$", definition={"alternate-exchange": "amq.fanout"}, priority=50)
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
    monkeypatch.setattr(rabbitmq_probe, "PATIENCE", 0.2)
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
