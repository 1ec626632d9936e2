"""`delaybridge run` beside a real RabbitMQ, behind the gate that `delaybridge apply` made, with producers and consumers that know nothing of it."""

from __future__ import annotations

import hashlib
import struct
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from brokers.rabbitmq import user

from delaybridge.adapters.rabbitmq.wire import encode
from delaybridge.core import fields
from delaybridge.core.message import Properties
from integration.daemon import Daemon
from integration.rabbit import Arrival, Rabbit, RawProperties, config, rabbit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.stores import Waiting

TYPES = ("direct", "topic", "fanout", "headers")
BINDINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "direct": ("a", {}),
    "topic": ("a.*", {}),
    "fanout": ("", {}),
    "headers": ("", {"x-match": "all", "colour": "red"}),
}
KEYS = {"direct": "a", "topic": "a.b", "fanout": "whatever", "headers": ""}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "direct": ("b", {}),
    "topic": ("b.*", {}),
    "headers": ("", {"x-match": "all", "colour": "blue"}),
}
LARGE = 64 << 20


class Stage(NamedTuple):
    """A RabbitMQ with four gated exchanges, and the daemon beside it."""

    place: Rabbit
    daemon: Daemon

    def exchange(self, kind: str) -> str:
        return self.place.name(kind)

    def to_queue(self, queue: str, body: bytes, delay: int, **more: Any) -> int:
        """Through the plain ingress queue, as `x-delay-to` says."""
        return self.place.send("in", body, x_delay=delay, x_delay_to=self.place.address(queue), **more)

    def held(self, address: str) -> list[dict[str, Any]]:
        """What status tells about a destination that is held back."""
        return [held for lane in self.daemon.get("/status")["lanes"] for held in lane["held"] if held["address"] == address]


