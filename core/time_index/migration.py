"""Migration: records that go to another store, or come from one, under the same schedule. The ledger tells nothing of it: what is pending stays pending."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..store import Due, Query
from . import keys
from .database import scan_prefix
from .locate import Located, locate
from .state import State, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..store import Record
    from .access import Access
    from .change import Change
    from .listing import Listing


PAGE = 8 << 20
"""Bytes of messages that are taken out at once: they are in memory, and have to be confirmed within the time that a delivery may take."""


class Migration:
    """Takes records out and in, while nothing is in flight. Any thread; raises StoreError."""

    def __init__(self, access: Access, state: State, listing: Listing) -> None:
        self._access = access
        self._state = state
        self._listing = listing

    def waiting(self, limit: int, cursor: str, now: int) -> tuple[list[Due], str]:
        """What waits, held or not, by due time, and where to go on (empty at the end). What was withdrawn while in flight ends here.

        At most `limit`, and fewer where the messages before the last one have more than `PAGE` bytes.
        """
        with self._access.writing(now):
            page = self._page(limit, cursor, now)
        self._access.sync()
        return page

    def _page(self, limit: int, cursor: str, now: int) -> tuple[list[Due], str]:
        if not cursor:
            self._bury(now)
        found: list[Due] = []
        size = 0
        for place, one in self._listing.by_time(Query(), cursor):
            if len(found) == limit or size > PAGE:
                return found, place
            assert one is not None
            found.append(Due(one.key, one.record))
            size += one.record.message.size
        return found, ""

    def _bury(self, now: int) -> None:
        change = self._state.change()
        for key in list(self._state.doomed):
            read = self._state.read(key)
            if read is not None:
                self._state.bury(change, key, read[0], now)
        if change.rows:
            self._state.commit(change)

    def out(self, moved: Sequence[bytes]) -> None:
        """Forget records that are durable in another store, and where their ids are, in one durable write."""
        with self._access.writing() as state:
            change = state.change()
            for key in moved:
                read = state.read(key)
                if read is not None:
                    self._forget(change, key, read[0])
            if change.due:
                state.commit(change)
        self._access.sync()

    def _forget(self, change: Change, key: bytes, record: Record) -> None:
        self._state.remove(change, key, record)
        change.goes(record)
        if self._state.owns(change, record, key):
            change.ids[keys.id_key(record.id)] = None

    def take_in(self, records: Sequence[Record], now: int) -> list[Record | None]:
        """Keep records that come from another store and bear their ids, in one durable write.

        One that is here already is passed over, and returned as it is here; the same message that was taken in at another time is the same. Another one with
        its id is kept, too. Raises StoreFull as `Store.put` does.
        """
        with self._access.writing(now) as state:
            state.disk.need_room()
            change = state.change()
            found = [self._put(change, record, now) for record in records]
            if change.due:
                state.commit(change, spend_reserve=False)
        self._access.sync()
        return found

    def _put(self, change: Change, record: Record, now: int) -> Record | None:
        state = self._state
        if record.is_carrier:
            state.carry(change, record, now)
            return None
        found = locate(state, record.id, change)
        if isinstance(found, Located) and _same(found.record, record):
            return found.record
        key = state.put(change, record, encode(record), now)
        change.count(record, 1)
        change.fresh[key] = record
        state.ids.points(change, record.id, key)
        return None

    def withdrawn(self) -> int:
        """How many cancellations are remembered whose schedules have not come yet. Reads all remembered ids."""
        with self._access.reading() as state:
            known = (state.ids.known(raw) for _, raw in scan_prefix(state.db.ids, b"i"))
            return sum(one is not None and one.key is None and one.event is None for one in known)


def _same(one: Record, other: Record) -> bool:
    """Whether it is the same message, perhaps taken in twice: in level queues that cannot cancel, several messages may bear one id."""
    return replace(one, taken=0) == replace(other, taken=0)
