"""Header tables: typed name/value pairs in AMQP 0-9-1 field-table encoding, read without being decoded.

Every adapter hands its headers to the core in this one form, because it is the only one among the supported brokers that keeps the *type*
of each value: a Kafka header is a byte array (`x`), a STOMP header a string (`S`), an AMQP header whatever it was. Nothing is lost, order
and duplicates stay, and removing or adding a header is slicing bytes.

    table := entry*                          (without AMQP's leading 4-byte length)
    entry := name-length(1) name tag(1) payload

Nested tables and arrays carry their length, so they are stepped over, never descended into: a header nested a thousand levels deep costs as
much as a flat one.
"""

from __future__ import annotations

import struct
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

Value = None | bool | int | float | str | bytes
"""What a producer can say in one header. Strings that are not UTF-8 stay bytes."""


class MalformedTableError(ValueError):
    """The bytes are not a field table."""


class Field(NamedTuple):
    """One header: its AMQP type `tag` and its payload, a slice of the table that it came from."""

    name: bytes
    tag: str
    payload: bytes
    start: int
    end: int


# Sizes of the fixed-length types, after RabbitMQ's reading of the tags (rabbit_binary_parser), not the specification's.
_FIXED = {"t": 1, "b": 1, "B": 1, "s": 2, "u": 2, "I": 4, "i": 4, "l": 8, "L": 8, "f": 4, "d": 8, "D": 5, "T": 8, "V": 0}
_LONG = frozenset("SxFA")
_NUMBERS = {
    "b": struct.Struct(">b"), "B": struct.Struct(">B"), "s": struct.Struct(">h"), "u": struct.Struct(">H"), "I": struct.Struct(">i"),
    "i": struct.Struct(">I"), "l": struct.Struct(">q"), "L": struct.Struct(">q"), "f": struct.Struct(">f"), "d": struct.Struct(">d"),
}  # fmt: skip
_SIZES = {ord(tag): size for tag, size in _FIXED.items()} | {ord(tag): -1 for tag in _LONG}
_LENGTH = struct.Struct(">I")
_INT64 = struct.Struct(">q")


def fields(table: bytes) -> Iterator[Field]:
    """Step through a table. Raises MalformedTableError where it is cut off or bears an unknown type."""
    at, size = 0, len(table)
    while at < size:
        start = at
        try:
            name_end = at + 1 + table[at]
            tag = chr(table[name_end])
            at = name_end + 1
            length = _FIXED.get(tag)
            if length is None:
                if tag not in _LONG:
                    raise MalformedTableError(f"unknown field type {tag!r}")
                (length,) = _LENGTH.unpack_from(table, at)
                at += 4
        except (IndexError, struct.error) as error:
            raise MalformedTableError("the header table is cut off") from error
        end = at + length
        if end > size:
            raise MalformedTableError("the header table is cut off")
        yield Field(table[start + 1 : name_end], tag, table[at:end], start, end)
        at = end


def named(table: bytes, names: Container[bytes]) -> list[Field]:
    """The fields that bear one of these names; as `fields`, in half the time, because the others are not decoded."""
    found: list[Field] = []
    at, size = 0, len(table)
    try:
        while at < size:
            start = at
            name_end = at + 1 + table[at]
            tag = table[name_end]
            at = name_end + 1
            length = _SIZES[tag]
            if length < 0:
                (length,) = _LENGTH.unpack_from(table, at)
                at += 4
            end = at + length
            name = table[start + 1 : name_end]
            if name in names:
                found.append(Field(name, chr(tag), table[at:end], start, end))
            at = end
    except KeyError as error:
        raise MalformedTableError(f"unknown field type {chr(tag)!r}") from error
    except (IndexError, struct.error) as error:
        raise MalformedTableError("the header table is cut off") from error
    if at > size:
        raise MalformedTableError("the header table is cut off")
    return found


def value_of(field: Field) -> Value:
    """A field's value. Tables, arrays, decimals and timestamps come back as their raw payload: no delay is ever read from them."""
    number = _NUMBERS.get(field.tag)
    if number is not None:
        value: Value = number.unpack(field.payload)[0]
        return value
    if field.tag == "t":
        return field.payload != b"\0"
    if field.tag == "V":
        return None
    if field.tag == "S":
        try:
            return field.payload.decode()
        except UnicodeDecodeError:
            return field.payload
    return field.payload


def without(table: bytes, removed: Iterable[Field]) -> bytes:
    """The table less some of its own fields, which come in the order in which they stand there."""
    kept, at = [], 0
    for field in removed:
        kept.append(table[at : field.start])
        at = field.end
    kept.append(table[at:])
    return b"".join(kept)


class _Every:
    def __contains__(self, _: object) -> bool:
        return True


_EVERY = _Every()


def sorted_by_name(table: bytes) -> bytes:
    """The table with its fields in the order of their names, those of one name as they stood; the same object where they are. As `fields` else."""
    found = named(table, _EVERY)
    names = [field.name for field in found]
    if names == sorted(names):
        return table
    return b"".join(table[field.start : field.end] for field in sorted(found, key=attrgetter("name")))


def _number(value: int) -> tuple[bytes, bytes]:
    if not -(2**63) <= value < 2**63:
        raise OverflowError(f"{value} does not fit a signed 64-bit header")
    return b"l", _INT64.pack(value)


def _long(tag: bytes, payload: bytes) -> tuple[bytes, bytes]:
    return tag, _LENGTH.pack(len(payload)) + payload


_ENCODERS: dict[type, Callable[[Any], tuple[bytes, bytes]]] = {
    type(None): lambda _: (b"V", b""),
    bool: lambda value: (b"t", b"\1" if value else b"\0"),
    int: _number,
    float: lambda value: (b"d", struct.pack(">d", value)),
    str: lambda value: _long(b"S", value.encode()),
    bytes: lambda value: _long(b"x", value),
}


def entry(name: str | bytes, value: Value) -> bytes:
    """One header in wire form: integers as signed 64 bit, text as a long string, bytes as a byte array."""
    raw = name.encode() if isinstance(name, str) else name
    if len(raw) > 255:
        raise ValueError(f"a header name holds at most 255 bytes, this one has {len(raw)}")
    tag, payload = _ENCODERS[type(value)](value)
    return bytes((len(raw),)) + raw + tag + payload


def table(headers: Iterable[tuple[str | bytes, Value]]) -> bytes:
    """A table of plain values, in order; a name may stand twice."""
    return b"".join(entry(name, value) for name, value in headers)


def plain(headers: bytes) -> dict[str, Value]:
    """A table as a dictionary for people and tests: names as text, the last of duplicates, nested values as raw bytes."""
    return {field.name.decode(errors="replace"): value_of(field) for field in fields(headers)}
