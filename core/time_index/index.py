"""The time index: `core.store.Store` on RocksDB."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..by_target import unknown_partition
from ..store import MEMORY_MS, Answer, Counts, DeadLetter, Due, Held, Page, Pending, Query, Settled, SourceProgress, StoreFull
from ..targets import address_of
from .access import Access
from .control import Control
from .database import ROOM_TO_OPEN, translated
from .delivery import Delivery
from .disk import Disk, Quota, files, free_on_disk
from .intake import Intake, encoded
from .listing import Listing
from .migration import Migration
from .recent import RECENT_TOKENS
from .space import Space, compact
from .state import State
from .unfiled import Unfiled
from .watermark import opened

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from .. import ledger, store
    from ..by_target import PartitionOf
    from ..targets import Target
    from .lanes import Lane

_MIB = 1 << 20
_RESERVE = "reserve"
_SETTLED_AT_ONCE = 50
"""Outcomes in one write: readers wait for no longer than that takes."""


class TimeIndex:
    """Messages wait in the directory `path`, which is made where it is missing. See `core.store` for the contract and docs/store.md for the disk.

        bridge          the name in the ledger rows
        memory_ms       for how long ids that producers chose are remembered after their end, and early withdrawals
        recent_tokens   how many of a source's latest tokens are kept, at least
        min_free_disk   with fewer free bytes, as `free_bytes` tells them, `put` raises StoreFull
        reserve_bytes   are kept aside, so that settling goes on when the disk is full
        max_bytes       the store behaves as on a disk of this size
        next_row        gets the number of the next ledger row, and which bridge wrote the latest; returns a higher number where files hold rows from there on
        partition_of    tells the partition of a record, so that one that takes nothing holds back only what is for it

    Raises StoreLocked where another process is at work in that directory.
    """

    cancels = indexed = True

    def __init__(
        self,
        path: Path | str,
        *,
        bridge: str,
        min_free_disk: int,
        memory_ms: int = MEMORY_MS,
        recent_tokens: int = RECENT_TOKENS,
        max_bytes: int | None = None,
        reserve_bytes: int = 64 * _MIB,
        free_bytes: Callable[[], int] | None = None,
        next_row: Callable[[int, ledger.BridgeNames], int] = lambda row, _: row,
        partition_of: PartitionOf = unknown_partition,
    ) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            self._db, watermark = opened(self.path / "db")
        except StoreFull:  # what is in the log is written to tables now
            (self.path / _RESERVE).unlink(missing_ok=True)
            self._db, watermark = opened(self.path / "db")
        try:
            free = free_bytes or partial(free_on_disk, self.path)
            self._quota = Quota(self.path, max_bytes, free) if max_bytes is not None else None
            self._disk = Disk(self.path / _RESERVE, reserve_bytes, min_free_disk, self._quota.free_bytes if self._quota else free)
            with translated():
                self._state = State(
                    self._db,
                    self._disk,
                    watermark,
                    bridge=bridge,
                    memory_ms=memory_ms,
                    recent_tokens=recent_tokens,
                    next_row=next_row,
                    partition_of=partition_of,
                )
        except BaseException:
            self._db.close()
            watermark.close()
            raise
        self._access = Access(self._state)
        self._intake = Intake(self._state)
        self._delivery = Delivery(self._state)
        self._control = Control(self._state)
        self._listing = Listing(self._state)
        self.unfiled = Unfiled(self._access, self._state)
        self.migration = Migration(self._access, self._state, self._listing)
        self._space = Space(self._state)

    def put(self, changes: Sequence[store.Change], now: int, came: SourceProgress | None = None) -> list[Answer]:
        """See `Store.put`. StoreFull is raised before the disk is full: at `min_free_disk`."""
        items = encoded(changes)
        if self._quota:
            self._quota.look()
        with self._access.writing(now):
            self._disk.need_room()
            answers = self._intake.put(items, now, came)
        self._access.sync()
        return answers

    def came(self, source: str) -> SourceProgress:
        """See `Store.came`."""
        with self._access.reading() as state:
            return state.recent.came(source)

    def forget(self, source: str) -> None:
        """See `Store.forget`."""
        with self._access.writing() as state:
            change = state.change()
            state.recent.forget(change, source)
            if not change.meta:  # as at most starts of a bridge, for each of its routes
                return
            state.commit(change)
        self._access.sync()

    def wants_again(self, source: str, change: store.Change) -> bool:  # noqa: ARG002 - the contract's arguments
        """See `Store.wants_again`: what is stored here is nobody else's."""
        return False

    def due(self, lane: str, now: int, limit: int, max_bytes: int) -> list[Due]:
        """See `Store.due`."""
        place = self._state.lanes.by_name.get(lane)
        if place is None:
            with self._access.reading(now):
                return []
        found, more = self._hand_out(place, now, limit, max_bytes)
        while more:
            space = max_bytes - sum(due.record.message.size for due in found)
            try:
                part, more = self._hand_out(place, now, limit - len(found), space)
            except StoreFull:
                self.put_back([due.key for due in found])
                raise
            found += part
        return self._durable(found)

    def _hand_out(self, place: Lane, now: int, limit: int, max_bytes: int) -> tuple[builtins.list[Due], bool]:
        """What can be handed out while nobody waits for the lock, and whether somebody does who has the next turn."""
        with self._handing_out(now, sets_aside=self._state.held.waits(place)):
            return self._delivery.due(place, now, limit, max_bytes)

    def due_held(self, lane: str, target: Target, now: int, limit: int, max_bytes: int) -> builtins.list[Due]:
        """See `Store.due_held`."""
        with self._access.reading(now):
            track = self._state.lanes.find(lane, address_of(target))
            overtaken = self._delivery.overtaken(track, target) if track else []
        if track is None:
            return []
        if overtaken:
            with self._access.writing(now):
                self._delivery.line_up(track, target, now)
        with self._handing_out(now, sets_aside=False):
            found = self._delivery.due_held(track, target, now, limit, max_bytes)
        return self._durable(found)

    def _handing_out(self, now: int, *, sets_aside: bool) -> AbstractContextManager[object]:
        """What is doomed, or due for a target that holds others back, is set aside by a write.

        Only the lane's own thread hands out and holds: whether it may come to that stays true until it does.
        """
        return self._access.writing(now) if sets_aside or self._state.doomed else self._access.reading(now)

    def _durable(self, found: builtins.list[Due]) -> builtins.list[Due]:
        """What the machine may still lose must not go out: it would go out twice."""
        if self._state.unsynced(found):
            self._access.sync()
        return found

    def next_due(self, lane: str) -> int | None:
        """See `Store.next_due`; costs nothing where nothing changed since the last call."""
        with self._access.reading() as state:
            place = state.lanes.by_name.get(lane)
            return self._delivery.next_due(place) if place else None

    def lanes(self) -> builtins.list[str]:
        """The lanes in which anything waits."""
        with self._access.reading() as state:
            return [
                lane.name
                for lane in state.lanes.by_name.values()
                if self._delivery.next_due(lane) is not None or any(state.held.holding(lane))
            ]

    def settle(self, outcomes: Sequence[Settled], now: int, *, wait: bool = True) -> bool:
        """See `Store.settle`. What is not in flight but still waits is settled too; what is gone is passed over."""
        if not self._state.write_lock.acquire(blocking=wait):
            return False
        try:
            for start in range(0, len(outcomes), _SETTLED_AT_ONCE):
                with self._access.reading(now):
                    self._delivery.settle(outcomes[start : start + _SETTLED_AT_ONCE], now)
        finally:
            self._state.write_lock.release()
        return True

    def first_due(self) -> int | None:
        """See `Store.first_due`."""
        with self._access.reading():
            first = next(self._listing.by_time(Query(), ""), None)
        return first[1].record.schedule.due if first else None

    def tell(self, told: Sequence[store.LedgerEvent], now: int, came: SourceProgress | None = None) -> None:
        """Write ledger rows and what came in, for a store that keeps its messages elsewhere.

        They survive a killed process at once, the machine after `sync`.
        """
        with self._access.writing(now) as state:
            change = state.change()
            for one in told:
                change.event(one.event, one.at, one.record, one.record.id, one.lateness, one.attempts, one.reason)
            if came:
                state.recent.stage(change, came)
            state.commit(change)

    def sync(self) -> None:
        """See `Store.sync`."""
        self._access.sync()

    def hold(self, failed: Sequence[Held], now: int) -> None:
        """See `Store.hold`."""
        with self._access.writing(now):
            self._delivery.hold(failed, now)
        self._access.sync()

    def put_back(self, keys: Sequence[bytes]) -> None:
        """See `Store.put_back`."""
        with self._access.writing():
            self._delivery.put_back(keys)
        self._access.sync()

    def held(self, lane: str) -> dict[Target, tuple[int, str]]:
        """See `Store.held`; one look-up for each target."""
        with self._access.reading() as state:
            place = state.lanes.by_name.get(lane)
            return state.held.firsts(place) if place else {}

    def cancel(self, id: str, now: int) -> Answer:  # noqa: A002 - the field's own word
        """See `Store.cancel`."""
        with self._access.writing(now):
            answer = self._control.cancel(id, now)
        self._access.sync()
        return answer

    def reschedule(self, id: str, due: int, now: int) -> Answer:  # noqa: A002 - the field's own word
        """See `Store.reschedule`."""
        with self._access.writing(now):
            answer = self._control.reschedule(id, due, now)
        self._access.sync()
        return answer

    def find(self, id: str) -> Pending | Answer:  # noqa: A002 - the field's own word
        """See `Store.find`."""
        with self._access.reading():
            found = self._control.find(id)
        self._access.sync()
        return found

    def list(self, query: Query, limit: int, cursor: str = "") -> Page:
        """See `Store.list`. A record that came in late stands where it came in. ValueError for a cursor that is none."""
        with self._access.reading():
            return self._listing.page(query, limit, cursor)

    def dead_letters(self, limit: int, after: int = 0) -> builtins.list[DeadLetter]:
        """See `Store.dead_letters`."""
        with self._access.reading() as state:
            return state.shelf.page(limit, after)

    def retry_dead_letter(self, number: int, now: int, address: str = "") -> bool:
        """See `Store.retry_dead_letter`. It is scheduled once, under its own id unless another pending record bears that by now."""
        with self._access.writing(now):
            done = self._control.retry(number, now, address)
        self._access.sync()
        return done

    def drop_dead_letter(self, number: int, now: int) -> bool:
        """See `Store.drop_dead_letter`."""
        with self._access.writing(now):
            done = self._control.drop(number)
        self._access.sync()
        return done

    def counts(self) -> Counts:
        """See `Store.counts`; `by_address` and `by_hour` hold the first 1,000 addresses and hours, the totals everything."""
        with self._access.reading() as state:
            return state.counters.counts({lane.number: lane.name for lane in state.lanes.by_name.values()})

    def carriers(self) -> int:
        """Dead letters on their way to a dead-letter destination; they are not pending in the ledger's sense."""
        with self._access.reading() as state:
            return state.counters.totals["carriers"]

    def room(self) -> bool:
        """See `Store.room`; cheap enough to ask before each batch."""
        if self._quota:
            self._quota.look()
        with self._access.reading():
            return self._disk.room()

    def free_bytes(self) -> int:
        """See `Store.free_bytes`."""
        return max(0, self._disk.free_bytes())

    def size_bytes(self) -> int:
        """See `Store.size_bytes`; without the reserve."""
        return sum(file.st_size for file in files(self.path / "db"))

    def maintain(self, now: int) -> bool:
        """Give disk space back if it is worth it, and tell whether it was. Call it about every second, from a thread that may wait."""
        if self._quota:
            self._quota.look()
        with self._access.reading(now) as state:
            if not self._space.worth(now):
                return False
            failed = self._space.owed
            due, meta = self._space.drained()
        if failed:
            self._write_again()
        with state.compacting:
            try:
                if not self._access.failed:
                    compact(self._db, due, meta, self._space.room)
            except StoreFull:
                self._space.failed(due, meta)
        return True

    def mended(self) -> str:
        """Why the disk could not sync, where opening again has mended that since the last call (docs/store.md §3); else empty."""
        with self._access.reading() as state:
            why, state.mended = state.mended, ""
            return why

    def _write_again(self) -> None:
        """After the disk was full, RocksDB is read-only until it is reopened. The next write does that; but if nothing waits, there is no next write."""
        with self._access.writing() as state, contextlib.suppress(StoreFull):
            if self._disk.free_bytes() >= ROOM_TO_OPEN:
                state.reopen()

    def close(self) -> None:
        """See `Store.close`. Idempotent."""
        self._access.close()
