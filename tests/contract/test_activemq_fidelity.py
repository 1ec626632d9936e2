"""What JMS and STOMP producers send comes out as docs/across-brokers.md says, and nothing that a producer writes steers the broker or forges a message."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

import pytest
from brokers.activemq import Client, jms
from brokers.common import Unavailable, wait_until
from conftest import unavailable

from delaybridge.adapters.activemq import ActiveMQ, Endpoint, adapter
from delaybridge.adapters.base import AdapterError, Outcome, Outgoing, Received, Rejected
from delaybridge.core import fields
from delaybridge.core.message import NO_PROPERTIES, Message, Properties, message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.activemq import Broker

BIG = 5 << 20


class Stage:
    """A producer, the bridge's source and sink, and a look at what arrives at the far end."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.options = ActiveMQ.model_validate({"url": broker.url, "connection_timeout": 15})
        self.ingress, self.outlet = (f"fidelity.{end}.{secrets.token_hex(6)}" for end in ("in", "out"))
        self.source = adapter.source(self.options, Endpoint(queue=self.ingress))
        self.source.connect()
        self.outcomes: list[Outcome] = []
        self.sink = adapter.sink(self.options)
        self.sink.connect(self.outcomes.extend)
        self.user = Client(broker.url)

    def close(self) -> None:
        self.source.close()
        self.sink.close()
        self.user.close()

    def jms(self, *arguments: str) -> list[list[str]]:
        try:
            return jms(self.broker, *arguments)
        except Unavailable as reason:
            unavailable("activemq", reason)

    def produce(self, headers: bytes = b"", body: bytes = b"", queue: str = "") -> None:
        """One SEND of a STOMP producer, confirmed."""
        destination = f"/queue/{queue or self.ingress}".encode()
        answer = self.user.ask(b"SEND\ndestination:" + destination + b"\nreceipt:r\n" + headers + b"\n" + body + b"\0")
        assert answer.startswith(b"RECEIPT"), answer

    def receive(self, count: int = 1) -> list[Received]:
        messages: list[Received] = []
        deadline = time.monotonic() + 20
        while len(messages) < count:
            assert time.monotonic() < deadline, f"{len(messages)} of {count} messages came"
            batch = self.source.receive(count - len(messages), 1)
            if batch is not None:
                batch.ack()
                messages += batch.messages
        return messages

    def publish(self, *messages: Message, address: str = "") -> list[AdapterError | None]:
        """What became of each."""
        before = len(self.outcomes)
        self.sink.publish([Outgoing(str(n).encode(), address or f"/queue/{self.outlet}", one) for n, one in enumerate(messages)])
        wait_until(lambda: len(self.outcomes) == before + len(messages), "outcomes")
        return [error for _, error in sorted(self.outcomes[before:], key=lambda outcome: int(outcome[0]))]

    def arrived(self) -> tuple[dict[str, str], bytes]:
        """Headers and body of the next message at the far end, as the broker wrote them."""
        self.user.subscribe(f"/queue/{self.outlet}")
        head, _, body = self.user.frame().partition(b"\n\n")
        lines = [line.partition(b":") for line in head.split(b"\n")[1:]]
        return {name.decode(): value.decode() for name, _, value in lines}, body


@pytest.fixture
def stage(activemq: Broker) -> Iterator[Stage]:
    one = Stage(activemq)
    yield one
    one.close()


# --- bodies ---

TEXT = "größe\nline €".encode()
JMS_BODIES = {
    "text": (TEXT, True), "zero-text": (b"a\0b", True), "big-text": (b"x" * BIG, True), "bytes": (b"\0\1\n\r\xff\0", False), "empty-bytes": (b"", False),
    "zeros-text": (b"record\0\0\n" * 200_000, True),
}  # fmt: skip


def test_bodies_of_jms_producers_pass_through_the_bridge_as_the_same_type_and_the_same_bytes(stage: Stage) -> None:
    stage.jms("send", stage.ingress, *JMS_BODIES)
    messages = stage.receive(len(JMS_BODIES))
    assert [(one.message.body, one.message.properties.text, one.defect) for one in messages] == [
        (*body, None) for body in JMS_BODIES.values()
    ]
    assert stage.publish(*(one.message for one in messages)) == [None] * len(JMS_BODIES)
    lines = stage.jms("receive", stage.outlet, str(len(JMS_BODIES)))
    assert [(line[0], bytes.fromhex(line[1])) for line in lines] == [
        ("text" if text else "bytes", body) for body, text in JMS_BODIES.values()
    ]


