"""The state of a time index: its parts, and the steps of which putting, settling, cancelling and the like are made."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import force_setattr

from ..ledger import CLOSING, BridgeNames, Event
from ..store import Due, Record, StoreError, StoreFull
from . import keys
from .change import OVERHEAD, SIZE, Change
from .counters import Counters
from .database import Database, scan_prefix
from .held import HeldBack
from .ids import Ids
from .lanes import Lanes
from .made import TAG_BYTES, MadeIds
from .numbers import Numbers
from .outbox import Outbox, named
from .recent import Recent
from .shelf import Shelf
from .turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..by_target import PartitionOf
    from .disk import Disk
    from .watermark import Watermark

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Record).decode


class State:
    """What is on disk, and the little that is known of it in memory. Memory changes only after the disk did.

    Two locks, taken in this order: `write_lock` to write or sync, `memory_lock` to read or change what is in memory. A write during a running
    sync would wait for it inside rocksdict, holding Python's global lock, and stop every thread; so it first waits for `write_lock`, holding
    nothing, and readers never wait for the disk. Both locks are granted in turn: a lane with much to do keeps nobody out.
    """

    def __init__(
        self,
        db: Database,
        disk: Disk,
        watermark: Watermark,
        *,
        bridge: str,
        memory_ms: int,
        recent_tokens: int,
        next_row: Callable[[int, BridgeNames], int],
        partition_of: PartitionOf,
    ) -> None:
        self.db = db
        self.disk = disk
        self._watermark = watermark
        self._check_format()
        written = db.meta.get(keys.NUMBERS_KEY)
        self.numbers = Numbers.unpacked(written)
        before = named(db)
        row = next_row(self.numbers.row, before or BridgeNames(bridge))
        if written is None:
            self.numbers.row = row
        self.lanes = Lanes(db)
        self.held = HeldBack(db, self.lanes, partition_of)
        self.made = MadeIds(db.meta.get(keys.TAG_KEY) or b"")
        self.ids = Ids(db, memory_ms, self.made)
        self.counters = Counters(db)
        self.outbox = Outbox(db, bridge, self.numbers, before)
        self.recent = Recent(db, recent_tokens)
        self.shelf = Shelf(db)
        self.doomed = self._stored_doomed()
        self.write_lock = Turns()
        self.memory_lock = Turns()
        self.compacting = threading.Lock()
        self._durable = self.numbers
        self._refused = 0
        self.mended = ""  # why the log could not be synced when it was last written anew, until that is told
        self.gone_bytes = 0
        if row > self.numbers.row or not self.outbox.is_named:
            self._begin(row)

    def _begin(self, row: int) -> None:
        """Note the bridge's name. If `row` is not the next one, drop all rows and number from there: a later state of this store has them in files."""
        change = self.change()
        self.outbox.name(change)
        if row > self.numbers.row:
            self.outbox.skip(change, row)
        self.commit(change)
        self.db.sync()

    def _check_format(self) -> None:
        found = self.db.meta.get(keys.FORMAT_KEY)
        if found is None:
            self.db.write({}, {}, {keys.FORMAT_KEY: bytes((keys.FORMAT,)), keys.TAG_KEY: os.urandom(TAG_BYTES)})
            self.db.sync()  # before there is any table: see Watermark
        elif found != bytes((keys.FORMAT,)):
            raise StoreError(
                f"{self.db.path} has format {found[0]}; this version reads format {keys.FORMAT}. "
                "Let the version that wrote it deliver what waits, or begin with another store.path"
            )

    def _stored_doomed(self) -> dict[bytes, Event]:
        return {key[1:]: CLOSING[value[0]] for key, value in scan_prefix(self.db.meta, keys.DOOMED)}

    def change(self) -> Change:
        """Begin a change; `commit` writes it."""
        return Change(self.numbers)

    def read(self, key: bytes) -> tuple[Record, bool] | None:
        """The record under a due key, its id filled in, and whether that id has an entry of its own; None where there is none."""
        raw = self.db.due.get(key)
        return self.decoded(key, raw) if raw is not None else None

    def decoded(self, key: bytes, raw: bytes) -> tuple[Record, bool]:
        """The same, from its bytes."""
        record = decode(raw)
        if record.id:
            return record, not record.is_carrier
        force_setattr(record, "id", self.made.of(key))
        return record, False

    def next_key(self, change: Change, record: Record, now: int) -> bytes:
        """Where `put` would place a record now. A past instant counts as now, so that nothing is put before what was handed out."""
        track = self.lanes.track(record.lane, record.address)
        return keys.due_key(track.base | keys.checked(max(record.schedule.due, now)), change.numbers.arrival)

    def put(self, change: Change, record: Record, raw: bytes, now: int) -> bytes:
        """Place a record on its track; the caller counts it and tells the ledger."""
        key = self.next_key(change, record, now)
        change.numbers.arrival += 1
        change.due[key] = raw
        change.came(self.lanes.of(key), key)
        return key

    def schedule(self, change: Change, record: Record, raw: bytes, now: int, *, index: bool = True) -> bytes:
        """Place a record that bears its id, count it as scheduled, and index its id, unless that is another record's."""
        key = self.put(change, record, raw, now)
        change.event("scheduled", now, record, record.id)
        change.count(record, 1)
        if index:
            self.ids.points(change, record.id, key)
        return key

    def owns(self, change: Change, record: Record, key: bytes) -> bool:
        """Whether the index of ids leads to this record. Of several that came from level queues under one id, it leads to the last."""
        known = self.ids.get(change, record.id)
        return known is not None and known.key == key

    def carry(self, change: Change, record: Record, now: int) -> None:
        """Place a carrier on its way to its destination: nobody's schedule, and counted apart."""
        self.put(change, record, encode(record), now)
        change.totals["carriers"] += 1

    def remove(self, change: Change, key: bytes, record: Record) -> None:
        """Take a record away; the caller says why."""
        track = self.lanes.of(key)
        change.due[key] = None
        if record.is_carrier:
            change.totals["carriers"] -= 1
        else:
            change.count(record, -1)
        self.held.remove(change, key, record)
        if key in self.doomed:
            change.meta[keys.doomed_key(key)] = None
            change.then.append(lambda: self.doomed.__delitem__(key))
        change.then.append(lambda: track.gone(key))

    def cancel(self, change: Change, key: bytes, record: Record, now: int) -> None:
        """Withdraw a pending record."""
        self.remove(change, key, record)
        change.event("cancelled", now, record, record.id)
        self.ids.ended(change, record.id, "cancelled", now)

    def doom(self, change: Change, key: bytes, event: Event) -> None:
        """Mark a record in flight that must not go out again: unless it gets delivered now, it ends with this event, the first one if there are more."""
        if key in self.doomed or keys.doomed_key(key) in change.meta:
            return
        change.meta[keys.doomed_key(key)] = bytes((CLOSING.index(event),))
        change.then.append(lambda: self.doomed.__setitem__(key, event))

    def bury(self, change: Change, key: bytes, record: Record, now: int) -> None:
        """End a doomed record that was not delivered, with the event that it is doomed to."""
        event = self.doomed[key]
        self.remove(change, key, record)
        change.event(event, now, record, record.id)
        if event == "cancelled" and self.owns(change, record, key):
            self.ids.ended(change, record.id, event, now)

    def commit(self, change: Change, *, spend_reserve: bool = True) -> None:
        """Write a change, with both locks held, and let memory know. Where it may be, the reserve is spent on a full disk before StoreFull is raised."""
        change.numbers.write += 1
        self.outbox.stage(change)
        self.held.stage(change)
        by_key = [(keys.hour_count_key(hour), count) for hour, count in change.by_hour.items()]
        by_key += [
            (keys.address_count_key(self.lanes.lane(lane).number, address), count) for (lane, address), count in change.by_address.items()
        ]
        counted = self.counters.staged(change.totals, by_key)
        change.meta.update(self.counters.stored(counted))
        for track, arrived in change.arrived.items():
            arrived.sort()
            change.cursors[track] = min(change.cursors.get(track, track.cursor), arrived[0])
        change.meta.update({keys.cursor_key(track.number): key for track, key in change.cursors.items() if key != track.cursor})
        self.ids.forget(change)
        change.meta.update(self.lanes.unwritten)
        change.meta[keys.NUMBERS_KEY] = change.numbers.packed()
        change.due[keys.WRITE_KEY] = change.ids[keys.WRITE_KEY] = keys.pack64(change.numbers.write)
        self._write(change, spend_reserve=spend_reserve)
        self._learn(change, counted)

    def _write(self, change: Change, *, spend_reserve: bool) -> None:
        number = change.numbers.write
        try:
            self.db.write(change.due, change.ids, change.meta, change.dropped)
        except StoreFull:
            if self.reopen(number):
                return
            if not spend_reserve:
                raise
            self._refused = number  # the next change gets this number, too: if this one happens all the same, it must not be taken for that
            self.db.write(change.due, change.ids, change.meta, change.dropped)
            self._refused = 0

    def reopen(self, number: int = 0) -> bool:
        """After a failed write or sync, with both locks held: make room and open again. What was written is durable then.

        Returns whether the write of this number, which has just failed, happened after all. Raises StoreError where memory and disk would no longer agree:
        the disk lost a write, or took one that was refused. Recovery decides then.
        """
        self.disk.release()
        with self.compacting:
            self.db.reopen()
        found = Numbers.written(self.db.meta.get(keys.NUMBERS_KEY))
        if found < self.numbers.write:
            raise StoreError("the disk lost what was written and not synced yet")
        happened = found > self.numbers.write
        if happened and (found != number or found == self._refused):
            raise StoreError("the disk was full for a write, and has it all the same")
        self._durable, self._refused = self.numbers, 0
        return happened

    def _learn(self, change: Change, counted: dict[bytes, int]) -> None:
        self.numbers = change.numbers
        self.lanes.unwritten.clear()
        self.gone_bytes += change.gone + sum(row[SIZE] + OVERHEAD for row in change.rows if row[0] != "scheduled")
        self.counters.keep(counted)
        self.held.keep(change)
        for track, arrived in change.arrived.items():
            track.arrived(arrived)
        for track, key in change.cursors.items():
            track.cursor = key
        for effect in change.then:
            effect()

    def unsynced(self, handed_out: Sequence[Due]) -> bool:
        """Whether any of these records may still be lost with the machine's power."""
        first = keys.pack64(self._durable.arrival)
        return self._durable is not self.numbers and any(due.key[8:] >= first for due in handed_out)

    def unsynced_row(self, number: int) -> bool:
        """Whether this ledger row may still be lost with the machine's power."""
        return number >= self._durable.row

    def sync(self) -> None:
        """Make all that was written so far durable. One call serves every write before it. Takes `write_lock`, and no other lock while the disk works.

        Where the log cannot be synced, because the disk failed or was full for a write after ours, opening the store again writes what it
        holds to new files; only if that fails too, or does not hold our write, the error is raised.
        """
        aim = self.numbers.write
        with self.write_lock:
            if self._durable.write >= aim:
                return
            reached = self.numbers
            try:
                self._synced(reached)
            except StoreError as error:
                with self.memory_lock:
                    self.reopen()
                    self.mended = str(error)

    def _synced(self, reached: Numbers) -> None:
        self.db.sync()
        if reached.write > self._durable.write:
            self._watermark.note(reached.write)
        self._durable = reached

    def close(self) -> None:
        """Sync and release the database, with both locks held."""
        with self.compacting:
            try:
                self._synced(self.numbers)
            finally:
                self.db.close()
                self._watermark.close()
