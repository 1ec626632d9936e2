"""A message that goes through the bridge's RabbitMQ adapter is the same afterwards, bit by bit. Plain pika sends and looks."""

from __future__ import annotations

import secrets
import struct
import time
from typing import TYPE_CHECKING, Any

import pika
import pytest
from brokers.common import wait_until
from msgspec.structs import replace
from pika.exceptions import AMQPError

from delaybridge.adapters.base import Outcome, Outgoing, Received, Rejected
from delaybridge.adapters.rabbitmq import Endpoint, RabbitMQ, adapter
from delaybridge.adapters.rabbitmq.address import queue_address
from delaybridge.adapters.rabbitmq.level_queues import UNLIMITED
from delaybridge.adapters.rabbitmq.source import Ingress, RabbitSource, _Subscriber
from delaybridge.core import fields
from delaybridge.core.message import Message, Properties

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.rabbitmq import Broker

    from delaybridge.adapters.rabbitmq.wire import Delivery


class Raw:
    """Properties that pika sends as these bytes."""

    INDEX = 60

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    def encode(self) -> list[bytes]:
        return [self.raw]


class Stage:
    """A producer on plain pika, the bridge's source and sink, and a look at the raw deliveries at the far end."""

    def __init__(self, url: str) -> None:
        self.options = RabbitMQ(url=url, connection_timeout=15)  # type: ignore[arg-type]  # pydantic wraps it
        self.ingress, self.outlet = (f"fidelity-{end}-{secrets.token_hex(6)}" for end in ("in", "out"))
        self.producer = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.producer.channel()
        self.channel.queue_declare(self.outlet, durable=True)
        self.source = adapter.source(self.options, Endpoint(queue=self.ingress))
        self.source.connect()
        self.outcomes: list[Outcome] = []
        self.sink = adapter.sink(self.options)
        self.sink.connect(self.outcomes.extend)

    def close(self) -> None:
        self.source.close()
        self.sink.close()
        self.producer.close()

    def send(self, raw: bytes, body: bytes = b"body", exchange: str = "", key: str | None = None) -> None:
        self.channel.basic_publish(exchange, self.ingress if key is None else key, body, Raw(raw))  # type: ignore[arg-type]

    def receive(self) -> Received:
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            batch = self.source.receive(1, 1)
            if batch is not None:
                batch.ack()
                return batch.messages[0]
        pytest.fail("nothing came")

    def relay(self) -> None:
        """Take one message through the adapter, as the bridge does, altering nothing."""
        self.sink.publish([Outgoing(b"1", queue_address(self.outlet), self.receive().message)])
        wait_until(lambda: bool(self.outcomes), "the confirm")
        assert self.outcomes == [(b"1", None)]

    def arrived(self) -> Delivery:
        """The raw delivery at the far end."""
        far = RabbitSource(lambda: self.options.parameters("test"), Ingress(self.outlet, create=False), prefetch=1, timeout=15)
        far.connect()
        session: _Subscriber = far._session
        wait_until(lambda: bool(session.inbox), "the message at the far end")
        far.close()
        return session.inbox[0]


@pytest.fixture
def stage(rabbitmq: Broker) -> Iterator[Stage]:
    one = Stage(rabbitmq.url)
    yield one
    one.close()


def long(tag: bytes, payload: bytes) -> bytes:
    return tag + struct.pack(">I", len(payload)) + payload


def nested(depth: int) -> bytes:
    inner = b"".join(b"\x01aF" + struct.pack(">I", 7 * level) for level in range(depth - 1, -1, -1))
    return long(b"F", inner)


def with_headers(table: bytes) -> bytes:
    return b"\x20\x00" + struct.pack(">I", len(table)) + table


VALUES = {
    "void": b"V", "true": b"t\x01", "signed 8": b"b\x80", "unsigned 8": b"B\xff", "signed 16": b"s\x80\x00", "unsigned 16": b"u\xff\xff",
    "signed 32": b"I\x80\x00\x00\x00", "unsigned 32": b"i\xff\xff\xff\xff", "signed 64": b"l\x80" + b"\x00" * 7, "float": b"f" + struct.pack(">f", 1.5),
    "double": b"d" + struct.pack(">d", 2.25), "decimal": b"D\x02\x00\x00\x01\x00",
    "timestamp": b"T" + struct.pack(">Q", 1_700_000_000), "text": long(b"S", "größe".encode()), "text that is no utf-8": long(b"S", b"\xff\xfe\x00"),
    "bytes": long(b"x", b"\x00\xff"), "array": long(b"A", b"t\x01" + b"V" + long(b"S", b"in")), "table": long(b"F", b"\x01aI\x00\x00\x00\x05"),
    "a table 400 levels deep": nested(400), "a table 5,000 levels deep": nested(5000), "a table 15,000 levels deep": nested(15000),
}  # fmt: skip


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_header_of_any_type_goes_through_unchanged(stage: Stage, value: bytes) -> None:
    raw = with_headers(b"\x04name" + value)
    stage.send(raw)
    stage.relay()
    assert stage.arrived().properties == raw