def test_what_stomp_empties_is_refused_with_a_reason(stage: Stage) -> None:
    kinds = ("map", "object", "stream", "plain", "null-text", "empty-text")
    stage.jms("send", stage.ingress, *kinds)
    assert [one.defect.reason if one.defect else None for one in stage.receive(len(kinds))] == ["unsupported_body"] * len(kinds)


def test_empty_texts_are_carried_where_the_operator_says_that_they_are_texts(stage: Stage) -> None:
    stage.jms("send", stage.ingress, "empty-text")
    stage.source.close()
    stage.source = adapter.source(stage.options.model_copy(update={"empty_messages": "carry"}), Endpoint(queue=stage.ingress))
    stage.source.connect()
    (one,) = stage.receive()
    assert (one.message.body, one.message.properties.text, one.defect) == (b"", True, None)


STOMP_BODIES = {
    "text": (b"", TEXT, True),
    "empty text": (b"", b"", True),
    "bytes": (b"content-length:4\n", b"\0\xff\0\n", False),
    "empty bytes": (b"content-length:0\n", b"", False),
    "text with zeros": (b"amq-msg-type:text\ncontent-length:4\n", b"a\0\nb", True),
    "5 MiB": (f"content-length:{BIG}\n".encode(), secrets.token_bytes(BIG), False),
}


@pytest.mark.parametrize("kind", STOMP_BODIES)
def test_a_body_of_a_stomp_producer_passes_through_the_bridge(stage: Stage, kind: str) -> None:
    headers, body, text = STOMP_BODIES[kind]
    stage.produce(headers, body)
    (one,) = stage.receive()
    assert (one.message.body, one.message.properties.text, one.defect) == (body, text, None)
    assert stage.publish(one.message) == [None]
    stage.source.close()
    stage.source = adapter.source(stage.options, Endpoint(queue=stage.outlet))
    stage.source.connect()
    (again,) = stage.receive()
    assert (again.message.body, again.message.properties.text, again.defect) == (body, text, None)


def test_an_empty_text_that_a_stomp_producer_had_transformed_is_refused(stage: Stage) -> None:
    stage.produce(b"transformation:unknown\n")
    (one,) = stage.receive()
    assert one.defect is not None
    assert one.defect.reason == "unsupported_body"


def test_a_command_needs_no_body(stage: Stage) -> None:
    stage.jms("command", stage.ingress)
    (one,) = stage.receive()
    assert one.defect is None
    assert fields.plain(one.message.headers)["x_delay_cancel"] == "order-17"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("text/plain", True),
        ("application/json", True),
        ("application/vnd.api+json; charset=utf-8", True),
        ("application/octet-stream", False),
    ],
)
def test_a_body_from_another_broker_is_text_where_its_content_type_says_so(stage: Stage, kind: str, *, text: bool) -> None:
    assert stage.publish(message(b"{}", {}, Properties(content_type=kind.encode()))) == [None]
    headers, _ = stage.arrived()
    assert ("content-length" in headers) is not text


# --- headers ---


def test_what_a_jms_producer_says_arrives_again_and_numbers_become_text(stage: Stage) -> None:
    stage.jms("send", stage.ingress, "text")
    (one,) = stage.receive()
    assert stage.publish(one.message) == [None]
    ((_, _, *pairs),) = stage.jms("receive", stage.outlet, "1")
    got = dict(pair.split("=", 1) for pair in pairs)
    assert got["colon"] == "String:a:b\\\\c\\nd\\re"
    assert (got["empty"], got["number"], got["yes"], got["half"]) == ("String:", "String:42", "String:true", "String:1.5")
    assert (got["JMSCorrelationID"], got["JMSType"]) == ("String:c:1", "String:order")
    assert got["JMSReplyTo"] == "ActiveMQQueue:queue://replies"
    assert got["JMSXGroupID"] == "null:null", "ActiveMQ shows a group to no STOMP client, as the documents say"
    assert (got["JMSPriority"], got["JMSDeliveryMode"]) == ("Integer:7", "Integer:2")
    times = {name: int(got[name].split(":")[1]) for name in ("JMSTimestamp", "JMSExpiration")}
    assert times["JMSExpiration"] - times["JMSTimestamp"] == 3_600_000
    assert got["x-delay-timestamp"] == f"String:{one.sent}"
    assert got["x-delay-message-id"] == f"String:{one.token.decode().replace(chr(92) + 'c', ':')}"


def test_header_names_and_values_with_special_characters_cannot_become_other_headers(stage: Stage) -> None:
    odd: dict[str, fields.Value] = {"a:b": "1\nevil:1", "c\nevil:1\nd": "2\r", "back\\slash": "\\n", "\rx": ":"}
    assert stage.publish(message(b"x", odd)) == [None]
    stage.source.close()
    stage.source = adapter.source(stage.options, Endpoint(queue=stage.outlet))
    stage.source.connect()
    (one,) = stage.receive()
    assert fields.plain(one.message.headers) == odd


