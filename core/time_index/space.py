"""Giving disk space back: RocksDB keeps what was deleted until its files are compacted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocksdict import Rdict

    from .database import Database
    from .lanes import Track
    from .state import State

_WORTH_BYTES = 64 << 20
_PACE_MS = 10_000
_WORTH_WHEN_SLOWER = 1 << 20
_FEW = 8

Range = tuple[bytes, bytes]


class Space:
    """Decides when a compaction is worth it, and of what: what lies before the cursors, or before the last record that was cancelled after them.

    It is worth it

    - once 1/8 of the store is gone, or 1/32 if deletion has slowed down: so a burst's space comes back even under light traffic;
    - while a third of the blob files is garbage, because one compaction copies only a part of them;
    - once after a start, when nothing is deleted or intake stands still: what was deleted before is not known then, and may be what intake waits for.

    Thresholds are shares of the store, because a compaction reads the index of all that waits: so its cost for each delivered message stays the same.
    Deletion has slowed down when ten seconds delete less than a quarter of what the busiest ten seconds since the last compaction did.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._since = self._gone = 0
        self._pace = self._busiest = 0.0
        self._done: dict[Track, bytes] = {}
        self._unknown = any(track.position > track.start for track in state.lanes.tracks.values())
        self._owed: tuple[list[Range], list[Range]] = [], []

    @property
    def owed(self) -> bool:
        """Whether the last compaction failed."""
        return any(self._owed)

    def worth(self, now: int) -> bool:
        """Whether a compaction would give back much."""
        gone, size = self._state.gone_bytes, self._state.db.size()
        passed = abs(now - self._since)  # the clock may be set back
        if passed >= _PACE_MS:
            self._pace = (gone - self._gone) / passed
            self._busiest = max(self._busiest, self._pace)
            self._since, self._gone = now, gone
        slower = self._pace < self._busiest / 4
        return (
            self.owed
            or (self._unknown and (self._pace == 0 or not self._state.disk.open))
            or gone >= max(_WORTH_BYTES, size // 8)
            or (slower and gone >= max(_WORTH_WHEN_SLOWER, size // 32))
            or any(self._state.db.collected(family, self.room()) for family in _with_bodies(self._state.db))
        )

    def room(self) -> int:
        """How many bytes copies may take: half of what is free, because delivery goes on meanwhile, and the index is copied, too."""
        return max(0, self._state.disk.free_bytes()) // 2

    def drained(self) -> tuple[list[Range], list[Range]]:
        """The ranges that hold next to nothing any more: of the tracks on which something went since the last time, of the outbox, and of the shelf."""
        state = self._state
        self._unknown = False
        state.gone_bytes = self._gone = 0
        self._pace = self._busiest = 0.0
        (due, meta), self._owed = self._owed, ([], [])
        outbox = keys.OUTBOX, keys.outbox_key(state.outbox.first)
        return _joined([*due, *self._tracks()]), _joined([*meta, outbox, *state.shelf.drained()])

    def failed(self, due: list[Range], meta: list[Range]) -> None:
        """These could not be compacted because the disk was full: try them again, whatever else is deleted meanwhile."""
        self._owed = due, meta

    def _tracks(self) -> list[Range]:
        """For many tracks a single range, whatever waits in between: each compaction copies the whole table files that its range touches.

        A track may stand where it stood the last time, at its end or at a record due another day, although it went back and on since.
        """
        floors = self._state.lanes.floors()
        ranges = [
            (track.start, max(floor, track.gone_to))
            for track, floor in floors.items()
            if track.went_on or track.gone_to or floor != self._done.get(track, track.start)
        ]
        for track in floors:
            track.went_on, track.gone_to = False, b""
        self._done = floors
        return ranges if len(ranges) <= _FEW else [(min(first for first, _ in ranges), max(end for _, end in ranges))]


def compact(db: Database, due: list[Range], meta: list[Range], room: Callable[[], int]) -> None:
    """Give the space of drained ranges back; `room` tells how much copies may take. Takes as long as the index is large, but keeps nobody waiting."""
    db.flush()
    for family, ranges in ((db.due, due), (db.meta, meta)):
        for first, end in ranges:
            db.compact(family, first, end)
    for family in _with_bodies(db):
        db.collect(family, room())


def _joined(ranges: list[Range]) -> list[Range]:
    """Of ranges that begin alike, one that reaches as far as the longest."""
    found: dict[bytes, bytes] = {}
    for first, end in ranges:
        found[first] = max(end, found.get(first, end))
    return list(found.items())


def _with_bodies(db: Database) -> tuple[Rdict, Rdict]:
    return db.due, db.meta
