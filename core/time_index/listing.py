"""Pages of pending records. Each page looks at a bounded number of records and bytes, whatever the filter: deliveries wait meanwhile."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from ..store import Page, Pending, Query
from . import keys
from .control import pending
from .database import scan
from .locate import Located

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .lanes import Track
    from .state import State

_EXAMINED, _EXAMINED_BYTES = 5_000, 1 << 20
Place = tuple[bytes, bytes, bytes]
"""Instant and arrival, the due key, and the record's bytes."""


class Listing:
    """Lists by time over one lane or all, or by id."""

    def __init__(self, state: State) -> None:
        self._state = state

    def page(self, query: Query, limit: int, cursor: str) -> Page:
        """See `Store.list`. By time, a record stands where it may go out: one that came in late, when it came in.

        Dead letters on their way to a destination are nobody's schedule any more, and not listed.
        """
        found: Iterator[tuple[str, Located | None]] = self._by_id(query, cursor) if query.id_prefix else self.by_time(query, cursor)
        items: list[Pending] = []
        size = 0
        for examined, (place, one) in enumerate(found):
            if len(items) == limit or examined == _EXAMINED or size >= _EXAMINED_BYTES:
                return Page(tuple(items), place)
            if one is None:
                continue
            size += one.record.message.size
            if not one.record.is_carrier and _fits(query, one):
                items.append(pending(self._state, one))
        return Page(tuple(items))

    def by_time(self, query: Query, cursor: str) -> Iterator[tuple[str, Located]]:
        """Records of the wanted lanes from the cursor on, each with the cursor that begins with it."""
        first = _instant(query.due_from or 0)
        end = _instant(query.due_to) if query.due_to is not None else None
        start = max(first, _begins(cursor))
        floors = self._state.lanes.floors()
        for place, key, raw in heapq.merge(*(self._track(track, floors[track], start, end) for track in self._tracks(query))):
            record, _ = self._state.decoded(key, raw)
            yield place.hex(), Located(key, record)

    def _tracks(self, query: Query) -> list[Track]:
        """Those on which a record may lie that fits: with an address one for each lane, however many other messages wait."""
        lanes = self._state.lanes
        wanted = [lane for name, lane in lanes.by_name.items() if query.lane in ("", name)]
        if not query.address:
            return [track for lane in wanted for track in lane.tracks]
        found = (lanes.find(lane.name, query.address) for lane in wanted)
        return [track for track in found if track is not None]

    def _track(self, track: Track, floor: bytes, start: bytes, end: bytes | None) -> Iterator[Place]:
        state = self._state
        first = max(min(floor, state.held.first(track)), track.start + start)
        for key, raw in scan(state.db.due, first, track.start + end if end is not None else track.end):
            yield key[2:], key, raw

    def _by_id(self, query: Query, cursor: str) -> Iterator[tuple[str, Located | None]]:
        state = self._state
        prefix = keys.id_key(query.id_prefix)
        for key, value in scan(state.db.ids, max(prefix, _begins(cursor)), keys.after(prefix)):
            due_key = state.ids.pending_key(value)
            found = state.read(due_key) if due_key else None
            yield key.hex(), Located(due_key, found[0]) if due_key and found else None


def _begins(cursor: str) -> bytes:
    try:
        return bytes.fromhex(cursor)
    except ValueError:
        raise ValueError("the cursor is none that a page ended with") from None


def _instant(at: int) -> bytes:
    return keys.pack64(min(max(at, 0), keys.INSTANT_LIMIT - 1))[2:]


def _fits(query: Query, found: Located) -> bool:
    record, instant = found.record, keys.instant_of(found.key)
    return (
        (not query.lane or record.lane == query.lane)
        and (not query.address or record.address == query.address)
        and (query.due_from is None or instant >= query.due_from)
        and (query.due_to is None or instant < query.due_to)
    )