def test_bytes_that_are_no_text_arrive_as_base64_and_names_escaped(stage: Stage) -> None:
    table = fields.table([("bytes", b"\xff"), ("nul", "a\0b"), (b"\xff", "1"), ("n\0", "2"), ("", "3")])
    assert stage.publish(Message(b"x", table)) == [None]
    headers, _ = stage.arrived()
    assert headers["bytes_base64"] == "/w=="
    assert headers["nul_base64"] == "YQBi"
    assert (headers["\\\\xff"], headers["n\\\\x00"], headers["_"]) == ("1", "2", "3")


RESERVED: dict[str, str] = {
    "destination": "/queue/elsewhere",
    "receipt": "x",
    "transaction": "t",
    "content-length": "1",
    "persistent": "false",
    "selector": "x",
    "ack": "x",
    "id": "x",
    "subscription": "x",
    "message-id": "x",
    "transformation": "jms-map-json",
    "amq-msg-type": "bytes",
    "expires": "1",
    "timestamp": "1",
    "priority": "9",
    "type": "x",
    "reply-to": "/queue/x",
    "correlation-id": "x",
    "redelivered": "true",
    "original-destination": "/queue/x",
    "JMSExpiration": "1",
    "JMSXDeliveryCount": "99",
    "JMSXUserID": "root",
    "AMQ_SCHEDULED_DELAY": "1",
    "AMQ_SCHEDULED_CRON": "* * * * *",
    "scheduledJobId": "x",
    "_AMQ_SCHED_DELIVERY": "1",
    "_HQ_SCHED_DELIVERY": "1",
    "activemq.prefetchSize": "0",
    "destination-type": "MULTICAST",
    "transformation-error": "x",
    "browser": "true",
    "browser-end": "true",
    "heart-beat": "1,1",
}


@pytest.mark.parametrize("together", [False, True])
def test_headers_with_names_that_mean_something_to_the_broker_get_another_name(stage: Stage, *, together: bool) -> None:
    one = message(b"body", {**RESERVED}, Properties(text=True))
    sent = [one, message(b"", {}), message(b"", {})] if together else [one]
    assert stage.publish(message(b"trust me"))[0] is None  # so that the next may go in one transaction
    assert set(stage.publish(*sent)) == {None}
    stage.arrived()
    headers, body = stage.user.frame().partition(b"\n\n")[::2]
    got = dict(line.decode().split(":", 1) for line in headers.split(b"\n")[1:])
    assert body == b"body"
    assert {name: got[f"x-header-{name}"] for name in RESERVED} == {
        name: value.replace("\\", "\\\\").replace(":", "\\c") for name, value in RESERVED.items()
    }
    assert (got["persistent"], got["priority"], got["expires"]) == ("true", "4", "0")
    assert "correlation-id" not in got


def test_a_header_that_repeats_a_property_is_not_written_twice(stage: Stage) -> None:
    properties = Properties(type=b"order", correlation_id=b"c", content_type=b"text/plain", priority=3, message_id=b"m")
    repeated: dict[str, fields.Value] = {
        "type": b"order",
        "correlation-id": b"c",
        "content-type": b"text/plain",
        "priority": b"3",
        "message-id": b"m",
    }
    assert stage.publish(message(b"x", repeated, properties)) == [None]
    headers, _ = stage.arrived()
    assert [name for name in headers if name.startswith("x-header-")] == []
    assert (headers["type"], headers["x-delay-message-id"]) == ("order", "m")


def test_a_tombstone_is_an_empty_body_that_says_so(stage: Stage) -> None:
    assert stage.publish(Message(None)) == [None]
    headers, body = stage.arrived()
    assert (body, headers["x-delay-tombstone"]) == (b"", "true")


@pytest.mark.parametrize("key", [b"key", b"", b"\xff\0"])
def test_a_key_comes_back_as_it_was(stage: Stage, key: bytes) -> None:
    assert stage.publish(Message(b"x", b"", NO_PROPERTIES, key)) == [None]
    stage.source.close()
    stage.source = adapter.source(stage.options, Endpoint(queue=stage.outlet))
    stage.source.connect()
    assert stage.receive()[0].message.key == key


def test_a_key_is_the_message_group(stage: Stage) -> None:
    assert stage.publish(Message(b"x", b"", NO_PROPERTIES, b"key")) == [None]
    ((_, _, *pairs),) = stage.jms("receive", stage.outlet, "1")
    assert "JMSXGroupID=String:key" in pairs


