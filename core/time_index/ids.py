"""What became of an id: of ids that producers chose, and of records that were moved away from the due key that their made id names."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from ..ledger import EVENTS, Event
from . import keys
from .database import Database, scan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .change import Change
    from .made import MadeIds

_PENDING, _ENDED, _WITHDRAWN = b"p", b"e", b"w"
_STEP = 64
_SET_BACK = 60_000
"""Milliseconds: far more than threads' times ever differ."""


class Known(msgspec.Struct, frozen=True):
    """The state of an id: pending under `key`; or ended with `event` at `at`; or withdrawn at `at` before it was ever seen (no event)."""

    key: bytes | None = None
    event: Event | None = None
    at: int = 0


class Ids:
    """The index of ids. Endings and early withdrawals are remembered for `memory_ms`, then forgotten a few at a time within other writes.

    `now` is the latest time that any call was given since the clock was last set back.
    """

    def __init__(self, db: Database, memory_ms: int, made: MadeIds) -> None:
        self._db = db
        self._made = made
        self._memory_ms = memory_ms
        self._oldest = b"x"
        self.now = 0

    def told(self, now: int) -> None:
        """Note the time that a call was given; 0 if it was given none. A clock that was ahead must not shorten what is remembered later."""
        if now > self.now:
            self.now = now
        elif 0 < now < self.now - _SET_BACK:
            self.now, self._oldest = now, b"x"

    def get(self, change: Change | None, record_id: str) -> Known | None:
        """What is known of an id, or None."""
        key = keys.id_key(record_id)
        if change is not None and key in change.ids:
            raw = change.ids[key]
        elif change is not None and key in change.seen:
            raw = change.seen[key]
        else:
            raw = self._db.ids.get(key)
        return self.known(raw) if raw else None

    def read_ahead(self, change: Change, record_ids: Iterable[str]) -> None:
        """Read many ids at once, for `get` within this change."""
        wanted = [keys.id_key(record_id) for record_id in record_ids]
        change.seen.update(zip(wanted, self._db.get_many(self._db.ids, wanted), strict=True))

    def known(self, raw: bytes) -> Known | None:
        """What a stored state says, None where it was remembered long enough."""
        mark, rest = raw[:1], raw[1:]
        if mark == _PENDING:
            return Known(key=rest)
        at = int.from_bytes(rest[-8:], "big")
        if at + self._memory_ms < self.now:
            return None
        return Known(at=at) if mark == _WITHDRAWN else Known(event=EVENTS[rest[0]], at=at)

    @staticmethod
    def pending_key(raw: bytes) -> bytes | None:
        """The due key in a stored state, None where the id is not pending."""
        return raw[1:] if raw[:1] == _PENDING else None

    def points(self, change: Change, record_id: str, key: bytes) -> None:
        """The record with this id waits under `key`."""
        change.ids[keys.id_key(record_id)] = _PENDING + key

    def ended(self, change: Change, record_id: str, event: Event, at: int) -> None:
        """The record with this id came to its end. A bridge-made id needs no memory: its own form tells that it is gone."""
        if self._made.key(record_id) is not None:
            change.ids[keys.id_key(record_id)] = None
        else:
            self._remember(change, record_id, _ENDED + bytes((EVENTS.index(event),)), at)

    def withdrawn(self, change: Change, record_id: str, at: int) -> None:
        """An id that nobody knows yet was withdrawn."""
        self._remember(change, record_id, _WITHDRAWN, at)

    def _remember(self, change: Change, record_id: str, state: bytes, at: int) -> None:
        change.ids[keys.id_key(record_id)] = state + keys.pack64(at)
        change.ids[keys.forget_key(max(at, self.now), record_id)] = b""

    def forget(self, change: Change) -> None:
        """Drop some of what was remembered long enough: more than this change adds, so that the memory does not grow without end."""
        end = keys.forget_key(max(0, self.now - self._memory_ms), "")
        if self._oldest >= end:
            return
        limit = _STEP + len(change.ids)
        old = [key for key, _ in islice(scan(self._db.ids, self._oldest, end, values=False), limit)]
        names = [b"i" + key[9:] for key in old]
        for key, name, raw in zip(old, names, self._db.get_many(self._db.ids, names), strict=True):
            change.ids[key] = None
            if raw and self.known(raw) is None:
                change.ids.setdefault(name, None)
        reached = old[-1] if len(old) == limit else end
        change.then.append(lambda: self._go_on(reached))

    def _go_on(self, oldest: bytes) -> None:
        self._oldest = oldest
