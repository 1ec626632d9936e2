"""Reads Kafka's record batches. kafka-python cannot read names of headers that are not UTF-8, and takes far longer.

A record's token is its log and its position there (see `base.Received`):

    log        the topic's id, which a topic that was deleted and created again does not have, and the partition
    position   the epoch of the leader that took the record, and its offset

Both parts of the position only grow: where an unclean election has thrown records away, others get their offsets, in a later epoch. A record that cannot be
named so, as one in an old format, is in no log, and its token has no epoch. Where the broker has no topic ids (before 2.8), a digest of the topic's name and
the record's time stands in the id's place.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka.errors import UnsupportedCodecError
from msgspec.structs import replace

from ....core.message import PERSISTENT, Message, Properties
from ....core.reasons import Reason
from ...base import Received, Rejected
from .headers import PROPERTIES
from .varints import read_varint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafka.record.default_records import DefaultRecordBatch
    from kafka.record.legacy_records import LegacyRecordBatch

_LENGTH = struct.Struct(">I")
_PARTITION = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">I")
_LONGEST = 255  # a property of AMQP, and a header's name
_prefixes: dict[bytes, bytes] = {}


class Origin(NamedTuple):
    """What all records of a partition have in common. `identity` is the topic's id; empty where it has none."""

    topic: str
    partition: int
    identity: bytes
    address: str
    keeps_partition: bool

    @property
    def log(self) -> bytes:
        """See the module; empty where the topic has no id."""
        return self.identity and self.identity + _PARTITION.pack(self.partition)

    def token(self, offset: int, timestamp: int) -> bytes:
        """The token of a record that is in no log; see the module."""
        identity = self.identity or blake2b(f"{self.topic}\0{timestamp}".encode(), digest_size=16).digest()
        return identity + _PARTITION.pack(self.partition) + _OFFSET.pack(offset)


class Place(NamedTuple):
    """Before which record a group goes on: the offset, and the epoch of the leader that took the record before it; -1 where that is not known."""

    offset: int
    epoch: int


def offset_of(token: bytes) -> int:
    """The offset in a token."""
    return int.from_bytes(token[-8:], "big")


def place_after(received: Received) -> Place:
    """The place after a record. By the epoch Kafka tells later whether the log is still the one that was read up to there."""
    return Place(offset_of(received.token) + 1, int.from_bytes(received.token[-12:-8], "big") if received.log else -1)


def newest_epoch(received: Sequence[Received]) -> int:
    """Of the leaders that took these records of one partition; -1 where that is not known."""
    return next((place_after(each).epoch for each in reversed(received) if each.log), -1)


class Damaged(ValueError):
    """A batch cannot be read."""


def records(batch: DefaultRecordBatch, origin: Origin) -> Iterator[Received]:
    """The records of a batch. Raises Damaged, and UnsupportedCodecError where the library that decompresses it is not installed."""
    _uncompress(batch)
    data = bytes(batch._buffer)  # noqa: SLF001 - slices of bytes are bytes
    at = batch._pos  # noqa: SLF001
    log = origin.log
    epoch = log + _EPOCH.pack(max(0, batch.leader_epoch))
    try:
        for _ in range(batch.records_count):
            length, start = read_varint(data, at)
            at = start + length
            if at > len(data):  # whatever else is cut off, or reaches too far, does not end where its record does
                raise Damaged(f"a record of {length} bytes, where {len(data) - start} are left")
            yield _record(data, start, at, batch, origin, log, epoch)
    except (IndexError, ValueError, struct.error) as error:
        raise Damaged(str(error)) from error


def _uncompress(batch: DefaultRecordBatch) -> None:
    try:
        batch._maybe_uncompress()  # noqa: SLF001 - the one thing that its own iterator does besides
    except UnsupportedCodecError:
        raise
    except Exception as error:  # each of the four libraries has its own
        raise Damaged(f"it cannot be decompressed: {error}") from error