def test_order_and_names_that_are_no_text_go_through_unchanged(stage: Stage) -> None:
    raw = with_headers(b"\x02\xff\xfeV" + b"\x01zV" + b"\x01aV")
    stage.send(raw, key=stage.outlet)
    straight = stage.arrived().properties  # RabbitMQ 4 itself puts headers in the order of their names
    stage.send(raw)
    stage.relay()
    assert stage.arrived().properties == straight


def test_all_properties_go_through_unchanged(stage: Stage) -> None:
    properties = pika.BasicProperties(
        content_type="application/json", content_encoding="gzip", headers={"a": 1, "b": None}, delivery_mode=2, priority=255,
        correlation_id=b"\xff\x00", reply_to="amq.x", expiration="60000000", message_id="m" * 255, timestamp=2**63, type="t",
        user_id="guest", app_id="a", cluster_id="c",
    )  # fmt: skip
    raw = b"".join(properties.encode())
    stage.send(raw, b"\x00" * 300_000)
    stage.relay()
    arrived = stage.arrived()
    assert arrived.properties == raw
    assert arrived.body == b"\x00" * 300_000


def test_a_message_without_any_property_goes_through_unchanged(stage: Stage) -> None:
    stage.send(b"\x00\x00", b"")
    stage.relay()
    assert stage.arrived()[3:] == (stage.outlet.encode(), b"\x00\x00", b"")


@pytest.mark.parametrize("raw", [b"\x00\x02", b"\x80\x02\x01t"], ids=["alone", "with a property"])
def test_a_property_flag_that_amqp_does_not_define_is_a_defect_and_stalls_nothing(stage: Stage, raw: bytes) -> None:
    """The broker may refuse such a message itself, or take the flag off; what it delivers with the flag must not be altered silently."""
    try:
        stage.send(raw)
        stage.producer.process_data_events(0.3)
    except AMQPError:
        return
    got = stage.receive()
    if got.defect is None:
        assert got.message.properties in {Properties(), Properties(content_type=b"t")}
    else:
        assert isinstance(got.defect, Rejected)
        assert got.defect.reason == "header_damaged"


# --- where a message came from, and when ---


def declare_exchange(stage: Stage, name: str, kind: Any = "topic", key: str = "#") -> None:
    stage.channel.exchange_declare(name, kind, auto_delete=True)
    stage.channel.queue_bind(stage.ingress, name, key)


def test_the_address_is_the_exchange_and_key_that_the_producer_used(stage: Stage) -> None:
    exchange = f"a/b {secrets.token_hex(4)}"
    declare_exchange(stage, exchange)
    stage.send(b"\x00\x00", exchange=exchange, key="order.new/ä")
    got = stage.receive()
    assert got.address == f"/exchanges/{exchange.replace('/', '%2F').replace(' ', '%20')}/order.new%2F%C3%A4"


def test_what_came_through_a_gate_goes_to_the_exchange_behind_it(stage: Stage) -> None:
    gated, other = (f"{name}-{secrets.token_hex(4)}" for name in ("gated", "other"))
    for exchange in (gated, other):
        declare_exchange(stage, exchange)
    stage.source.close()
    stage.source = adapter.source(stage.options, Endpoint(queue=stage.ingress, gate=(gated,)))
    stage.source.connect()
    stage.send(b"\x00\x00", exchange=gated, key="k")
    stage.send(b"\x00\x00", exchange=other, key="k")
    assert [stage.receive().address, stage.receive().address] == [f"/exchanges/{gated}.real/k", f"/exchanges/{other}/k"]


