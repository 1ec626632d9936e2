"""Giving disk space back: RocksDB keeps what was deleted until its files are compacted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import keys
from .database import Database, told

if TYPE_CHECKING:
    from .state import State

_WORTH_BYTES = 64 << 20
_QUIET_MS = 10_000
_WORTH_WHEN_QUIET = 1 << 20

Range = tuple[bytes, bytes]


class Space:
    """Compacts what lies behind the cursors: when much has gone since the last time, or when something has and nothing more goes."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._seen = 0
        self._since = 0

    def worth(self, now: int) -> bool:
        """Whether a compaction would give back much."""
        gone = self._state.gone_bytes
        if gone != self._seen:
            self._seen, self._since = gone, now
        return gone >= _WORTH_BYTES or (gone >= _WORTH_WHEN_QUIET and now - self._since >= _QUIET_MS)

    def drained(self) -> tuple[list[Range], Range]:
        """The ranges that hold next to nothing any more: one for each lane, and the outbox's."""
        state = self._state
        state.gone_bytes = 0
        lanes = [(lane.start, state.lanes.floor(lane)) for lane in state.lanes.by_number.values()]
        return lanes, (keys.OUTBOX, keys.outbox_key(state.outbox.first))


def compact(db: Database, lanes: list[Range], outbox: Range) -> None:
    """Give the space of drained ranges back. Takes as long as they are large, but keeps nobody from reading or writing meanwhile."""
    with told():
        db.flush()
        for first, end in lanes:
            db.due.compact_range(first, end)
        db.meta.compact_range(*outbox)