def _record(data: bytes, at: int, end: int, batch: Any, origin: Origin, log: bytes, epoch: bytes) -> Received:
    delta, at = read_varint(data, at + 1)
    number, at = read_varint(data, at)
    key, at = _sized(data, at)
    value, at = _sized(data, at)
    header = batch._header_data  # noqa: SLF001 - its properties cost a call each
    timestamp = header[8] if header[5] & 8 else header[7] + delta  # bit 3: the time of the append
    count, at = read_varint(data, at)
    found: dict[bytes, bytes | None] | None = None
    defect: Rejected | None = None
    pieces: list[bytes] = []
    for _ in range(count):  # a hot loop: most lengths take one byte, and a call costs more than reading that
        size = data[at]
        if size & 0x80:
            size, at = read_varint(data, at)
        else:
            size >>= 1
            at += 1
        start, at = at, at + size
        name = data[start:at]
        length = data[at]
        if length & 0x81:  # two bytes, or negative
            content, at = _sized(data, at)
        else:
            start = at + 1
            at = start + (length >> 1)
            content = data[start:at]
        if size > _LONGEST:
            defect = Rejected(Reason.HEADER_DAMAGED, f"a header name of {size} bytes; at most {_LONGEST} can be kept")
        elif content is None:
            pieces += (bytes((size,)), name, b"V")
        else:
            pieces += (_prefixes.get(name) or _prefix(name), _LENGTH.pack(len(content)), content)
            if name in PROPERTIES:
                found = found or {}
                found[name] = content
    if at != end:
        raise Damaged(f"a record ends {end - at} bytes early")
    sent = timestamp if timestamp >= 0 else None
    partition = origin.partition if origin.keeps_partition else None
    properties = _bare(sent, partition) if found is None else _properties(found, sent, partition)
    message = Message(value, b"".join(pieces), properties, key)
    offset = header[0] + number
    token = epoch + _OFFSET.pack(offset) if log else origin.token(offset, timestamp)
    return Received(message, origin.address, token, True, sent, defect, log)


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = read_varint(data, at)
    if size < 0:
        return None, at
    return data[at : at + size], at + size


def _prefix(name: bytes) -> bytes:
    """What stands before a byte array of that name in a header table; kept for the next one."""
    if len(_prefixes) >= 1024:
        _prefixes.clear()
    prefix = _prefixes[name] = bytes((len(name),)) + name + b"x"
    return prefix


def _bare(sent: int | None, partition: int | None) -> Properties:
    """Of what has no time, nothing else shows that it comes from a broker that keeps everything on disk."""
    return Properties(delivery_mode=PERSISTENT if sent is None else None, timestamp_ms=sent, partition=partition)


def _properties(found: dict[bytes, bytes | None], sent: int | None, partition: int | None) -> Properties:
    """The properties that headers stand for, where they can be read as such."""
    values: dict[str, Any] = {}
    for name, value in found.items():
        if value is None or len(value) > _LONGEST:
            continue
        if name == b"priority":
            if value.isdigit() and len(value) <= 3 and int(value) <= 255:
                values["priority"] = int(value)
        elif name != b"expiration" or value.isdigit():
            values[PROPERTIES[name]] = value
    return replace(_bare(sent, partition), **values)


def legacy(batch: LegacyRecordBatch, origin: Origin) -> Iterator[Received]:
    """The records of a batch in a format before Kafka 0.11, which has no headers. Raises as `records` does."""
    partition = origin.partition if origin.keeps_partition else None
    try:
        for record in batch:
            if not record.validate_crc():
                raise Damaged(f"the checksum of offset {record.offset} is wrong")  # noqa: TRY301 - as all that is damaged
            time = -1 if record.timestamp is None else record.timestamp
            sent = time if time >= 0 else None
            message = Message(record.value, b"", _bare(sent, partition), record.key)
            yield Received(message, origin.address, origin.token(record.offset, time), True, sent)
    except (Damaged, UnsupportedCodecError):
        raise
    except Exception as error:  # kafka-python's, and those of three libraries
        raise Damaged(str(error)) from error


def unreadable(raw: bytes, origin: Origin, offsets: tuple[int, int], why: str) -> Received:
    """A whole batch that nobody can read, as one message with the last of its offsets: its body is the raw batch."""
    first, last = offsets
    defect = Rejected(Reason.HEADER_DAMAGED, f"{origin.topic}-{origin.partition}, offsets {first} to {last}: {why}")
    return Received(Message(raw, properties=_bare(None, None)), origin.address, origin.token(last, -1), True, defect=defect)
