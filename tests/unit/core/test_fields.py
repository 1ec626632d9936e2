"""Header tables: typed, lossless, and read without descending."""

from __future__ import annotations

import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaybridge.core import fields
from delaybridge.core.fields import Field, MalformedTableError, Value


def field(table: bytes) -> Field:
    (only,) = fields.fields(table)
    return only


PLAIN: list[Value] = [None, True, False, 0, -1, 2**63 - 1, -(2**63), 1.5, float("-inf"), "", "text", "größe", b"", b"\x00\xff"]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_a_value_that_a_producer_can_say_is_read_back_with_its_type(value: Value) -> None:
    read = fields.value_of(field(fields.entry("name", value)))
    assert read == value
    assert type(read) is type(value)


NUMBERS = [
    ("b", ">b", -128), ("b", ">b", 127), ("B", ">B", 255), ("s", ">h", -32768), ("u", ">H", 65535), ("I", ">i", -(2**31)),
    ("i", ">I", 2**32 - 1), ("l", ">q", -(2**63)), ("L", ">q", 2**63 - 1), ("f", ">f", 0.25), ("d", ">d", 1e300),
]  # fmt: skip


@pytest.mark.parametrize(("tag", "layout", "value"), NUMBERS)
def test_every_width_of_number_is_read_as_rabbitmq_reads_it(tag: str, layout: str, value: float) -> None:
    assert fields.value_of(field(b"\x01n" + tag.encode() + struct.pack(layout, value))) == value


@pytest.mark.parametrize(
    ("tag", "payload"), [(b"D", b"\x02\x00\x00\x00\x07"), (b"T", b"\0" * 7 + b"\1"), (b"F", b"\0\0\0\0"), (b"A", b"\0\0\0\2t\1")]
)
def test_decimals_timestamps_tables_and_arrays_come_back_raw(tag: bytes, payload: bytes) -> None:
    one = field(b"\x01n" + tag + payload)
    assert one.tag == tag.decode()
    assert payload.endswith(one.payload)
    assert fields.value_of(one) == one.payload


def test_a_string_that_is_not_utf_8_stays_bytes() -> None:
    assert fields.value_of(field(b"\x01nS\0\0\0\2\xff\xfe")) == b"\xff\xfe"


def test_a_table_nested_a_million_levels_deep_is_stepped_over() -> None:
    depth = 1_000_000
    inner = b"".join(b"\x01aF" + struct.pack(">I", 7 * level) for level in range(depth - 1, -1, -1))
    assert len(field(b"\x01nF" + struct.pack(">I", len(inner)) + inner).payload) == len(inner)


def test_order_and_duplicates_stay() -> None:
    table = fields.table([("b", 1), ("a", 2), ("b", 3)])
    assert [(f.name, fields.value_of(f)) for f in fields.fields(table)] == [(b"b", 1), (b"a", 2), (b"b", 3)]
    assert fields.plain(table) == {"b": 3, "a": 2}


def test_fields_are_put_in_the_order_of_their_names_and_those_of_one_name_stay_as_they_stood() -> None:
    mixed = fields.table([("b", 1), ("a", 2), ("b", "x"), ("ab", None)])
    ordered = fields.table([("a", 2), ("ab", None), ("b", 1), ("b", "x")])
    assert fields.sorted_by_name(mixed) == ordered
    assert fields.sorted_by_name(ordered) is ordered


def test_a_field_taken_out_leaves_the_bytes_of_the_others_as_they_were() -> None:
    odd = b"\x01nS\0\0\0\2\xff\xfe"
    table = fields.entry("first", 1) + odd + fields.entry("x-delay", 5) + fields.entry("last", None)
    removed = [f for f in fields.fields(table) if f.name in {b"first", b"x-delay"}]
    assert fields.without(table, removed) == odd + fields.entry("last", None)


@pytest.mark.parametrize(
    "table", [b"\x05na", b"\x01n", b"\x01nI\0\0", b"\x01nS\0\0\0\x09abc", b"\x01nS\0\0", b"\x01n?\0", b"\x01nF\xff\xff\xff\xff"]
)
def test_a_table_that_is_cut_off_or_bears_an_unknown_type_is_called_malformed(table: bytes) -> None:
    with pytest.raises(MalformedTableError):
        list(fields.fields(table))


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(table: bytes) -> None:
    try:
        read = list(fields.fields(table))
    except MalformedTableError:
        return
    assert fields.without(table, read) == b""
    for one in read:
        fields.value_of(one)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_a_number_beyond_64_bits_is_refused(value: int) -> None:
    with pytest.raises(OverflowError, match="64-bit"):
        fields.entry("n", value)


def test_a_name_of_255_bytes_fits_and_one_of_256_is_refused() -> None:
    assert field(fields.entry("n" * 255, 1)).name == b"n" * 255
    with pytest.raises(ValueError, match="255 bytes"):
        fields.entry("é" * 128, 1)


@given(
    st.lists(st.tuples(st.sampled_from([b"wanted", b"other", b""]), st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.binary()))),
    st.binary(max_size=6),
)
def test_the_fields_of_some_names_are_those_that_stepping_through_finds(headers: list[tuple[bytes, Value]], rest: bytes) -> None:
    table, names = fields.table(headers) + rest, {b"wanted", b"missing"}
    try:
        expected = [each for each in fields.fields(table) if each.name in names]
    except MalformedTableError as error:
        with pytest.raises(MalformedTableError, match=re.escape(str(error))):
            fields.named(table, names)
    else:
        assert fields.named(table, names) == expected