@pytest.fixture(scope="module")
def stage(rabbitmq: Any, waiting: Waiting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if not rabbitmq.management_url:
        pytest.skip("a gate needs RabbitMQ's management API")
    with rabbit(rabbitmq.url) as place:
        place.queue("dead")
        ingress = place.expected("in")
        for kind in TYPES:
            key, arguments = BINDINGS[kind]
            place.channel.queue_bind(place.queue(kind), place.exchange(kind, kind), key, arguments)
        for kind, (key, arguments) in OTHERS.items():
            place.channel.queue_bind(place.queue(f"{kind}.other"), place.name(kind), key, arguments)
        route = {
            "name": "orders",
            "from": {"broker": "rabbit", "queue": ingress, "gate": [place.name(kind) for kind in TYPES]},
            "to": {"broker": "rabbit"},
            "allow_to": [f"/queues/{place.prefix}.*"],
            "dead_letter": place.address("dead"),
        }
        settings = config(rabbitmq.url, rabbitmq.management_url, [route], retry={"first": 20, "cap": 200})
        with Daemon(tmp_path_factory.mktemp("daemon"), waiting(settings)) as daemon:
            applied = daemon.run("apply", "--broker", "rabbit")
            assert applied.returncode == 0, applied.stderr
            daemon.start()
            yield Stage(place, daemon)
            assert daemon.terminate() == 0


def assert_delivered(arrival: Arrival, sent: int, delay: int) -> None:
    assert arrival.due >= sent + delay
    assert arrival.at >= arrival.due
    assert arrival.occurrence == 1
    assert arrival.id


@pytest.mark.parametrize("kind", TYPES)
def test_only_a_header_delays_a_message_on_every_kind_of_exchange(stage: Stage, kind: str) -> None:
    place = stage.place
    colour = {"colour": "red"} if kind == "headers" else {}
    sent = place.publish(stage.exchange(kind), KEYS[kind], b"later", colour | {"x-delay": 500})
    place.publish(stage.exchange(kind), KEYS[kind], b"now", colour)
    first, second = sorted(place.receive(kind, 2), key=lambda one: one.body != b"now")
    assert (first.body, first.headers) == (b"now", colour)
    assert second.body == b"later"
    assert_delivered(second, sent, 500)
    assert second.headers["x-delay"] == -500
    if kind in OTHERS:
        assert place.waiting(f"{kind}.other") == 0


@pytest.mark.parametrize("kind", TYPES)
def test_an_undelayed_message_is_the_same_to_the_last_byte(stage: Stage, kind: str) -> None:
    table = fields.table([("colour", "red"), ("ratio", 0.5), ("raw", b"\xff\0")])
    raw = encode(Properties(content_type=b"text/\xff", delivery_mode=1, priority=3, message_id=b"m", timestamp=2**33), table)
    stage.place.publish_raw(stage.exchange(kind), KEYS[kind], b"\0body", RawProperties(raw))
    arrival = stage.place.one(kind)
    assert (arrival.body, arrival.raw) == (b"\0body", raw)


def test_a_message_in_the_ingress_queue_goes_where_its_header_says(stage: Stage) -> None:
    stage.place.queue("chosen")
    sent = stage.to_queue("chosen", b"by header", 200)
    arrival = stage.place.one("chosen")
    assert arrival.body == b"by header"
    assert_delivered(arrival, sent, 200)
    assert "x-delay-to" not in arrival.headers


def nested(depth: int) -> bytes:
    """A table within a table, and so on; its payload."""
    payload = b""
    for _ in range(depth):
        payload = b"\x01nF" + struct.pack(">I", len(payload)) + payload
    return payload


def awkward_table(delay: int) -> bytes:
    """Every type of AMQP, names and texts that are no UTF-8, one name twice, and a delay in the middle."""
    array = b"S\0\0\0\x01xd" + struct.pack(">d", 2.5) + b"V"
    return b"".join((
        b"\x01fd" + struct.pack(">d", 0.1), b"\x01gf" + struct.pack(">f", 0.1), b"\x02\xff\xfeS\0\0\0\x02\xc3\x28",
        b"\x01TT" + struct.pack(">Q", 1_800_000_000), b"\x01DD\x02\0\0\0\x7b", b"\x01tt\x01", b"\x01bb\xff", b"\x01BB\xff", b"\x01ss\xff\xff",
        b"\x01uu\xff\xff", b"\x01ii\xff\xff\xff\xff", b"\x01VV", b"\x01xx\0\0\0\x03\0\xff\x01",
        fields.entry("x-delay", delay),
        b"\x01FF" + struct.pack(">I", len(nested(4))) + nested(4), b"\x01AA" + struct.pack(">I", len(array)) + array,
        fields.entry("twice", 1), fields.entry("twice", "two"),
    ))  # fmt: skip


def test_all_properties_and_headers_of_a_delayed_message_survive_exactly(stage: Stage) -> None:
    """As without a bridge: RabbitMQ 4.3 itself sorts headers by name, and keeps the first of one name only."""
    properties = Properties(
        content_type=b"application/\xff", content_encoding=b"", delivery_mode=2, priority=255, correlation_id=b"c" * 255, reply_to=b"\xc3\x28",
        expiration=b"600000", message_id=b"m", timestamp=2**40, type=b"t", user_id=b"guest", app_id=b"a", cluster_id=b"k",
    )  # fmt: skip
    body = bytes(range(256))
    table = awkward_table(200)
    stage.place.publish_raw(stage.exchange("direct"), "a", body, RawProperties(encode(properties, table)))
    stage.place.publish_raw("", stage.place.queue("undelayed"), body, RawProperties(encode(properties, table)))
    arrival, plain = stage.place.one("direct"), stage.place.one("undelayed")
    assert arrival.body == body
    assert arrival.properties == properties
    straight, came = ([(f.name, f.tag, f.payload) for f in found if f.name != b"x-delay"] for found in (plain.own, arrival.own))
    assert came == straight
    assert {(name, tag) for name, tag, _ in came} | {(b"twice", "S")} == {
        (f.name, f.tag) for f in fields.fields(table) if f.name != b"x-delay"
    }
    assert [fields.value_of(field) for field in arrival.own if field.name == b"x-delay"] == [-200]


@pytest.mark.parametrize("size", [0, 5 << 20, LARGE])
def test_bodies_from_nothing_to_64_mib_come_through(stage: Stage, waiting: Waiting, size: int) -> None:
    if size == LARGE and waiting.kind == "activemq":
        pytest.skip("the tests' ActiveMQ has not enough memory")
    body = hashlib.sha256(b"seed").digest() * (size // 32)
    stage.place.queue("large")
    stage.to_queue("large", body, 100)
    arrival = stage.place.one("large", timeout=60)
    assert len(arrival.body) == size
    assert arrival.body == body


def test_headers_nested_five_thousand_deep_do_not_stop_the_messages_behind_them(stage: Stage) -> None:
    place = stage.place
    place.queue("deep")
    deep = b"\x04deepF" + struct.pack(">I", len(nested(5000))) + nested(5000)
    table = deep + fields.table([("x-delay", 200), ("x-delay-to", place.address("deep"))])
    place.publish_raw("", place.name("in"), b"deep", RawProperties(encode(Properties(delivery_mode=2), table)))
    stage.to_queue("deep", b"flat", 300)
    came = {arrival.body: arrival for arrival in place.receive("deep", 2)}
    assert came.keys() == {b"deep", b"flat"}
    assert [field.payload for field in came[b"deep"].own if field.name == b"deep"] == [nested(5000)]


def test_a_consumer_that_publishes_again_with_copied_headers_and_a_new_delay_is_delayed_again(stage: Stage) -> None:
    place = stage.place
    place.publish(stage.exchange("topic"), "a.retry", b"job", {"x-delay": 100, "tries": 1})
    first = place.one("topic")
    again = place.publish(stage.exchange("topic"), "a.retry", first.body, first.headers | {"x-delay": 300, "tries": 2})
    second = place.one("topic")
    assert_delivered(second, again, 300)
    assert (second.body, second.headers["tries"], second.headers["x-delay"]) == (b"job", 2, -300)
    assert second.id != first.id


def test_a_delivered_message_published_again_as_it_is_passes_at_once(stage: Stage) -> None:
    place = stage.place
    place.publish(stage.exchange("topic"), "a.pass", b"job", {"x-delay": 100})
    first = place.one("topic")
    again = place.publish(stage.exchange("topic"), "a.pass", first.body, first.headers)
    second = place.one("topic")
    assert second.headers["x-delay"] == -100
    assert second.at - again < 30_000


def test_routing_is_decided_when_a_message_is_due(stage: Stage) -> None:
    place = stage.place
    sent = place.publish(stage.exchange("direct"), "bound later", b"late binding", {"x-delay": 600})
    place.channel.queue_bind(place.queue("bound.later"), f"{stage.exchange('direct')}.real", "bound later")
    arrival = place.one("bound.later")
    assert_delivered(arrival, sent, 600)


def test_messages_for_a_missing_queue_wait_in_order_and_keep_nobody_else_waiting(stage: Stage) -> None:
    place, address = stage.place, stage.place.address("missing")
    place.queue("present")
    for number in range(5):
        stage.to_queue("missing", b"%d" % number, 50)
    stage.daemon.wait_for(lambda: any(held["attempts"] > 1 for held in stage.held(address)), "the destination to be tried again")
    stage.to_queue("present", b"unaffected", 50)
    assert place.one("present").body == b"unaffected"
    assert "unroutable" in stage.held(address)[0]["error"]
    place.queue("missing")
    assert [arrival.body for arrival in place.receive("missing", 5)] == [b"0", b"1", b"2", b"3", b"4"]
    stage.daemon.wait_for(lambda: not stage.held(address), "the destination to be held no longer")


def test_messages_for_a_full_queue_wait_in_order_and_keep_nobody_else_waiting(stage: Stage) -> None:
    place, address = stage.place, stage.place.address("full")
    place.queue("full", x_max_length=1, x_overflow="reject-publish")
    place.queue("roomy")
    for number in range(4):
        stage.to_queue("full", b"%d" % number, 50)
    stage.daemon.wait_for(lambda: any(held["attempts"] > 1 for held in stage.held(address)), "the destination to be tried again")
    stage.to_queue("roomy", b"unaffected", 50)
    assert place.one("roomy").body == b"unaffected"
    assert "refused_by_broker" in stage.held(address)[0]["error"]
    assert sorted(arrival.body for arrival in place.receive("full", 4)) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"x-delay": "tomorrow"}, "bad_duration"),
        ({"x-delay": True}, "wrong_type"),
        ({"x-delay": 2**62}, "delay_too_long"),
        ({"x-delay": 1000, "x-delay-until": 1_900_000_000_000}, "ambiguous_schedule"),
        ({"x-delay": 1000, "x-delay-to": "/queues/somewhere-else"}, "destination_not_allowed"),
        ({"x-delay-cron": "61 * * * *"}, "bad_cron"),
    ],
)
def test_what_cannot_be_honoured_goes_to_the_dead_letter_queue_with_its_reason(stage: Stage, headers: dict[str, Any], reason: str) -> None:
    place = stage.place
    place.publish(stage.exchange("direct"), "a", reason.encode(), headers)
    arrival = place.one("dead")
    assert (arrival.body, arrival.headers["x-delay-reason"]) == (reason.encode(), reason)
    assert arrival.headers["x-delay-detail"]
    assert {name: arrival.headers[name] for name in headers} == headers
    assert place.waiting("direct") == 0


