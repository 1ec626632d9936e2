"""What becomes of fetched bytes: each compression, the formats before 0.11, and whatever is damaged on the disk or on the way."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.consumer.fetcher import IsolationLevel
from kafka.errors import UnsupportedCodecError
from kafka.record import default_records, legacy_records
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords
from kafka.record.util import calc_crc32c
from kafka.structs import TopicPartition

from delaybridge.adapters.base import NotConnected
from delaybridge.adapters.kafka.sources.fetched import PartitionRecords, Suspects
from delaybridge.adapters.kafka.wire.records import Origin, offset_of
from delaybridge.core.message import Properties

ORIGIN = Origin("orders.delayed", 3, b"i" * 16, "orders", True)
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


class Fetch:
    """One partition, fetched as often as a test asks."""

    def __init__(self) -> None:
        self.suspects = Suspects()

    def __call__(self, raw: bytes, offset: int = 0, **told: Any) -> list[Any]:
        """All records of these bytes; `told` is what kafka-python knows of transactions. Raises NotConnected."""
        self.partition = PartitionRecords(
            lambda _: ORIGIN, self.suspects, offset, TopicPartition("orders.delayed", 3), MemoryRecords(raw), None, None, **told
        )
        records: list[Any] = []
        while self.partition and (some := self.partition.take(100)):
            records += some
        return records


@pytest.fixture
def fetch() -> Fetch:
    return Fetch()


def batch(first: int, *values: bytes, codec: int = 0) -> bytearray:
    """A batch as a broker has it on its disk, at offset `first`."""
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 24)
    for number, value in enumerate(values):
        builder.append(number, 1000, b"key", value, [])
    raw = bytearray(builder.build())
    struct.pack_into(">q", raw, 0, first)  # the checksum does not cover it, so that brokers can write it
    return raw


def signed(raw: bytearray) -> bytearray:
    """With a checksum that is right for what the batch has become."""
    struct.pack_into(">I", raw, 17, calc_crc32c(bytes(raw[21:])))
    return raw


def values(records: list[Any]) -> list[bytes | None]:
    return [one.message.body for one in records]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_each_compression_is_read(fetch: Fetch, codec: int) -> None:
    sent = [b"%d" % number * 1000 for number in range(1000)]  # more than a megabyte
    assert values(fetch(bytes(batch(0, *sent, codec=codec)))) == sent


def test_a_codec_whose_library_is_missing_stops_intake_and_takes_nothing_away(fetch: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = bytes(batch(0, b"a" * 1000, codec=CODECS["zstd"]))
    monkeypatch.setattr(default_records.codecs, "has_zstd", lambda: False)
    for _ in range(2):
        with pytest.raises(UnsupportedCodecError, match="zstd"):
            fetch(raw)


def test_a_fetch_from_the_middle_of_a_batch_gives_only_what_was_asked_for(fetch: Fetch) -> None:
    assert values(fetch(bytes(batch(10, b"a", b"b", b"c")), 11)) == [b"b", b"c"]


def test_what_was_taken_of_a_batch_is_not_fetched_again_and_the_rest_is(fetch: Fetch) -> None:
    partition = PartitionRecords(
        lambda _: ORIGIN,
        fetch.suspects,
        10,
        TopicPartition("orders.delayed", 3),
        MemoryRecords(bytes(batch(10, b"a", b"b", b"c"))),
        None,
        None,
    )
    assert (values(partition.take(2)), partition.next_fetch_offset) == ([b"a", b"b"], 12)


def test_a_batch_that_has_lost_its_last_records_by_compaction_is_passed_over(fetch: Fetch) -> None:
    raw = batch(10, b"a")
    struct.pack_into(">i", raw, 23, 4)  # it held five
    assert values(fetch(bytes(signed(raw)), 10)) == [b"a"]
    assert fetch.partition.next_fetch_offset == 15


# --- transactions ---

COMMIT, ABORT = b"\0\0\0\1", b"\0\0\0\0"


def of_transaction(first: int, *values: bytes, producer: int = 7) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, True, producer, 0, 0, 1 << 24)
    for number, value in enumerate(values):
        builder.append(number, 1000, None, value, [])
    raw = bytearray(builder.build())
    struct.pack_into(">q", raw, 0, first)
    return bytes(raw)


def marker(first: int, end: bytes, producer: int = 7) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, True, producer, 0, -1, 1 << 24)
    builder.append(0, 1000, end, b"\0" * 6, [])
    raw = bytearray(builder.build())
    struct.pack_into(">q", raw, 0, first)
    raw[22] |= 1 << 5  # a control batch
    return bytes(signed(raw))


def test_what_was_aborted_is_passed_over_and_what_its_producer_commits_afterwards_is_read(fetch: Fetch) -> None:
    raw = of_transaction(0, b"aborted", b"too") + of_transaction(2, b"another's", producer=8) + marker(3, ABORT) + marker(4, COMMIT, 8)
    raw += of_transaction(5, b"committed") + marker(6, COMMIT)
    told = {"isolation_level": IsolationLevel.READ_COMMITTED, "aborted_transactions": [SimpleNamespace(producer_id=7, first_offset=0)]}
    assert (values(fetch(raw, **told)), fetch.partition.next_fetch_offset) == ([b"another's", b"committed"], 7)
    assert (values(fetch(of_transaction(0, b"aborted", b"too"), **told)), fetch.partition.next_fetch_offset) == ([], 2)


def test_a_marker_of_which_compaction_has_left_the_header_is_passed_over(fetch: Fetch) -> None:
    raw = bytearray(marker(0, COMMIT)[:61])
    struct.pack_into(">i", raw, 8, len(raw) - 12)
    struct.pack_into(">i", raw, 57, 0)  # no record
    assert values(fetch(bytes(signed(raw) + batch(1, b"a")), isolation_level=IsolationLevel.READ_COMMITTED)) == [b"a"]


def test_who_reads_what_is_not_committed_gets_everything_but_the_markers(fetch: Fetch) -> None:
    raw = of_transaction(0, b"aborted") + marker(1, ABORT) + of_transaction(2, b"open")
    assert values(fetch(raw)) == [b"aborted", b"open"]


# --- the formats before 0.11 ---


@pytest.mark.parametrize("codec", [0, 1, 2, 3], ids=["none", "gzip", "snappy", "lz4"])
def test_the_format_of_0_10_is_read(fetch: Fetch, codec: int) -> None:
    builder = LegacyRecordBatchBuilder(1, codec, 1 << 20)
    for number in range(5):
        builder.append(number, 1000 + number, b"k", b"%d" % number)
    builder.append(5, 1005, None, None)
    raw = bytearray(builder.build())
    if codec:
        struct.pack_into(">q", raw, 0, 5)  # the last one, as brokers write it
    records = fetch(bytes(raw))
    assert values(records) == [b"0", b"1", b"2", b"3", b"4", None]
    assert [offset_of(one.token) for one in records] == list(range(6))
    assert records[0].message.properties == Properties(timestamp_ms=1000, partition=3)
    assert (records[0].message.key, records[5].message.key, records[0].sent) == (b"k", None, 1000)
    assert fetch.partition.next_fetch_offset == 6


def test_the_format_of_0_9_has_no_time(fetch: Fetch) -> None:
    builder = LegacyRecordBatchBuilder(0, 0, 1 << 20)
    builder.append(0, None, b"k", b"v")
    (one,) = fetch(bytes(builder.build()))
    assert (one.message.body, one.message.key, one.sent, one.message.properties.timestamp_ms) == (b"v", b"k", None, None)


@pytest.mark.parametrize("which", range(3))
def test_a_damaged_record_of_an_old_format_is_given_up_alone(fetch: Fetch, which: int) -> None:
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 20)
    for number in range(3):
        builder.append(number, 1000, None, b"value-%d" % number)
    raw = bytes(builder.build()).replace(b"value-%d" % which, b"valuE-%d" % which)
    with pytest.raises(NotConnected):
        fetch(raw)
    records = fetch(raw)
    odd = records.pop(which)
    assert values(records) == [b"value-%d" % number for number in range(3) if number != which]
    assert odd.defect is not None
    assert b"valuE-%d" % which in (odd.message.body or b"")


def test_a_codec_of_an_old_format_whose_library_is_missing_takes_nothing_away_either(fetch: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = LegacyRecordBatchBuilder(1, CODECS["lz4"], 1 << 20)
    builder.append(0, 1000, None, b"a" * 1000)
    raw = bytes(builder.build())
    monkeypatch.setattr(legacy_records.codecs, "has_lz4", lambda: False)
    for _ in range(2):
        with pytest.raises(UnsupportedCodecError, match="lz4"):
            fetch(raw)


# --- damage ---


def damaged(fetch: Fetch, raw: bytes, offset: int = 0) -> list[Any]:
    """Fetched twice: the network may have been at fault."""
    with pytest.raises(NotConnected, match="fetched again"):
        fetch(raw, offset)
    return fetch(raw, offset)


def test_a_batch_with_a_wrong_checksum_is_given_up_whole_and_its_neighbours_are_read(fetch: Fetch) -> None:
    middle = batch(2, b"c", b"d")
    middle[-3] ^= 0x10
    raw = bytes(batch(0, b"a", b"b") + middle + batch(4, b"e"))
    records = damaged(fetch, raw)
    assert values(records) == [b"a", b"b", bytes(middle), b"e"]
    assert [one.defect and one.defect.reason for one in records] == [None, None, "header_damaged", None]
    assert "offsets 2 to 3" in str(records[2].defect)
    assert fetch.partition.next_fetch_offset == 5


def test_a_batch_that_arrived_damaged_and_is_well_the_second_time_is_read(fetch: Fetch) -> None:
    raw = batch(0, b"a", b"b")
    raw[-1] ^= 1
    with pytest.raises(NotConnected):
        fetch(bytes(raw))
    raw[-1] ^= 1
    assert values(fetch(bytes(raw))) == [b"a", b"b"]


@pytest.mark.parametrize("before", [b"", bytes(batch(0, b"a"))], ids=["the first", "one between others"])
def test_of_a_damaged_batch_nothing_is_left_once_it_was_told(fetch: Fetch, before: bytes) -> None:
    """A source that is closed in the middle of a rebalance polls once more: it would never end."""
    raw = batch(1, b"b")
    raw[-1] ^= 1
    with pytest.raises(NotConnected):
        fetch(before + bytes(raw))
    assert not fetch.partition


def test_many_damaged_batches_cost_one_connection_each(fetch: Fetch) -> None:
    raw = bytearray()
    for number in range(20):
        one = batch(number, b"x")
        one[-2] ^= 1
        raw += one
    for _ in range(20):
        with pytest.raises(NotConnected):
            fetch(bytes(raw))
    assert len(fetch(bytes(raw))) == 20


@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=["gzip", "snappy", "lz4", "zstd"])
def test_what_cannot_be_decompressed_is_given_up_as_it_came(fetch: Fetch, codec: int) -> None:
    raw = batch(0, *[b"%d" % number for number in range(100)], codec=codec)
    raw[61:] = bytes(len(raw) - 61)  # what follows the header
    (one,) = damaged(fetch, bytes(signed(raw)))
    assert one.message.body == bytes(raw)
    assert "decompressed" in str(one.defect)


def test_a_compressed_batch_that_ends_early_keeps_its_compressed_bytes(fetch: Fetch) -> None:
    raw = batch(0, b"a", b"b", codec=CODECS["gzip"])
    struct.pack_into(">i", raw, 57, 3)  # one record more than there is
    records = damaged(fetch, bytes(signed(raw)))
    assert values(records) == [b"a", b"b", bytes(raw)]


@pytest.mark.parametrize(("at", "what"), [(23, "the last offset"), (57, "the count"), (21, "the attributes")])
def test_a_damaged_header_skips_and_repeats_nothing(fetch: Fetch, at: int, what: str) -> None:
    first = batch(0, b"a", b"b")
    first[at : at + 2] = b"\x7f\xff"
    records = damaged(fetch, bytes(first + batch(2, b"c")))
    assert values(records) == [bytes(first), b"c"], what
    assert fetch.partition.next_fetch_offset == 3


def test_a_damaged_batch_of_which_nobody_knows_the_end_waits_for_its_successor(fetch: Fetch) -> None:
    raw = batch(0, b"a", b"b")
    raw[23:25] = b"\x7f\xff"  # the last offset
    for _ in range(3):
        with pytest.raises(NotConnected, match="where it ends"):
            fetch(bytes(raw))
    assert values(damaged(fetch, bytes(raw + batch(2, b"c")))) == [bytes(raw), b"c"]