@pytest.mark.parametrize(
    "address", ["a,b", "/queue/a,b", "a.>", "/topic/*", "/queue/", "", "/temp-queue/x", "/dsub/x", "topic://x", "a?b=c", " a", "a\n"]
)
def test_an_address_that_is_not_exactly_one_destination_is_rejected(stage: Stage, address: str) -> None:
    before = len(stage.outcomes)
    stage.sink.publish([Outgoing(b"1", address, message(b""))])
    wait_until(lambda: len(stage.outcomes) > before, "the outcome")
    error = stage.outcomes[-1][1]
    assert isinstance(error, Rejected)
    assert error.reason == "bad_destination"


def test_headers_beyond_the_brokers_limits_are_too_large_and_the_connection_lives(stage: Stage) -> None:
    big: dict[str, Any] = {"h": "x" * 10_240}
    many: dict[str, Any] = {f"h{number}": "" for number in range(1000)}
    outcomes = stage.publish(message(b"", big), message(b"", many), message(b"", {"h": "x" * 10_000}))
    assert [error.reason if isinstance(error, Rejected) else error for error in outcomes] == ["too_large", "too_large", None]


# --- expiry ---


def test_a_time_to_live_begins_when_the_message_is_delivered(stage: Stage) -> None:
    began = int(time.time() * 1000)
    assert stage.publish(message(b"", {}, Properties(expiration=b"5000", timestamp_ms=began - 10**9))) == [None]
    headers, _ = stage.arrived()
    assert int(headers["expires"]) - int(headers["timestamp"]) == 5000
    assert began <= int(headers["timestamp"]) <= int(time.time() * 1000)
    assert headers["x-delay-timestamp"] == str(began - 10**9)


def test_a_time_to_live_is_what_the_producer_gave_whenever_it_is_read(stage: Stage) -> None:
    sent = int(time.time() * 1000)
    stage.produce(f"timestamp:{sent}\nexpires:{sent + 60_000}\npersistent:true\n".encode(), b"x")
    (one,) = stage.receive()
    assert (one.message.properties.expiration, one.sent, one.message.properties.timestamp_ms) == (b"60000", sent, sent)


# --- frames that a producer would like to forge ---


def test_a_text_that_looks_like_another_message_stays_one_text(stage: Stage) -> None:
    forged = b"a\0\nMESSAGE\ndestination:/queue/x\nsubscription:0\nmessage-id:1\nack:1\n\nforged\0\nRECEIPT"
    stage.produce(b"amq-msg-type:text\ncontent-length:%d\n" % len(forged), forged)
    stage.produce(b"", b"next")
    first, second = stage.receive(2)
    assert (first.message.body, second.message.body) == (forged, b"next")


def test_a_property_that_lies_about_the_length_swallows_no_other_message(stage: Stage) -> None:
    stage.jms("lie", stage.ingress, "1", "2", "100", "1000000", "9" * 5000)
    stage.produce(b"", b"next")
    assert [one.message.body for one in stage.receive(6)] == [b"abc"] * 5 + [b"next"]


def test_a_property_that_lies_about_the_length_of_the_last_message_holds_it_back_for_some_heartbeats_only(stage: Stage) -> None:
    stage.jms("lie", stage.outlet, "1000000")
    stage.source.close()
    stage.source = adapter.source(stage.options.model_copy(update={"heartbeat": 1.0}), Endpoint(queue=stage.outlet))
    stage.source.connect()
    assert [one.message.body for one in stage.receive()] == [b"abc"]


def test_only_a_gate_is_believed_to_be_where_a_message_came_from(stage: Stage) -> None:
    for address in ("/queue/orders.new", "/queue/secret"):
        stage.produce(f"original-destination:{address}\n".encode(), b"x")
    assert [one.address for one in stage.receive(2)] == ["", ""]
    stage.source.close()
    stage.source = adapter.source(stage.options, Endpoint(queue=stage.ingress, gate=("orders.>",)))
    stage.source.connect()
    for address in ("/queue/orders.new", "/queue/secret", "/topic/orders.new"):
        stage.produce(f"original-destination:{address}\n".encode(), b"x")
    assert [one.address for one in stage.receive(3)] == ["/queue/orders.new", "", ""]


# --- taps ---


def test_a_tap_at_a_topic_hears_copies_and_leaves_the_subscribers_theirs(stage: Stage) -> None:
    topic = f"/topic/{stage.outlet}"
    tap = adapter.tap(stage.options, topic)
    tap.connect()
    stage.user.subscribe(topic)
    assert stage.publish(message(b"heard"), address=topic) == [None]
    batch = tap.receive(1, 15)
    tap.close()
    assert batch is not None
    assert batch.messages[0].message.body == b"heard"
    assert stage.user.frame().endswith(b"heard")
