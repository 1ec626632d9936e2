"""Record batches to publish, in Kafka's format 2. A batch knows the tags of its messages, so that one answer of the broker is one list of outcomes.

This stands in for `kafka.record.MemoryRecordsBuilder`, which cannot write null values or foreign names of headers, and takes a future per record.
"""

from __future__ import annotations

import gzip
import struct
from typing import TYPE_CHECKING

from kafka.record.util import calc_crc32c

from .varints import varint

if TYPE_CHECKING:
    from collections.abc import Sequence

Prepared = tuple[bytes, bytes, int]
"""A message's tag, its record's tail, and its time."""

LIMIT = 900_000
"""Bytes after which a batch takes no more messages: a broker's default allows a little over 1 MB."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_UNSIGNED = struct.Struct(">I")
_LENGTH_AT, _CRC_AT, _CRC_FROM = 12, 17, 21
_OVERHEAD = 20  # at most, for a record's lengths, time and offset
_LEVEL = 6  # of gzip: as producers' by default, so that what they sent fits again
_MAGIC = 2
_GZIP = 1
_TRANSACTIONAL = 1 << 4


class Records:
    """The records of one batch: filled by one thread, then closed and sent by another, never both at once (the accumulator's lock)."""

    def __init__(self, prepared: Sequence[Prepared] = (), *, compressed: bool = False) -> None:
        self.prepared: list[Prepared] = []
        self._compressed = compressed
        self.producer_id = self.producer_epoch = self.base_sequence = -1
        self._attributes = 0
        self._size = _HEADER.size
        self._buffer: bytes | None = None
        for one in prepared:
            self.append(one)

    def append(self, prepared: Prepared) -> bool:
        """Take a message; False where the batch is closed or full. The first one always fits."""
        size = len(prepared[1]) + _OVERHEAD
        if self._buffer is not None or (self.prepared and self._size + size > LIMIT):
            return False
        self.prepared.append(prepared)
        self._size += size
        return True

    def smaller(self) -> list[Records]:
        """Batches of the same messages, in place of one that the broker finds too large: two halves; a single message compressed; none where that was tried.

        What a broker takes counts compressed: producers send more by that, as their `compression.type` says.
        """
        if len(self.prepared) > 1:
            middle = (len(self.prepared) + 1) // 2
            return [Records(self.prepared[:middle]), Records(self.prepared[middle:])]
        return [] if self._compressed else [Records(self.prepared, compressed=True)]

    # What kafka-python asks of a batch's records.

    def next_offset(self) -> int:
        """How many records there are."""
        return len(self.prepared)

    def is_full(self) -> bool:
        """Whether it should be sent without waiting for more."""
        return self._buffer is not None or self._size >= LIMIT

    def size_in_bytes(self) -> int:
        """At least as many as it has on the wire."""
        return self._size if self._buffer is None else len(self._buffer)

    def set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool) -> None:
        """By these the broker knows a batch that it has already."""
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        self._attributes = _TRANSACTIONAL if is_transactional else 0

    def buffer(self) -> bytes:
        """The batch on the wire, once it is closed."""
        assert self._buffer is not None
        return self._buffer

    def close(self) -> None:
        """Write it. From here on it does not change, however often it is sent. Idempotent."""
        if self._buffer is None:
            self._buffer = self._written()

    def _written(self) -> bytes:
        first = self.prepared[0][2]
        pieces: list[bytes] = []
        for number, (_, tail, stamp) in enumerate(self.prepared):
            head = b"\0" + varint(stamp - first) + varint(number)
            pieces += (varint(len(head) + len(tail)), head, tail)
        records = gzip.compress(b"".join(pieces), _LEVEL) if self._compressed else b"".join(pieces)
        last = max(stamp for _, _, stamp in self.prepared)
        header = bytearray(
            _HEADER.pack(
                0, len(records) + _HEADER.size - _LENGTH_AT, 0, _MAGIC, 0, self._attributes | (_GZIP if self._compressed else 0),
                len(self.prepared) - 1, first, last,
                self.producer_id, self.producer_epoch, self.base_sequence, len(self.prepared),
            )
        )  # fmt: skip
        batch = header + records
        _UNSIGNED.pack_into(batch, _CRC_AT, calc_crc32c(memoryview(batch)[_CRC_FROM:]))
        return bytes(batch)
