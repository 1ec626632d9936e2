"""The numbers that only ever rise, written with each change."""

from __future__ import annotations

import struct

import msgspec

_FORM = struct.Struct(">5Q")


class Numbers(msgspec.Struct):
    """The next number of each kind; `write` counts the writes themselves, so that a write whose fate is unclear can be recognised."""

    write: int = 0
    arrival: int = 1
    row: int = 1
    batch: int = 1
    dead: int = 1

    def packed(self) -> bytes:
        """For the disk."""
        return _FORM.pack(self.write, self.arrival, self.row, self.batch, self.dead)

    @classmethod
    def unpacked(cls, raw: bytes | None) -> Numbers:
        """From the disk; the first numbers where nothing was written yet."""
        return cls(*_FORM.unpack(raw)) if raw else cls()

    @staticmethod
    def written(raw: bytes | None) -> int:
        """The number of the write alone, from these or from what `Change` puts beside them; 0 where nothing was written yet."""
        return int.from_bytes(raw[:8], "big") if raw else 0