def test_what_carries_another_users_id_reaches_the_dead_letter_queue(stage: Stage, rabbitmq: Any) -> None:
    """RabbitMQ takes a `user_id` only from that user: neither the destination nor the dead-letter queue would take it from the bridge."""
    name = f"{stage.place.prefix}-alice"
    with user(rabbitmq.management_url, name) as alice, rabbit(f"amqp://{alice}:secret@{rabbitmq.url.rpartition('@')[2]}") as hers:
        for delay in (20, "soon"):  # refused when it is due, and when it is taken in
            hers.publish(stage.exchange("direct"), "a", b"hers", {"x-delay": delay}, user_id=alice)
    arrivals = stage.place.receive("dead", 2)
    assert {(each.body, each.properties.user_id, each.headers["x-delay-user-id"]) for each in arrivals} == {(b"hers", None, alice)}
    assert {each.headers["x-delay-reason"] for each in arrivals} == {"rejected_by_broker", "bad_duration"}


def test_a_message_in_the_ingress_queue_that_names_no_destination_is_a_dead_letter(stage: Stage) -> None:
    stage.place.send("in", b"whither", x_delay=100)
    assert stage.place.one("dead").headers["x-delay-reason"] == "no_destination"


def test_repeats_and_crons_come_as_often_as_asked_and_never_early(stage: Stage) -> None:
    stage.place.queue("repeats")
    sent = stage.place.send("in", b"r", x_delay_to=stage.place.address("repeats"), x_delay=100, x_delay_period=1000, x_delay_repeat=2)
    arrivals = stage.place.receive("repeats", 3)
    assert [arrival.occurrence for arrival in arrivals] == [1, 2, 3]
    assert len({arrival.id for arrival in arrivals}) == 1
    assert [arrival.due - arrivals[0].due for arrival in arrivals] == [0, 1000, 2000]
    assert arrivals[0].due >= sent + 100
    assert all(arrival.at >= arrival.due for arrival in arrivals)


def test_doctor_finds_nothing_wrong_after_apply_and_its_probes_come_back(stage: Stage) -> None:
    assert stage.daemon.run("apply", "--broker", "rabbit").returncode == 0
    found = stage.daemon.run("doctor", "--broker", "rabbit")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "a probe through" in found.stdout


def test_delays_of_many_sizes_are_all_kept_to_the_millisecond_and_none_is_early(stage: Stage) -> None:
    place = stage.place
    place.queue("many")
    asked: dict[bytes, int] = {}
    for number in range(300):
        delay = 1 + number * 7 % 1500
        asked[b"%d" % number] = stage.to_queue("many", b"%d" % number, delay) + delay
    arrivals = place.receive("many", 300)
    assert {arrival.body for arrival in arrivals} == set(asked)
    assert all(arrival.due >= asked[arrival.body] and arrival.at >= arrival.due for arrival in arrivals)
    assert time.time() * 1000 - min(asked.values()) > 1400, "all came at once"
