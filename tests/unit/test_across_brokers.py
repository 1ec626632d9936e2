"""Any message over all nine pairs of brokers, by what their sinks write and their sources read: what docs/across-brokers.md promises of each one."""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch
from msgspec.structs import replace
from unit.rabbitmq.sink_stage import Stage

from delaybridge.adapters.activemq.frames import Reader, escaped
from delaybridge.adapters.activemq.incoming import Rules
from delaybridge.adapters.activemq.incoming import received as from_activemq
from delaybridge.adapters.activemq.outgoing import headers_of
from delaybridge.adapters.base import Outgoing, Received
from delaybridge.adapters.kafka.wire.batches import Records
from delaybridge.adapters.kafka.wire.headers import tail
from delaybridge.adapters.kafka.wire.records import Origin, records
from delaybridge.adapters.rabbitmq.address import parse
from delaybridge.adapters.rabbitmq.source import Ingress, RabbitSource
from delaybridge.adapters.rabbitmq.wire import Delivery, encode
from delaybridge.core import fields
from delaybridge.core.message import Message, Properties

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = 1_800_000_000_000
TEN_YEARS = 315_360_000_000
few = settings(max_examples=25, deadline=None)

# --- through each broker: what its sink writes, as its source reads it ---

SOURCE = RabbitSource(list, Ingress("q", create=True), prefetch=1, timeout=1)
SINK = Stage(impersonates=True).session
ORIGIN = Origin("orders", 0, b"i" * 16, "orders", False)
ACTIVEMQS = (
    b"destination:/queue/q\nmessage-id:ID\\ch-1-2-3\\c4\\c-1\\c1\\c5\nsubscription:mark1\nack:a\nexpires:0\npriority:4\ntimestamp:%d\n"
    % NOW
)
"""What ActiveMQ says of a message whose producer does not. In a frame the first of several headers counts."""
SAID_BY_ACTIVEMQ = {line.partition(b":")[0] for line in ACTIVEMQS.splitlines()} | {b"content-length", b"persistent", b"reply-to"}


def whole(one: Received) -> Message:
    assert one.defect is None
    return one.message


def rabbitmq(message: Message) -> Message:
    prepared = SINK._prepared(Outgoing(b"", "q", message), parse("q"))
    return whole(SOURCE._received(Delivery(1, False, b"", b"q", prepared.properties, prepared.body)))


def kafka(message: Message, stamp: int = NOW) -> Message:
    batch = Records([(b"", tail(message), stamp)])
    batch.close()
    (one,) = records(DefaultRecordBatch(batch.buffer()), ORIGIN)
    return whole(one)


def activemq(message: Message) -> Message:
    return delivered(*headers_of(message, NOW, persistent=True))


def delivered(head: bytes, body: bytes) -> Message:
    (frame,) = Reader(b"mark").feed(b"MESSAGE\n" + head + ACTIVEMQS + b"\n" + body + b"\0\n")
    assert frame.headers[b"destination"] == b"/queue/q"
    return whole(from_activemq(frame, Rules()))


THROUGH: dict[str, Callable[[Message], Message]] = {"rabbitmq": rabbitmq, "kafka": kafka, "activemq": activemq}

# --- what producers send ---

texts = st.text(max_size=40).map(str.encode)
bodies = st.binary(max_size=100) | texts
special = (
    "",
    "_",
    "type",
    "content-type",
    "priority",
    "expiration",
    "destination",
    "x-delay-key",
    "x-delay-tombstone",
    "x-delay-timestamp",
    "JMSType",
    "a\nb:c",
)
names = st.sampled_from(special).map(str.encode) | st.binary(max_size=60) | texts
shorts = st.none() | st.binary(max_size=255) | texts | st.sampled_from([b"text/plain", b"application/json"])
replies = st.sampled_from([None, b"replies", b"/queue/replies"])