def test_copies_for_which_a_producer_asked_at_a_gate_are_sent_behind_it_and_none_of_what_was_sent_elsewhere(stage: Stage) -> None:
    gated = f"gated-{secrets.token_hex(4)}"
    for exchange in (gated, f"{gated}.real"):
        stage.channel.exchange_declare(exchange, "direct", auto_delete=True)
    stage.channel.queue_bind(stage.ingress, gated, "k")
    copy = stage.channel.queue_declare("", exclusive=True).method.queue
    for queue, key in ((stage.outlet, "k"), (copy, "copy")):
        stage.channel.queue_bind(queue, f"{gated}.real", key)
    stage.source.close()
    stage.source = adapter.source(stage.options, Endpoint(queue=stage.ingress, gate=(gated,)))
    stage.source.connect()
    stage.channel.basic_publish(gated, "k", b"body", pika.BasicProperties(headers={"CC": ["copy"]}))
    asked = stage.receive()
    elsewhere = replace(asked.message, properties=replace(asked.message.properties, copies=None))
    for message, copied in ((asked.message, b"body"), (elsewhere, None)):
        stage.sink.publish([Outgoing(b"1", asked.address, message)])
        wait_until(lambda: bool(stage.outcomes), "the outcome")
        assert stage.outcomes.pop() == (b"1", None)
        bodies = [stage.channel.basic_get(queue, auto_ack=True)[2] for queue in (stage.outlet, copy)]
        assert bodies == [b"body", copied]


def test_a_header_of_another_broker_that_has_the_name_of_copies_keeps_no_message_from_an_exchange_behind_a_gate(stage: Stage) -> None:
    real = f"{secrets.token_hex(4)}.real"
    declare_exchange(stage, real)
    foreign = Message(b"body", fields.table([("CC", b"bob@example.org")]))
    stage.sink.publish([Outgoing(b"1", f"/exchanges/{real}/k", foreign)])
    assert fields.plain(stage.receive().message.headers) == {"x-original-cc": b"bob@example.org"}
    wait_until(lambda: stage.outcomes == [(b"1", None)], "its confirm, which may come after it")


def _stamped(stage: Stage) -> None:
    """Where the broker writes its stamp over a producer's."""
    stage.source.close()
    stage.source = adapter.source(stage.options.model_copy(update={"stamped": True}), Endpoint(queue=stage.ingress))
    stage.source.connect()


def test_the_time_at_which_the_broker_got_a_message_is_taken_from_its_stamp(stage: Stage) -> None:
    _stamped(stage)
    stage.send(with_headers(fields.entry("timestamp_in_ms", 1_700_000_000_123)))
    assert stage.receive().sent == 1_700_000_000_123


@pytest.mark.parametrize("value", ["1700000000123", 1.5, True, None])
def test_a_stamp_that_is_no_integer_is_no_time(stage: Stage, value: fields.Value) -> None:
    _stamped(stage)
    stage.send(with_headers(fields.entry("timestamp_in_ms", value)))
    assert stage.receive().sent is None


def test_what_a_bridge_is_killed_over_again_and_again_stays_in_a_quorum_queue(stage: Stage) -> None:
    queue = f"fidelity-unlimited-{secrets.token_hex(6)}"
    stage.channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum", **UNLIMITED})
    stage.send(b"\x00\x00", key=queue)
    for _ in range(25):  # RabbitMQ 4 gives up after 20, unless told otherwise
        source = adapter.source(stage.options, Endpoint(queue=queue))
        source.connect()
        assert source.receive(1, 15) is not None
        source.close()
    stage.channel.queue_delete(queue)


@pytest.mark.parametrize(
    "headers", [[], [("x-delay-period", 300), ("x-delay-repeat", 2), ("x-delay-misfire", "all")]], ids=["none", "unsorted"]
)
def test_the_count_that_a_quorum_queue_adds_to_a_redelivery_is_taken_off_again(
    stage: Stage, headers: list[tuple[str, fields.Value]]
) -> None:
    queue = f"fidelity-quorum-{secrets.token_hex(6)}"
    stage.channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
    stage.source.close()
    stage.source = adapter.source(stage.options, Endpoint(queue=queue))
    stage.source.connect()
    stage.send(with_headers(fields.table(headers)) if headers else b"\x00\x00", key=queue)
    first = stage.source.receive(1, 15)
    stage.source.connect()
    again = stage.source.receive(1, 15)
    assert first is not None
    assert again is not None
    told = [(one.redelivered, fields.sorted_by_name(one.message.headers)) for one in (*first.messages, *again.messages)]
    own = fields.sorted_by_name(fields.table(headers))
    assert told == [(False, own), (True, own)]
    assert again.messages[0].token == first.messages[0].token
    again.ack()
    stage.channel.queue_delete(queue)
