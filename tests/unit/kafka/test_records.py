"""Record batches: ours are read by kafka-python, kafka-python's by us, and damaged ones stall nothing."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder
from msgspec.structs import replace

from delaybridge.adapters.base import NotConnected, Rejected
from delaybridge.adapters.kafka.sources.fetched import Suspects
from delaybridge.adapters.kafka.wire.batches import Records
from delaybridge.adapters.kafka.wire.headers import tail
from delaybridge.adapters.kafka.wire.records import Damaged, Origin, legacy, offset_of, records, unreadable
from delaybridge.adapters.kafka.wire.varints import read_varint, varint
from delaybridge.adapters.texts import text_of
from delaybridge.core import fields
from delaybridge.core.message import Message, Properties

ORIGIN = Origin("orders.delayed", 3, b"i" * 16, "orders", True)
BYTES = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.binary(max_size=255).filter(lambda name: name != b"x-delay-tombstone"), BYTES), max_size=8)


def written(*messages: Message, stamp: int = 1000) -> bytes:
    batch = Records([(b"", tail(message), stamp + number) for number, message in enumerate(messages)])
    batch.set_producer_state(7, 1, 0, False)
    batch.close()
    return batch.buffer()


def read(raw: bytes) -> list[Any]:
    return list(records(DefaultRecordBatch(raw), ORIGIN))


@given(st.integers(-(2**63), 2**63 - 1))
def test_an_integer_comes_back(number: int) -> None:
    assert read_varint(varint(number) + b"rest", 0) == (number, len(varint(number)))


@given(st.lists(st.tuples(BYTES, BYTES, HEADERS), min_size=1, max_size=10))
def test_any_records_come_back(given_: list[tuple[bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]]) -> None:
    messages = [Message(body, fields.table(headers), key=key) for key, body, headers in given_]
    raw = written(*messages)
    assert DefaultRecordBatch(raw).validate_crc()
    again = read(raw)
    for sent, got in zip(messages, again, strict=True):
        assert (got.message.body, got.message.key) == (sent.body, sent.key)
        assert got.message.headers == sent.headers
    assert [offset_of(one.token) for one in again] == list(range(len(messages)))
    assert [one.sent for one in again] == [1000 + number for number in range(len(messages))]


def test_kafka_python_reads_what_we_write() -> None:
    raw = written(Message(b"body", fields.table([("a", b"1"), ("n", None)]), key=b"k"), Message(None))
    first, second = DefaultRecordBatch(raw)
    assert (first.key, first.value, first.headers, first.timestamp) == (b"k", b"body", [("a", b"1"), ("n", None)], 1000)
    assert (second.key, second.value, second.timestamp) == (None, None, 1001)


def test_we_read_what_kafka_python_writes() -> None:
    builder = DefaultRecordBatchBuilder(2, 1, False, -1, -1, -1, 1 << 20)  # gzip
    for number in range(50):
        builder.append(number, 1000 + number, b"key", b"v" * 100, [("a", b"1"), ("b", None)])
    got = read(bytes(builder.build()))
    assert {(one.message.key, one.message.body, one.message.headers) for one in got} == {
        (b"key", b"v" * 100, fields.table([("a", b"1"), ("b", None)]))
    }
    assert got[-1].message.properties == Properties(timestamp_ms=1049, partition=3)
    assert [one.sent for one in got] == list(range(1000, 1050))


def test_where_the_broker_has_stamped_the_records_its_time_counts() -> None:
    raw = bytearray(written(Message(b"a"), Message(b"b")))
    raw[22] |= 1 << 3  # the time of the append
    raw[35:43] = (5000).to_bytes(8, "big")
    assert [(one.sent, one.message.properties.timestamp_ms) for one in read(bytes(raw))] == [(5000, 5000)] * 2


@pytest.mark.parametrize("headers", [[], [("type", b"t")]])
def test_what_has_no_time_says_that_it_is_persistent_because_rabbitmq_would_forget_it_else(headers: list[tuple[str, bytes]]) -> None:
    (timeless,) = read(written(Message(b"a", fields.table(headers)), stamp=-1))
    (old,) = legacy(LegacyRecordBatch(old_format(), 0), ORIGIN)
    batch = unreadable(b"raw", ORIGIN, (0, 0), "bad checksum")
    assert [(one.sent, one.message.properties.delivery_mode) for one in (timeless, old, batch)] == [(None, 2)] * 3


def old_format() -> bytes:
    builder = LegacyRecordBatchBuilder(magic=0, compression_type=0, batch_size=1 << 20)
    builder.append(0, timestamp=None, key=None, value=b"a")
    return bytes(builder.build())


def test_a_record_that_is_cut_off_is_damaged_and_not_a_shorter_one() -> None:
    raw = written(Message(b"body", fields.table([("name", b"value")]), key=b"k"))
    for size in range(61, len(raw)):
        with pytest.raises(Damaged):
            read(raw[:size])


def test_a_headers_name_may_have_255_bytes_and_a_longer_one_is_told_instead_of_cut() -> None:
    table = fields.table([("a" * 255, b"v" * 300), ("b" * 64, b"w")])
    (kept,) = read(written(Message(b"body", table)))
    assert (kept.defect, kept.message.headers) == (None, table)

    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    builder.append(0, 1000, None, b"body", [("a" * 256, b"v")])
    (longer,) = read(bytes(builder.build()))
    assert longer.defect is not None
    assert longer.defect.reason == "header_damaged"


def test_headers_give_the_properties_that_kafka_has_not_where_they_can_be_read_as_such() -> None:
    readable = [("content-type", b"text/plain"), ("message-id", b"m" * 255), ("priority", b"255"), ("expiration", b"60000")]
    unfit = [("type", b"t" * 256), ("priority", b"256"), ("expiration", b"soon"), ("reply-to", None)]
    unread = [("priority", b"0005")], [("priority", b"low")]
    first, second, *others = read(written(*(Message(b"", fields.table(pairs)) for pairs in (readable, unfit, *unread))))

    assert first.message.properties == Properties(
        content_type=b"text/plain", message_id=b"m" * 255, priority=255, expiration=b"60000", timestamp_ms=1000, partition=3
    )
    assert second.message.properties == Properties(timestamp_ms=1001, partition=3)
    assert [one.message.properties for one in others] == [Properties(timestamp_ms=1002 + number, partition=3) for number in range(2)]


def test_properties_are_headers_that_are_read_again_and_stand_there_once() -> None:
    properties = Properties(
        content_type=b"text/plain", content_encoding=b"gzip", priority=5, correlation_id=b"c", reply_to=b"r", expiration=b"60000",
        message_id=b"m", type=b"t", app_id=b"a",
    )  # fmt: skip
    (first,) = read(written(Message(b"body", b"", properties)))
    assert first.message.properties == replace(properties, timestamp_ms=1000, partition=3)
    assert fields.plain(first.message.headers) == {
        "content-type": b"text/plain", "content-encoding": b"gzip", "priority": b"5", "correlation-id": b"c", "reply-to": b"r",
        "expiration": b"60000", "message-id": b"m", "type": b"t", "app-id": b"a",
    }  # fmt: skip

    (again,) = read(written(first.message))
    assert again.message.headers == first.message.headers + fields.table([("x-delay-timestamp", b"1000")])


def test_a_property_that_a_header_of_its_name_contradicts_stands_behind_it_and_counts() -> None:
    headers: list[tuple[str, fields.Value]] = [("type", "order"), ("priority", 3), ("app-id", None)]
    properties = Properties(type=b"shop.Order", priority=7, app_id=b"shop")
    (one,) = read(written(Message(b"", fields.table(headers), properties)))
    said = [("type", b"order"), ("priority", b"3"), ("app-id", None), ("type", b"shop.Order"), ("app-id", b"shop"), ("priority", b"7")]
    assert one.message.headers == fields.table(said)
    assert one.message.properties == replace(properties, timestamp_ms=1000, partition=3)


@pytest.mark.parametrize(
    "headers",
    [
        [("type", b"a"), ("type", b"b")],
        [("type", b"a"), ("type", None)],
        [("type", b"a"), ("type", b"b" * 256)],
        [("priority", b"007"), ("priority", b"high")],
        [("priority", b"000")],
    ],
)
def test_what_kafkas_own_headers_say_is_not_said_again(headers: list[tuple[str, bytes | None]]) -> None:
    (first,) = read(written(Message(b"", fields.table(headers))))
    (again,) = read(written(first.message))
    assert again.message.headers == fields.table([*headers, ("x-delay-timestamp", b"1000")])


@pytest.mark.parametrize("properties", [Properties(timestamp_ms=5_000), Properties(timestamp=5)])
def test_the_time_at_which_a_message_was_first_sent_stands_there_once(properties: Properties) -> None:
    (one,) = read(written(Message(b"", fields.table([("x-delay-timestamp", b"7"), ("a", b"b")]), properties)))
    assert one.message.headers == fields.table([("a", b"b"), ("x-delay-timestamp", b"5000")])


@pytest.mark.parametrize(
    ("body", "said", "tombstone"), [(b"", b"true", True), (None, b"true", True), (b"", b"false", False), (b"body", b"true", False)]
)
def test_an_empty_body_of_which_a_header_says_so_is_a_tombstone(body: bytes | None, said: bytes, *, tombstone: bool) -> None:
    table = fields.table([("x-delay-tombstone", said)])
    (one,) = read(written(Message(body, table)))
    assert (one.message.body, one.message.headers) == ((None, b"") if tombstone else (body, table))


def of_epoch(epoch: int, base: int) -> list[Any]:
    """Two records as the leader of that epoch has written them."""
    raw = bytearray(written(Message(b"a"), Message(b"b")))
    raw[0:8], raw[12:16] = base.to_bytes(8, "big"), epoch.to_bytes(4, "big", signed=True)
    return read(bytes(raw))


def test_a_record_is_in_the_log_of_its_partition_behind_all_that_came_before() -> None:
    """Also where it takes the offset of one that an unclean election has thrown away."""
    came = [*of_epoch(-1, 0), *of_epoch(1, 2), *of_epoch(1, 254), *of_epoch(2, 256), *of_epoch(300, 255)]
    tokens = [one.token for one in came]
    assert {one.log for one in came} == {ORIGIN.log}
    assert all(token.startswith(ORIGIN.log) for token in tokens)
    assert tokens == sorted(set(tokens))
    others = {ORIGIN._replace(partition=4).log, ORIGIN._replace(identity=b"j" * 16).log}
    assert len({ORIGIN.log, *others}) == 3


def test_what_has_no_position_that_can_be_trusted_is_in_no_log() -> None:
    first, _ = of_epoch(1, 0)
    nameless = ORIGIN._replace(identity=b"")
    (unnamed,) = records(DefaultRecordBatch(written(Message(b"a"))), nameless)
    damaged = unreadable(b"raw", ORIGIN, (0, 0), "bad checksum")
    assert [one.log for one in (first, unnamed, damaged)] == [ORIGIN.log, b"", b""]
    assert damaged.token != first.token


def test_a_record_of_a_topic_that_was_made_again_is_another_one() -> None:
    """By the topic's id; where the broker gives none, by the record's time."""
    again = ORIGIN._replace(identity=b"j" * 16)
    assert ORIGIN.token(5, 1000) == ORIGIN.token(5, 2000) != again.token(5, 1000)

    nameless = ORIGIN._replace(identity=b"")
    assert nameless.token(5, 1000) != nameless.token(5, 2000)
    assert {offset_of(origin.token(5, 1000)) for origin in (ORIGIN, again, nameless)} == {5}


@pytest.mark.parametrize("at", range(61, 90))
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0xFF])
def test_a_damaged_record_is_damaged_or_readable_and_nothing_else(at: int, byte: int) -> None:
    raw = bytearray(written(Message(b"body", fields.table([("name", b"value")]), key=b"k"), Message(b"second")))
    if at < len(raw):
        raw[at] = byte
    with contextlib.suppress(Damaged):
        read(bytes(raw))


def test_a_batch_that_cannot_be_read_is_fetched_again_once_and_then_given_up_whole() -> None:
    suspects = Suspects()
    with pytest.raises(NotConnected):
        suspects.twice(ORIGIN, 17, "bad checksum")
    suspects.twice(ORIGIN, 17, "bad checksum")
    raw = written(Message(b"a"), Message(b"b"))
    one = unreadable(raw, ORIGIN, (0, 1), "bad checksum")
    assert one.defect is not None
    assert (one.defect.reason, one.message.body, offset_of(one.token)) == ("header_damaged", raw, 1)


def test_batches_split_without_losing_a_message() -> None:
    batch = Records([(b"%d" % number, b"tail", 5) for number in range(7)])
    first, second = batch.smaller()
    assert [tag for half in (first, second) for tag, _, _ in half.prepared] == [b"%d" % number for number in range(7)]
    assert (len(first.prepared), len(second.prepared)) == (4, 3)


def test_a_single_message_is_made_smaller_once_and_comes_back_as_it_was() -> None:
    message = Message(b"x" * 100_000, fields.table([("a", b"b")]), key=b"k")
    (smaller,) = Records([(b"tag", tail(message), 1000)]).smaller()
    assert smaller.smaller() == []
    smaller.set_producer_state(7, 1, 5, True)
    smaller.close()
    assert smaller.size_in_bytes() < 1_000
    raw = DefaultRecordBatch(smaller.buffer())
    assert (raw.validate_crc(), raw.is_transactional, raw.base_sequence) == (True, True, 5)
    (one,) = read(smaller.buffer())
    assert (one.message.body, one.message.key, one.message.headers, one.sent) == (message.body, b"k", message.headers, 1000)


def test_a_closed_or_full_batch_takes_no_more() -> None:
    batch = Records([(b"1", b"x" * 899_000, 0)])
    assert not batch.append((b"2", b"x" * 2000, 0))
    assert Records().append((b"1", b"x" * 2_000_000, 0)), "the first one always fits"
    small = Records([(b"1", b"x", 0)])
    small.close()
    assert not small.append((b"2", b"x", 0))


def test_a_batch_bears_its_latest_time_and_whether_it_is_of_a_transaction() -> None:
    for transactional in (True, False):
        batch = Records([(b"", tail(Message(b"")), stamp) for stamp in (1000, 3000, 2000)])
        batch.set_producer_state(7, 1, 5, transactional)
        batch.close()
        raw = DefaultRecordBatch(batch.buffer())
        assert (raw.is_transactional, raw.producer_id, raw.base_sequence, raw.max_timestamp) == (transactional, 7, 5, 3000)
        assert [one.sent for one in read(batch.buffer())] == [1000, 3000, 2000]


def test_a_batch_that_is_closed_does_not_change_any_more() -> None:
    batch = Records([(b"", tail(Message(b"")), 1000)])
    batch.close()
    sent = batch.buffer()
    batch.set_producer_state(8, 0, 0, True)
    batch.close()
    assert batch.buffer() == sent


def nested(depth: int) -> bytes:
    payload = b""
    for _ in range(depth):
        inner = b"\x01aF" + len(payload).to_bytes(4, "big") + payload
        payload = inner
    return payload


TEXTS: dict[bytes, bytes | None] = {
    b"\x01at\x01": b"true",
    b"\x01al" + (-5).to_bytes(8, "big", signed=True): b"-5",
    b"\x01ad" + b"\x3f\xf8\0\0\0\0\0\0": b"1.5",
    b"\x01aV": None,
    b"\x01aT" + (1_700_000_000).to_bytes(8, "big"): b"1700000000",
    b"\x01aD\x02" + (314).to_bytes(4, "big"): b"3.14",
    b"\x01aD\x07" + (-5).to_bytes(4, "big", signed=True): b"-0.0000005",
}


@pytest.mark.parametrize(("table", "text"), list(TEXTS.items()))
def test_values_become_text(table: bytes, text: bytes | None) -> None:
    assert text_of(next(fields.fields(table))) == text


def test_tables_and_arrays_become_json() -> None:
    items = b"S\0\0\0\x01x" + b"t\x01" + b"x\0\0\0\x01\xff"
    inner = b"\x01nl" + (1).to_bytes(8, "big") + b"\x01aA" + len(items).to_bytes(4, "big") + items + b"\x01mD\x09\0\0\0\x01"
    table = b"\x01hF" + len(inner).to_bytes(4, "big") + inner
    assert text_of(next(fields.fields(table))) == b'{"n":1,"a":["x",true,"/w=="],"m":"0.000000001"}'


def test_names_in_a_table_that_are_no_text_stay_apart() -> None:
    table = b"\x01hF\0\0\0\x06\x01\xfeV\x01\xffV"
    assert text_of(next(fields.fields(table))) == rb'{"\\xfe":null,"\\xff":null}'


def test_what_is_nested_too_deep_is_rejected() -> None:
    with pytest.raises(Rejected):
        tail(Message(b"", nested(5000)))


@pytest.mark.parametrize(("table", "text"), list(TEXTS.items()))
def test_values_of_headers_become_text_and_what_follows_them_stays(table: bytes, text: bytes | None) -> None:
    (one,) = read(written(Message(b"", table + fields.table([("b", "1"), ("c", b"2")]))))
    assert one.message.headers == fields.table([("a", text), ("b", b"1"), ("c", b"2")])


def test_a_damaged_table_is_rejected() -> None:
    with pytest.raises(Rejected):
        tail(Message(b"", b"\x05abc"))


@pytest.mark.parametrize("table", [*TEXTS, fields.table([("a", b"value")]), fields.table([("a", "value")])])
def test_a_table_that_is_cut_off_anywhere_is_rejected_and_no_value_shortened(table: bytes) -> None:
    for size in range(1, len(table)):
        with pytest.raises(Rejected):
            tail(Message(b"", table[:size]))
