"""Lanes: each destination broker's range of due keys, and how far into it records were handed out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import keys
from .database import Database, scan_prefix

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from ..store import Record
    from .held import Behind


class Lane:
    """One lane's place in its range.

    `position`: no record that could be handed out lies before it; `exact` says that one lies right at it; at `end` there is none at all.
    `cursor`: the same, as last written to disk, and there also for records in flight: reading begins there after a restart. `passed` counts what
    it has not followed yet.
    """

    __slots__ = ("base", "cursor", "end", "exact", "name", "number", "passed", "position", "start")

    def __init__(self, name: str, number: int, cursor: bytes | None) -> None:
        self.name = name
        self.number = number
        self.base = keys.lane_base(number)
        self.start = keys.lane_prefix(number)
        self.end = keys.lane_prefix(number + 1)
        self.cursor = self.position = cursor or self.start
        self.exact = False
        self.passed = 0

    def arrived(self, key: bytes) -> None:
        """A record was put at `key`."""
        if key < self.position:
            self.position, self.exact = key, True

    def gone(self, key: bytes) -> None:
        """The record at `key` is no longer one to hand out."""
        if key == self.position:
            self.exact = False

    def back(self, key: bytes) -> None:
        """The record at `key` may be handed out again."""
        if key <= self.position:
            self.position, self.exact = key, True


class Lanes:
    """All lanes by name and by number, and the records in flight.

    `claimed` holds what was handed out: as much as the delivery window, never the backlog. `named` are those among them that have an entry in
    the index of ids, `from_held` those that are held back, and where each is counted.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self.claimed: dict[bytes, Record] = {}
        self.named: set[bytes] = set()
        self.from_held: dict[bytes, Behind] = {}
        self.by_name: dict[str, Lane] = {}
        self.by_number: dict[int, Lane] = {}
        for key, value in scan_prefix(db.meta, keys.LANES):
            number = int.from_bytes(value, "big")
            self._add(Lane(key[len(keys.LANES) :].decode(), number, db.meta.get(keys.cursor_key(number))))

    def _add(self, lane: Lane) -> Lane:
        self.by_name[lane.name] = lane
        self.by_number[lane.number] = lane
        return lane

    def named_lane(self, name: str) -> Lane:
        """The lane of this name; a new one is numbered, in a write of its own."""
        lane = self.by_name.get(name)
        if lane is None:
            number = len(self.by_number) + 1
            self._db.write({}, {}, {keys.lane_key(name): keys.lane_prefix(number)})
            lane = self._add(Lane(name, number, None))
        return lane

    def of(self, key: bytes) -> Lane:
        """The lane of a due key."""
        return self.by_number[key[0] << 8 | key[1]]

    def claim(self, key: bytes, record: Record, named: bool) -> None:
        """Mark a record as in flight."""
        self.claimed[key] = record
        if named:
            self.named.add(key)

    def unclaim(self, key: bytes) -> None:
        """A record is no longer in flight."""
        self.claimed.pop(key, None)
        self.named.discard(key)
        behind = self.from_held.pop(key, None)
        if behind is not None:
            behind.out -= 1

    def floor(self, lane: Lane, leaving: AbstractSet[bytes] = frozenset()) -> bytes:
        """Nothing of this lane waits or is in flight before this key, other than what is held back. Those `leaving` count as in flight no more."""
        claimed = (key for key in self.claimed if lane.start <= key < lane.end and key not in self.from_held and key not in leaving)
        return min(lane.position, min(claimed, default=lane.position))
