"""The shelf: messages that could not be delivered, until somebody looks at them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..store import DeadLetter, Record
from . import keys
from .database import Database, scan

if TYPE_CHECKING:
    from .change import Change

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Record, str, str, int, int]).decode


_PAGE_BYTES = 1 << 20
"""A page ends after so many: deliveries wait while it is read."""


class Shelf:
    """Dead letters by number."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._went: tuple[int, int] | None = None

    def add(self, change: Change, record: Record, reason: str, detail: str, at: int, attempts: int) -> None:
        """Put one on the shelf."""
        change.meta[keys.shelf_key(change.numbers.dead)] = _encode((record, reason, detail, at, attempts))
        change.numbers.dead += 1
        change.totals["shelved"] += 1

    def get(self, number: int) -> DeadLetter | None:
        """One of them; None for a number that none has, or can have."""
        raw = self._db.meta.get(keys.shelf_key(number)) if 0 <= number < keys.NUMBER_LIMIT else None
        return DeadLetter(number, *_decode(raw)) if raw else None

    def remove(self, change: Change, letter: DeadLetter) -> None:
        """Take one that is there off the shelf."""
        change.meta[keys.shelf_key(letter.number)] = None
        change.totals["shelved"] -= 1
        change.goes(letter.record)
        change.then.append(lambda: self._gone(letter.number))

    def _gone(self, number: int) -> None:
        first, last = self._went or (number, number)
        self._went = min(first, number), max(last, number)

    def drained(self) -> list[tuple[bytes, bytes]]:
        """The range of those taken off since the last time, if any were."""
        went, self._went = self._went, None
        return [(keys.shelf_key(went[0]), keys.shelf_key(went[1] + 1))] if went else []

    def page(self, limit: int, after: int) -> list[DeadLetter]:
        """See `Store.dead_letters`."""
        start = keys.shelf_key(min(max(after + 1, 0), keys.NUMBER_LIMIT - 1))
        found: list[DeadLetter] = []
        size = 0
        for key, value in scan(self._db.meta, start, keys.after(keys.SHELF)):
            if len(found) == limit or size >= _PAGE_BYTES:
                break
            size += len(value)
            found.append(DeadLetter(int.from_bytes(key[1:], "big"), *_decode(value)))
        return found