def numbers(tag: str, form: str, least: int, most: int) -> st.SearchStrategy[bytes]:
    return st.integers(least, most).map(lambda number: tag.encode() + struct.pack(form, number))


def sized(tag: bytes, payload: bytes) -> bytes:
    return tag + len(payload).to_bytes(4, "big") + payload


def table(entries: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(bytes((len(name),)) + name + value for name, value in entries)


scalars = st.one_of(
    numbers("b", ">b", -128, 127), numbers("B", ">B", 0, 255), numbers("s", ">h", -(2**15), 2**15 - 1), numbers("u", ">H", 0, 2**16 - 1),
    numbers("I", ">i", -(2**31), 2**31 - 1), numbers("i", ">I", 0, 2**32 - 1), numbers("l", ">q", -(2**63), 2**63 - 1),
    numbers("T", ">Q", 0, 2**64 - 1), numbers("t", ">B", 0, 1), st.just(b"V"),
    st.floats(width=32).map(lambda number: b"f" + struct.pack(">f", number)), st.floats().map(lambda number: b"d" + struct.pack(">d", number)),
    st.tuples(st.integers(0, 255), st.integers(-(2**31), 2**31 - 1)).map(lambda decimal: b"D" + struct.pack(">Bi", *decimal)),
    bodies.map(lambda text: sized(b"S", text)), bodies.map(lambda raw: sized(b"x", raw)),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: sized(b"A", b"".join(items)))
        | st.lists(st.tuples(names, inner), max_size=3).map(lambda entries: sized(b"F", table(entries)))
    ),
    max_leaves=5,
)
said = st.builds(
    Properties, content_type=shorts, content_encoding=shorts, delivery_mode=st.sampled_from([None, 1, 2]), priority=st.none() | st.integers(0, 255),
    correlation_id=shorts, reply_to=replies, expiration=st.none() | st.integers(1, TEN_YEARS).map(b"%d".__mod__) | st.just(b"+600000"),
    message_id=shorts.filter(bool), timestamp=st.none() | st.integers(1, 10**14), type=shorts, app_id=shorts, cluster_id=shorts,
)  # fmt: skip
by_rabbitmq = st.builds(
    lambda properties, entries, body: whole(SOURCE._received(Delivery(1, False, b"", b"q", encode(properties, table(entries)), body))),
    said, st.lists(st.tuples(names, values), max_size=4), bodies,
)  # fmt: skip
by_kafka = st.builds(
    lambda key, value, headers, stamp: kafka(Message(value, fields.table(headers), key=key), stamp),
    st.none() | bodies, st.none() | bodies, st.lists(st.tuples(names, st.none() | bodies | st.sampled_from([b"7", b"true", b"600000"])), max_size=5),
    st.sampled_from([-1, 1, NOW]),
)  # fmt: skip
lines = st.dictionaries(
    (texts | st.sampled_from([b"x-delay-key", b"content-type", b"correlation-id", b"type", b"app-id", b"x-delay-message-id", b"x-delay-timestamp"]))
    .filter(lambda name: name not in SAID_BY_ACTIVEMQ),
    texts, max_size=5,
).map(lambda headers: b"".join(b"%b:%b\n" % (escaped(name), escaped(value)) for name, value in headers.items() if b"\0" not in name + value))  # fmt: skip
own = st.sampled_from([b"", b"persistent:true\nexpires:%d\n" % (NOW + 5000), b"priority:9\nreply-to:/queue/replies\n"])
by_activemq = st.builds(lambda head, more, body: delivered(more + head + b"content-length:%d\n" % len(body), body), lines, own, bodies)

BY = {"rabbitmq": by_rabbitmq, "kafka": by_kafka, "activemq": by_activemq}


class Trip(NamedTuple):
    """What was sent, and what came out of the sink's broker. None of these messages is beyond any limit, so none is refused."""

    sink: str
    sent: Message
    came: Message


def trip(data: st.DataObject, source: str, sink: str) -> Trip:
    sent = data.draw(BY[source])
    return Trip(sink, sent, THROUGH[sink](sent))


