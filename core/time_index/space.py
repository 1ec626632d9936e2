"""Giving disk space back: RocksDB keeps what was deleted until its files are compacted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import keys

if TYPE_CHECKING:
    from .database import Database
    from .lanes import Track
    from .state import State

_WORTH_BYTES = 64 << 20
_PACE_MS = 10_000
_WORTH_WHEN_SLOWER = 1 << 20
_FEW = 8

Range = tuple[bytes, bytes]


class Space:
    """Compacts what lies behind the cursors: when an eighth of the store has gone, or a thirty-second has and it goes much slower now.

    In parts of the store, because a compaction reads the index of all that waits: its cost for each delivered message stays the same. Slower:
    ten seconds take not a quarter of what the busiest ten did since the last compaction. So a burst gives its space back beside light traffic.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._since = self._gone = 0
        self._pace = self._busiest = 0.0
        self._done: dict[Track, bytes] = {}

    def worth(self, now: int) -> bool:
        """Whether a compaction would give back much."""
        gone, size = self._state.gone_bytes, self._state.db.size()
        passed = abs(now - self._since)  # the clock may be set back
        if passed >= _PACE_MS:
            self._pace = (gone - self._gone) / passed
            self._busiest = max(self._busiest, self._pace)
            self._since, self._gone = now, gone
        slower = self._pace < self._busiest / 4
        return gone >= max(_WORTH_BYTES, size // 8) or (slower and gone >= max(_WORTH_WHEN_SLOWER, size // 32))

    def drained(self) -> tuple[list[Range], Range]:
        """The ranges that hold next to nothing any more: those of the tracks on which something went since the last time, and the outbox's."""
        state = self._state
        state.gone_bytes = self._gone = 0
        self._pace = self._busiest = 0.0
        return self._tracks(), (keys.OUTBOX, keys.outbox_key(state.outbox.first))

    def _tracks(self) -> list[Range]:
        """Of many tracks one range, whatever waits in between: each compaction copies the whole table files that its range touches."""
        floors = self._state.lanes.floors()
        ranges = [(track.start, floor) for track, floor in floors.items() if floor != self._done.get(track, track.start)]
        self._done = floors
        return ranges if len(ranges) <= _FEW else [(min(first for first, _ in ranges), max(end for _, end in ranges))]


def compact(db: Database, tracks: list[Range], outbox: Range) -> None:
    """Give the space of drained ranges back. Takes as long as the index is large, but keeps nobody from reading or writing meanwhile."""
    db.flush()
    for first, end in tracks:
        db.compact(db.due, first, end)
    db.compact(db.meta, *outbox)
    for family in (db.due, db.meta):
        db.collect(family)
