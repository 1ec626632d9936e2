"""Giving disk space back: RocksDB keeps what was deleted until its files are compacted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import keys

if TYPE_CHECKING:
    from .database import Database
    from .state import State

_WORTH_BYTES = 64 << 20
_PACE_MS = 10_000
_WORTH_WHEN_SLOWER = 1 << 20

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
        """The ranges that hold next to nothing any more: one for each lane, and the outbox's."""
        state = self._state
        state.gone_bytes = self._gone = 0
        self._pace = self._busiest = 0.0
        lanes = [(lane.start, state.lanes.floor(lane)) for lane in state.lanes.by_number.values()]
        return lanes, (keys.OUTBOX, keys.outbox_key(state.outbox.first))


def compact(db: Database, lanes: list[Range], outbox: Range) -> None:
    """Give the space of drained ranges back. Takes as long as the index is large, but keeps nobody from reading or writing meanwhile."""
    db.flush()
    for first, end in lanes:
        db.compact(db.due, first, end)
    db.compact(db.meta, *outbox)
    for family in (db.due, db.meta):
        db.collect(family)
