"""Content on the wire, without a broker: the bytes are written out here."""

from __future__ import annotations

import hashlib
import inspect
import struct
from typing import TYPE_CHECKING, Any

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika.adapters.base_connection import BaseConnection
from pika.adapters.select_connection import IOLoop
from pika.adapters.utils.io_services_utils import _AsyncTransportBase
from pika.connection import Connection
from pika.exceptions import InvalidFrameError, UnexpectedFrameError

from delaybridge.adapters.rabbitmq.wire import (
    Confirmed,
    Delivery,
    Event,
    Returned,
    Wire,
    ack_frame,
    content_frames,
    decode,
    encode,
    publish_frame,
)
from delaybridge.core import fields
from delaybridge.core.fields import MalformedTableError
from delaybridge.core.message import NO_PROPERTIES, Properties

if TYPE_CHECKING:
    from collections.abc import Iterator


def frame(kind: int, payload: bytes, channel: int = 1) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def short(text: bytes) -> bytes:
    return bytes((len(text),)) + text


def deliver(tag: int, exchange: bytes = b"x", key: bytes = b"k", redelivered: int = 0) -> bytes:
    return frame(1, b"\0\x3c\0\x3c" + short(b"ctag") + struct.pack(">QB", tag, redelivered) + short(exchange) + short(key))


def header(size: int, properties: bytes = b"\0\0") -> bytes:
    return frame(2, struct.pack(">HHQ", 60, 0, size) + properties)


RETURN = frame(1, b"\0\x3c\0\x32" + struct.pack(">H", 312) + short(b"NO_ROUTE") + short(b"x") + short(b"k"))
ACK = frame(1, b"\0\x3c\0\x50" + struct.pack(">QB", 7, 1))
NACK = frame(1, b"\0\x3c\0\x78" + struct.pack(">QB", 8, 0))
CONTENT: list[tuple[bytes, list[Event]]] = [
    (deliver(1) + header(3) + frame(3, b"abc"), [Delivery(1, False, b"x", b"k", b"\0\0", b"abc")]),
    (deliver(2, b"", b"q", 1) + header(0), [Delivery(2, True, b"", b"q", b"\0\0", b"")]),
    (
        deliver(3) + header(5, b"\x80\0\x01t") + frame(3, b"ab") + frame(3, b"cde"),
        [Delivery(3, False, b"x", b"k", b"\x80\0\x01t", b"abcde")],
    ),
    (RETURN + header(1) + frame(3, b"z"), [Returned(1, "NO_ROUTE", b"k", b"\0\0", b"z")]),
    (ACK + NACK, [Confirmed(1, 7, True, True), Confirmed(1, 8, False, False)]),
]


class Listening:
    """An open wire that never had a socket."""

    def __init__(self) -> None:
        self.loop = IOLoop()
        self.wire = Wire(parameters=pika.ConnectionParameters(), custom_ioloop=self.loop, internal_connection_workflow=False)
        self.wire._opened = True
        self.reads: list[list[Event]] = []
        self.wire.listener = self.reads.append

    @property
    def events(self) -> list[Event]:
        return [event for read in self.reads for event in read]


@pytest.fixture
def listening() -> Iterator[Listening]:
    one = Listening()
    yield one
    one.loop.close()


@pytest.mark.parametrize(("data", "events"), CONTENT)
def test_content_becomes_events(listening: Listening, data: bytes, events: list[Event]) -> None:
    listening.wire._on_data_available(data)
    assert listening.events == events


def test_all_that_one_read_brings_comes_in_one_list(listening: Listening) -> None:
    listening.wire._on_data_available(b"".join(data for data, _ in CONTENT))
    assert listening.reads == [[event for _, events in CONTENT for event in events]]


@given(st.lists(st.integers(1, 400), max_size=30))
def test_it_does_not_matter_where_reads_cut_the_stream(cuts: list[int]) -> None:
    listening = Listening()
    stream = b"".join(data for data, _ in CONTENT)
    at = 0
    for cut in (*cuts, len(stream)):
        if stream[at : at + cut]:
            listening.wire._on_data_available(stream[at : at + cut])
        at += cut
    listening.loop.close()
    assert listening.events == [event for _, events in CONTENT for event in events]
    assert listening.wire.bytes_received == len(stream)


