"""Writes the part of a Kafka record that follows its time and offset: key, value and headers of a message of the bridge.

A Kafka header's value is bytes; `adapters.texts` says what becomes of values that are none, and None is null.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ....core.fields import MalformedTableError, fields
from ....core.reasons import Reason
from ...base import Rejected
from ...texts import text_of
from .varints import varint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....core.message import Message, Properties

TIMESTAMP, TOMBSTONE = b"x-delay-timestamp", b"x-delay-tombstone"
PROPERTIES = {
    b"content-type": "content_type",
    b"content-encoding": "content_encoding",
    b"correlation-id": "correlation_id",
    b"reply-to": "reply_to",
    b"message-id": "message_id",
    b"type": "type",
    b"app-id": "app_id",
    b"priority": "priority",
    b"expiration": "expiration",
}
"""Headers that stand for the properties that Kafka has not."""

_WATCHED = frozenset((TIMESTAMP, TOMBSTONE, *PROPERTIES))
_LENGTH = struct.Struct(">I")
_INT64 = struct.Struct(">q")
_NULL = varint(-1)
_BYTES, _TEXT, _LONG, _NOTHING = b"xSlV"


def tail(message: Message) -> bytes:
    """Key, value and headers in wire form. Raises Rejected."""
    out: list[bytes] = []
    seen: dict[bytes, list[bytes | None]] = {}
    sent = _sent(message.properties)
    try:
        count = _headers(message.headers, out, seen, stamped=sent is not None, empty=not message.body)
    except (MalformedTableError, IndexError, struct.error) as error:
        raise Rejected(Reason.HEADER_DAMAGED, str(error)) from error
    count += _added(message.properties, sent, out, seen)
    body = None if TOMBSTONE in seen else message.body
    return b"".join((*_sized(message.key), *_sized(body), varint(count), *out))


def _sized(data: bytes | None) -> tuple[bytes, ...]:
    return (_NULL,) if data is None else (varint(len(data)), data)


def _headers(table: bytes, out: list[bytes], seen: dict[bytes, list[bytes | None]], *, stamped: bool, empty: bool) -> int:
    """Write a table's headers, less those that are replaced; how many they are. A hot loop: `fields` would cost as much again.

    Of an `empty` message a header says that it is a tombstone.
    """
    at, size, count = 0, len(table), 0
    value: bytes | None
    while at < size:
        start = at
        end = at + 1 + table[at]
        name = table[at + 1 : end]
        tag = table[end]
        if tag in (_BYTES, _TEXT):
            at = end + 5 + _LENGTH.unpack_from(table, end + 1)[0]
            value = table[end + 5 : at]
        elif tag == _LONG:
            at = end + 9
            value = b"%d" % _INT64.unpack_from(table, end + 1)[0]
        elif tag == _NOTHING:
            at = end + 1
            value = None
        else:
            field = next(fields(table[start:]))
            at = start + field.end
            value = text_of(field)
        if at > size:
            raise MalformedTableError("the header table is cut off")
        if name in _WATCHED:
            seen.setdefault(name, []).append(value)
            if (stamped and name == TIMESTAMP) or (empty and name == TOMBSTONE and value == b"true"):
                continue
            if name == TOMBSTONE:
                del seen[TOMBSTONE]
        count += 1
        out += (varint(len(name)), name, _NULL) if value is None else (varint(len(name)), name, varint(len(value)), value)
    return count


def _added(properties: Properties, sent: int | None, out: list[bytes], seen: dict[bytes, list[bytes | None]]) -> int:
    """Write the properties that no header says yet, and the time at which the message was first sent; how many headers these are."""
    count = 0
    for name, attribute in PROPERTIES.items():
        value = getattr(properties, attribute)
        if value is not None and not _is_said(value, seen.get(name, ())):
            text = value if isinstance(value, bytes) else b"%d" % value
            out += (varint(len(name)), name, varint(len(text)), text)
            count += 1
    if sent is not None:
        text = b"%d" % sent
        out += (varint(len(TIMESTAMP)), TIMESTAMP, varint(len(text)), text)
        count += 1
    return count


def _is_said(value: bytes | int, values: Sequence[bytes | None]) -> bool:
    """Whether one of a header's values is this one, of numbers however it is written."""
    if isinstance(value, bytes):
        return value in values
    return any(each is not None and each.isdigit() and each.lstrip(b"0") == (b"%d" % value).lstrip(b"0") for each in values)


def _sent(properties: Properties) -> int | None:
    """When the message was first sent (epoch ms), where anybody said so."""
    if properties.timestamp_ms is not None:
        return properties.timestamp_ms
    return None if properties.timestamp is None else properties.timestamp * 1000
