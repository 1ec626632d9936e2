"""Counters kept as absolute values, in the same write as what they count. Memory holds a bounded part of them; others are read from disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ledger import EVENTS
from ..store import Counts
from . import keys
from .database import Database, scan_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable

_REMEMBERED = 20_000
_SHOWN = 1_000
_TOTALS = ("pending", "held", "shelved", "carriers", *EVENTS)


class Counters:
    """Totals, and the pending records of each (lane, address) and of each hour of due."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._known: dict[bytes, int] = {}
        self.totals = {name: self._get(keys.COUNT_TOTAL + name.encode()) for name in _TOTALS}

    def _get(self, key: bytes) -> int:
        value = self._known.get(key)
        if value is None:
            raw = self._db.meta.get(key)
            value = int.from_bytes(raw, "big") if raw else 0
        return value

    def staged(self, totals: dict[str, int], by_key: Iterable[tuple[bytes, int]]) -> dict[bytes, int]:
        """The new values of what changed: differences in, absolute values out."""
        new = {keys.COUNT_TOTAL + name.encode(): self.totals[name] + change for name, change in totals.items() if change}
        for key, change in by_key:
            if change:
                new[key] = new.get(key, self._get(key)) + change
        return new

    def stored(self, new: dict[bytes, int]) -> dict[bytes, bytes | None]:
        """The same, as it goes to disk; zero is absence."""
        return {key: keys.pack64(value) if value else None for key, value in new.items()}

    def keep(self, new: dict[bytes, int]) -> None:
        """Remember the values that were written, the latest last."""
        for key, value in new.items():
            if key.startswith(keys.COUNT_TOTAL):
                self.totals[key[len(keys.COUNT_TOTAL) :].decode()] = value
            else:
                self._known.pop(key, None)
                self._known[key] = value
        while len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]

    def _first(self, prefix: bytes) -> list[tuple[bytes, int]]:
        found: list[tuple[bytes, int]] = []
        for key, value in scan_prefix(self._db.meta, prefix):
            if len(found) == _SHOWN:
                break
            found.append((key[len(prefix) :], int.from_bytes(value, "big")))
        return found

    def counts(self, lane_names: dict[int, str]) -> Counts:
        """All totals, and the first 1,000 addresses and hours."""
        addresses, hours = self._first(keys.COUNT_ADDRESS), self._first(keys.COUNT_HOUR)
        return Counts(
            pending=self.totals["pending"],
            held=self.totals["held"],
            shelved=self.totals["shelved"],
            events={event: self.totals[event] for event in EVENTS},
            by_address={(lane_names[keys.number_of(key)], key[2:].decode()): count for key, count in addresses},
            by_hour={int.from_bytes(key, "big"): count for key, count in hours},
        )