def test_pika_sees_a_frame_only_after_the_events_before_it(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[Any] = []
    listening.wire.listener = order.extend
    monkeypatch.setattr(Wire, "_process_frame", lambda _, frame: order.append(frame.NAME))
    heartbeat = frame(8, b"", channel=0)
    listening.wire._on_data_available(ACK + heartbeat + NACK)
    assert order == [Confirmed(1, 7, True, True), "Heartbeat", Confirmed(1, 8, False, False)]


def test_a_header_table_that_would_kill_pika_is_only_bytes(listening: Listening) -> None:
    inner = b"".join(b"\x01aF" + struct.pack(">I", 7 * level) for level in range(4999, -1, -1))
    table = b"\x01nF" + struct.pack(">I", len(inner)) + inner
    properties = b"\x20\0" + struct.pack(">I", len(table)) + table
    listening.wire._on_data_available(deliver(1) + header(0, properties))
    (delivery,) = listening.events
    assert isinstance(delivery, Delivery)
    assert decode(delivery.properties) == (NO_PROPERTIES, table)


@pytest.mark.parametrize(
    ("data", "error"),
    [(ACK[:-1] + b"\0", InvalidFrameError), (header(0), UnexpectedFrameError), (frame(3, b"a"), UnexpectedFrameError)],
    ids=["no frame end", "header without method", "body without method"],
)
def test_a_broken_stream_ends_the_connection(listening: Listening, data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        listening.wire._on_data_available(data)


# --- properties ---

EVERY = Properties(
    content_type=b"text/plain", content_encoding=b"gzip", delivery_mode=2, priority=9, correlation_id=b"\xff\xfe", reply_to=b"", expiration=b"60000",
    message_id=b"m" * 255, timestamp=2**64 - 1, type=b"t", user_id=b"guest", app_id=b"a", cluster_id=b"c",
)  # fmt: skip
TEXT = st.none() | st.binary(max_size=255)
OCTET = st.none() | st.integers(0, 255)
ANY = st.builds(Properties, TEXT, TEXT, OCTET, OCTET, TEXT, TEXT, TEXT, TEXT, st.none() | st.integers(0, 2**64 - 1), TEXT, TEXT, TEXT, TEXT)


def test_all_thirteen_properties_stand_where_amqp_says() -> None:
    by_pika = pika.BasicProperties(
        content_type="text/plain", content_encoding="gzip", headers={"a": None}, delivery_mode=2, priority=9, correlation_id=b"\xff\xfe",
        reply_to="", expiration="60000", message_id="m" * 255, timestamp=2**64 - 1, type="t", user_id="guest", app_id="a", cluster_id="c",
    )  # fmt: skip
    raw = b"".join(by_pika.encode())
    assert decode(raw) == (EVERY, fields.entry("a", None))
    assert encode(EVERY, fields.entry("a", None)) == raw


@given(ANY, st.dictionaries(st.text(max_size=20), st.integers(-5, 5), max_size=3))
def test_properties_and_table_come_back_as_they_went(properties: Properties, headers: dict[str, int]) -> None:
    table = fields.table(headers.items())
    assert decode(encode(properties, table)) == (properties, table)


@given(st.binary(max_size=60))
def test_no_content_header_breaks_the_reader_and_what_it_takes_it_gives_back(raw: bytes) -> None:
    try:
        properties, table = decode(raw)
    except MalformedTableError:
        return
    if table or not raw[0] & 0x20:
        assert encode(properties, table) == raw


@pytest.mark.parametrize(
    "raw",
    [b"", b"\0", b"\x80\0", b"\x80\0\x05abc", b"\x20\0\0\0\0\x09a", b"\0\x40\0\0", b"\0\0more", b"\0\x02", b"\0\x01\0\0"],
    ids=["empty", "half flags", "no text", "short text", "short table", "short time", "bytes left over", "reserved flag", "more flags"],
)
def test_what_is_not_the_thirteen_properties_is_called_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedTableError):
        decode(raw)


@pytest.mark.parametrize("properties", [Properties(message_id=b"m" * 256), Properties(priority=256), Properties(delivery_mode=-1)])
def test_a_property_of_another_broker_that_does_not_fit_is_refused(properties: Properties) -> None:
    with pytest.raises(ValueError, match=r"range|bytes"):
        encode(properties, b"")


# --- sending ---


@pytest.mark.parametrize("size", [0, 1, 100, 101, 250])
def test_what_is_sent_is_what_pika_would_send(size: int) -> None:
    body, limit = bytes(range(250))[:size], 100
    properties = pika.BasicProperties(content_type="a", headers={"n": "v"})
    expected = [
        pika.frame.Method(5, pika.spec.Basic.Publish(exchange="x", routing_key="k", mandatory=True)).marshal(),
        pika.frame.Header(5, size, properties).marshal(),
        *(pika.frame.Body(5, body[start : start + limit]).marshal() for start in range(0, size, limit)),
    ]
    raw = b"".join(properties.encode())
    assert publish_frame(5, b"x", b"k") + b"".join(content_frames(5, raw, body, limit)) == b"".join(expected)


def test_only_a_direct_reply_is_not_mandatory() -> None:
    """RabbitMQ would return it, whether it has delivered it or not."""
    keys = [(b"", b"amq.rabbitmq.reply-to.g1h2"), (b"", b"amq.rabbitmq.reply-to"), (b"", b"q"), (b"x", b"amq.rabbitmq.reply-to.g1h2")]
    assert [publish_frame(1, exchange, key)[-2] for exchange, key in keys] == [0, 1, 1, 1]


@pytest.mark.parametrize("multiple", [False, True])
def test_an_acknowledgement_is_what_pika_would_send(multiple: bool) -> None:
    expected = pika.frame.Method(5, pika.spec.Basic.Ack(1 << 40, multiple)).marshal()
    assert ack_frame(5, 1 << 40, multiple=multiple) == expected


# --- pika's insides ---

PINNED = {
    Connection._on_data_available: "4745dcc9c29e66ea",
    Connection._read_frame: "6195b377e621f28d",
    Connection._trim_frame_buffer: "13f296ffa75899aa",
    Connection._process_frame: "eabaea15bfa60b8a",
    Connection._output_marshaled_frames: "856452592c11b774",
    Connection._get_body_frame_max_length: "6ac9d1c190e48696",
    Connection._terminate_stream: "9b35860018c378ca",
    Connection._init_connection_state: "e2e608cb38bd3fd1",
    BaseConnection._proto_connection_made: "513e9b9b782358e5",
    BaseConnection._proto_data_received: "06d17d79df826fcb",
    _AsyncTransportBase._consume: "5d3fc19412a05efd",
}


@pytest.mark.parametrize(("member", "digest"), PINNED.items(), ids=lambda value: getattr(value, "__qualname__", ""))
def test_pika_has_not_changed_where_the_wire_replaces_or_uses_its_insides(member: Any, digest: str) -> None:
    """When this fails after an upgrade: read what changed in pika, adapt rabbitmq_wire.py, and pin the new text."""
    assert hashlib.sha256(inspect.getsource(member).encode()).hexdigest()[:16] == digest