PAIRS = list(itertools.product(BY, repeat=2))
every_pair = pytest.mark.parametrize(("source", "sink"), PAIRS, ids=["-".join(pair) for pair in PAIRS])


# --- what holds ---


@every_pair
@few
@given(data=st.data())
def test_any_message_arrives_with_its_body_its_key_and_its_properties(source: str, sink: str, data: st.DataObject) -> None:
    one = trip(data, source, sink)
    assert (one.came.body or b"") == (one.sent.body or b"")
    assert one.sent.key in (None, one.came.key)
    assert one.sent.body is not None or kafka(one.came).body is None, "a tombstone is one again"
    assert not changed(one)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(one.came), type=Message) == one.came, "it can wait in a store"


TEXTS = ("content_type", "content_encoding", "correlation_id", "reply_to", "message_id", "type", "app_id")


def changed(one: Trip) -> list[str]:
    """The properties that did not arrive and are not said to be changed."""
    sent, came = one.sent.properties, one.came.properties
    wrong = [name for name in TEXTS if is_carried(one.sink, getattr(sent, name)) and getattr(came, name) != getattr(sent, name)]
    if sent.priority is not None and came.priority != (min(9, sent.priority) if one.sink == "activemq" else sent.priority):
        wrong.append("priority")
    if sent.expiration is not None and (one.sink != "kafka" or sent.expiration.isdigit()):
        wrong += ["expiration"] * (int(came.expiration or 0) != max(one.sink == "activemq", int(sent.expiration)))
    return wrong


def is_carried(sink: str, text: bytes | None) -> bool:
    """ActiveMQ's headers are text; what is none is in a header of another name."""
    return text is not None and (sink != "activemq" or (b"\0" not in text and text.decode(errors="replace").encode() == text))


@few
@given(by_rabbitmq)
def test_what_goes_from_rabbitmq_to_rabbitmq_is_the_same(sent: Message) -> None:
    assert rabbitmq(sent) == sent


@few
@given(by_kafka)
def test_what_goes_from_kafka_to_kafka_is_the_same_but_for_its_time(sent: Message) -> None:
    came = kafka(sent)
    assert replace(came.properties, timestamp_ms=None, delivery_mode=None) == replace(
        sent.properties, timestamp_ms=None, delivery_mode=None
    )
    assert (came.key, unwatched(came)) == (sent.key, unwatched(sent))


def unwatched(message: Message) -> bytes:
    """The headers, less those by which the bridge says what Kafka has a place for, or none."""
    return fields.without(message.headers, fields.named(message.headers, {b"x-delay-timestamp", b"x-delay-tombstone"}))


@pytest.mark.parametrize(("source", "sink"), [("rabbitmq", "kafka"), ("kafka", "rabbitmq")])
@few
@given(data=st.data())
def test_between_rabbitmq_and_kafka_headers_keep_their_names_duplicates_and_order(source: str, sink: str, data: st.DataObject) -> None:
    _, *both = trip(data, source, sink)
    kept, came = ([field.name for field in fields.fields(unwatched(message)) if field.name != b"x-delay-key"] for message in both)
    assert came[: len(kept)] == kept


@every_pair
@few
@given(data=st.data())
def test_the_time_at_which_a_message_was_first_sent_is_told_once(source: str, sink: str, data: st.DataObject) -> None:
    _, sent, came = trip(data, source, sink)
    first = sent_at(sent.properties)
    stamps = [field.payload for field in fields.fields(came.headers) if field.name == b"x-delay-timestamp"]
    if first is not None and sink == "rabbitmq":
        assert came.properties.timestamp == first // 1000
    elif first is not None:
        assert stamps == [b"%d" % first]


def sent_at(properties: Properties) -> int | None:
    seconds = properties.timestamp
    return properties.timestamp_ms if properties.timestamp_ms is not None or seconds is None else seconds * 1000
