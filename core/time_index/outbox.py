"""The outbox: ledger rows, written with the change that they tell of, until the ledger writer has them in a file of its own."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import force_setattr

from .. import ledger
from . import keys
from .database import Database, last_up_to, scan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .change import Change
    from .numbers import Numbers

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, list[ledger.Row]]).decode
_decode_named = msgspec.msgpack.Decoder(ledger.BridgeNames).decode
_decode_range = msgspec.msgpack.Decoder(tuple[int, int]).decode


def named(db: Database) -> ledger.BridgeNames | None:
    """Which bridge wrote the latest rows; None where that is not known."""
    raw = db.meta.get(keys.NAME_KEY)
    return _decode_named(raw) if raw else None


class Outbox:
    """Ledger rows that are in no file yet, in the order of their numbers, without holes.

    before   which bridge wrote the latest rows, as the function `named` says
    named    which bridge writes the next one
    first    the number of the oldest row that is still here
    """

    def __init__(self, db: Database, bridge: str, numbers: Numbers, before: ledger.BridgeNames | None) -> None:
        self._db = db
        self._bridge = bridge
        self.first = next((row for row, _ in self._values(0)), numbers.row)
        self.named = before.renamed(bridge, numbers.row) if before else ledger.BridgeNames(bridge, numbers.row)
        self.is_named = self.named == before

    def name(self, change: Change) -> None:
        """Note which bridge writes the rows from now on."""
        change.meta[keys.NAME_KEY] = _encode(self.named)

    def stage(self, change: Change) -> None:
        """Put a change's rows into its write and number them."""
        if change.rows:
            change.meta[keys.outbox_key(change.numbers.row)] = _encode((self._bridge, change.rows))
            change.numbers.row += len(change.rows)

    def _values(self, row: int) -> Iterator[tuple[int, bytes]]:
        start = keys.outbox_key(row)
        for key, value in scan(self._db.meta, start, keys.after(keys.OUTBOX)):
            yield int.from_bytes(key[1:], "big"), value

    def page(self, limit: int, start: int = 0) -> Page:
        """The oldest rows from number `start` on, at most `limit`."""
        start = max(self.first, start)
        until = start + limit
        return Page(start, until, list(takewhile(lambda value: value[0] < until, self._values(self._holding(start)))))

    def _holding(self, row: int) -> int:
        """The first row of the write that this one is in."""
        key = last_up_to(self._db.meta, keys.outbox_key(row))
        return int.from_bytes(key[1:], "big") if key.startswith(keys.OUTBOX) else row

    def forget(self, change: Change, up_to: int) -> None:
        """Drop the rows up to a number, and the intent to write them; the rows after it in the same write stay."""
        change.meta[keys.INTENT_KEY] = None
        start, end = keys.outbox_key(self.first), keys.outbox_key(up_to + 1)
        last = last_up_to(self._db.meta, keys.outbox_key(up_to))
        if last >= start:
            bridge, rows = _decode(self._db.meta.get(last) or b"")
            kept = rows[up_to + 1 - int.from_bytes(last[1:], "big") :]
            if kept:
                change.meta[end] = _encode((bridge, kept))
            change.dropped.append((start, end))
        first = max(self.first, min(up_to + 1, change.numbers.row))
        change.then.append(lambda: self._start_at(first))

    def skip(self, change: Change, row: int) -> None:
        """Drop all rows, and number those that come from there on."""
        change.numbers.row = row
        self.forget(change, row - 1)

    def _start_at(self, first: int) -> None:
        self.first = first

    def intend(self, change: Change, first: int, last: int) -> None:
        """Say which rows are about to be written to a file."""
        change.meta[keys.INTENT_KEY] = _encode((first, last))

    def intent(self) -> tuple[int, int] | None:
        """The range that was about to be written when the bridge stopped, if any."""
        raw = self._db.meta.get(keys.INTENT_KEY)
        return _decode_range(raw) if raw else None


class Page(NamedTuple):
    """Rows from `start` to before `until`, as they lie in the store: to be read when its lock is given back, because that takes longer."""

    start: int
    until: int
    values: list[tuple[int, bytes]]

    def rows(self) -> list[ledger.Row]:
        """The rows, numbered."""
        return [row for number, value in self.values for row in _numbered(value, number) if self.start <= row.sequence < self.until]


def _numbered(value: bytes, number: int) -> list[ledger.Row]:
    bridge, rows = _decode(value)
    for offset, row in enumerate(rows):
        force_setattr(row, "bridge", bridge)
        force_setattr(row, "sequence", number + offset)
    return rows
