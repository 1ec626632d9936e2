"""Records held back at their target. The records stay where they are; this is an index beside them, in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..by_target import ByTarget
from . import keys
from .database import Database, last_up_to, scan, scan_prefix
from .held_target import HeldTarget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..by_target import PartitionOf
    from ..store import Record
    from ..targets import Target
    from .change import Change
    from .lanes import Lane, Lanes, Track

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, str]).decode

_NONE: ByTarget[HeldTarget] = ByTarget()

Entry = tuple[int, str]
"""Attempts and error of a held-back record."""


class HeldBack:
    """All held-back records. Memory holds one small entry for each target that holds any back."""

    def __init__(self, db: Database, lanes: Lanes, partition_of: PartitionOf) -> None:
        self._db = db
        self._lanes = lanes
        self._partition_of = partition_of
        self._behind: dict[Track, ByTarget[HeldTarget]] = {}
        for key, value in scan_prefix(db.meta, keys.HELD_COUNTS):
            track, target = lanes.of(key[1:]), keys.target_of(key)
            prefix = keys.held_prefix(track.number, target)
            self._places(track)[target] = HeldTarget(prefix, int.from_bytes(value, "big"), prefix)

    def _places(self, track: Track) -> ByTarget[HeldTarget]:
        return self._behind.setdefault(track, ByTarget(self._partition_of))

    def of(self, track: Track) -> ByTarget[HeldTarget]:
        """The targets of a track that hold any back."""
        return self._behind.get(track, _NONE)

    def holding(self, lane: Lane) -> Iterator[ByTarget[HeldTarget]]:
        """The same of all tracks of a lane where there are any."""
        return (targets for track, targets in self._behind.items() if track.lane is lane)

    def waits(self, lane: Lane) -> bool:
        """Whether anything of a lane is held back and not in flight. Asked without the lock: of copies, while other threads change what is held."""
        held = (targets for track, targets in list(self._behind.items()) if track.lane is lane)
        return any(behind.waits for targets in held for behind in list(targets.values()))

    def first(self, track: Track) -> bytes:
        """No record of this track before this due key is held back."""
        return min((track.start + behind.first[len(behind.prefix) :] for behind in self.of(track).values()), default=track.end)

    def last(self, track: Track, target: Target) -> bytes:
        """The last due key of what is held back at a target; the start of the track where nothing is."""
        behind = self.of(track).get(target)
        return track.start + last_up_to(self._db.meta, behind.end)[len(behind.prefix) :] if behind else track.start

    def find(self, key: bytes, record: Record) -> tuple[Target, Entry] | None:
        """Where and how the record under a due key is held back, None where it is not."""
        for target, behind in self.of(self._lanes.of(key)).of(record):
            raw = self._db.meta.get(behind.entry(key))
            if raw:
                return target, _decode(raw)
        return None

    def add(self, change: Change, key: bytes, record: Record, target: Target, entry: Entry) -> None:
        """Hold a record back at a target; one that is held back already goes there with the new attempts and error."""
        track = self._lanes.of(key)
        found = self.find(key, record)
        if found is None or found[0] != target:
            change.held[track, target] += 1
        if found is not None and found[0] != target:
            self._take_away(change, track, found[0], key)
        change.meta[keys.held_prefix(track.number, target) + key[2:]] = _encode(entry)
        change.then.append(lambda: self.of(track)[target].back(key))

    def remove(self, change: Change, key: bytes, record: Record) -> None:
        """Hold a record back no longer, if it is held back."""
        found = self.find(key, record)
        if found is not None:
            self._take_away(change, self._lanes.of(key), found[0], key)

    def _take_away(self, change: Change, track: Track, target: Target, key: bytes) -> None:
        change.meta[self.of(track)[target].entry(key)] = None
        change.held[track, target] -= 1

    def stage(self, change: Change) -> None:
        """Write how many each target holds back."""
        for (track, target), difference in change.held.items():
            behind = self.of(track).get(target)
            count = (behind.count if behind else 0) + difference
            change.meta[keys.held_count_key(track.number, target)] = keys.pack64(count) if count else None
            change.totals["held"] += difference

    def keep(self, change: Change) -> None:
        """The change is written: know how many each target holds back."""
        for (track, target), difference in change.held.items():
            targets = self._places(track)
            behind = targets.get(target)
            if behind is None:
                prefix = keys.held_prefix(track.number, target)
                behind = targets[target] = HeldTarget(prefix, 0, keys.after(prefix))
            behind.count += difference
            if not behind.count:
                del targets[target]

    def waiting(self, track: Track, target: Target) -> Iterator[tuple[bytes, int, str]]:
        """Due key, attempts and error of what waits at a target, in order, from the position on."""
        behind = self.of(track).get(target)
        if behind is not None:
            for entry, value in scan(self._db.meta, behind.position, behind.end):
                yield track.start + entry[len(behind.prefix) :], *_decode(value)

    def handed_out(self, track: Track, target: Target, key: bytes) -> HeldTarget:
        """Everything at a target up to this due key is in flight; returns what counts this record."""
        behind = self.of(track)[target]
        behind.position = behind.entry(key) + b"\0"
        behind.out += 1
        return behind

    def firsts(self, lane: Lane) -> dict[Target, Entry]:
        """The targets of a lane that hold any back, with the attempts and the error of the first record of each."""
        found = {}
        for targets in self.holding(lane):
            for target, behind in targets.items():
                behind.first, value = next(scan(self._db.meta, behind.first, behind.end))
                found[target] = _decode(value)
        return found
