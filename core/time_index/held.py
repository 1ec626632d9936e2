"""Records held back in groups, each in the order of the due keys. The records themselves stay where they are; these are two indexes beside them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from . import keys
from .database import Database, between, scan, scan_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .change import Change
    from .lanes import Lane

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, str, str]).decode

Entry = tuple[int, str, str]
"""Attempts, error and group of a held-back record."""


class Group:
    """What one group holds. None of it lies before `first`, and none that could be handed out before `position`; `last` is behind all of it."""

    __slots__ = ("count", "end", "first", "last", "position", "prefix")

    def __init__(self, prefix: bytes, count: int) -> None:
        self.prefix = self.first = self.position = self.last = prefix
        self.end = keys.after(prefix)
        self.count = count

    def holds(self, key: bytes) -> None:
        """The record under this due key is held back here and may be handed out."""
        place = self.prefix + key[2:]
        self.position = min(self.position, place)
        self.first = min(self.first, place)
        self.last = max(self.last, place)


class HeldBack:
    """All groups of all lanes. In memory is one small entry for each group that holds anything."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._lanes: defaultdict[int, dict[str, Group]] = defaultdict(dict)
        for key, value in scan_prefix(db.meta, keys.HELD_COUNTS):
            number, name = keys.lane_of(key[1:]), key[3:].decode()
            self._lanes[number][name] = self._stored(keys.held_prefix(number, name), int.from_bytes(value, "big"))

    def _stored(self, prefix: bytes, count: int) -> Group:
        group = Group(prefix, count)
        places = self._db.meta.iter(between(prefix, group.end))
        places.seek_to_last()
        group.last = places.key() if places.valid() else prefix
        places.status()
        return group

    def any(self, lane: Lane) -> bool:
        """Whether anything of this lane is held back."""
        return bool(self._lanes[lane.number])

    def last(self, lane: Lane) -> bytes:
        """No record of this lane behind this due key is held back."""
        return lane.start + max((group.last[len(group.prefix) :] for group in self._lanes[lane.number].values()), default=b"")

    def first(self, lane: Lane) -> bytes:
        """No record of this lane before this due key is held back."""
        return min((lane.start + group.first[len(group.prefix) :] for group in self._lanes[lane.number].values()), default=lane.end)

    def entry(self, key: bytes) -> Entry | None:
        """How a record is held back, None where it is not."""
        if not self._lanes[keys.lane_of(key)]:
            return None
        raw = self._db.meta.get(keys.held_key(key))
        return _decode(raw) if raw else None

    def add(self, change: Change, lane: Lane, key: bytes, entry: Entry) -> None:
        """Hold a record back, or hold it back in another way."""
        self.remove(change, lane, key)
        name = entry[2]
        change.meta[keys.held_key(key)] = _encode(entry)
        change.meta[keys.held_prefix(lane.number, name) + key[2:]] = b""
        change.held[lane, name] += 1
        change.then.append(lambda: self.back(lane, name, key))

    def remove(self, change: Change, lane: Lane, key: bytes) -> None:
        """Hold a record back no longer, if it is."""
        entry = self.entry(key)
        if entry is not None:
            change.meta[keys.held_key(key)] = None
            change.meta[keys.held_prefix(lane.number, entry[2]) + key[2:]] = None
            change.held[lane, entry[2]] -= 1

    def back(self, lane: Lane, name: str, key: bytes) -> None:
        """A held-back record may be handed out, for the first time or again."""
        self._lanes[lane.number][name].holds(key)

    def stage(self, change: Change) -> None:
        """Write how many each group holds."""
        for (lane, name), difference in change.held.items():
            group = self._lanes[lane.number].get(name)
            count = (group.count if group else 0) + difference
            change.meta[keys.held_count_key(lane.number, name)] = keys.pack64(count) if count else None
            change.totals["held"] += difference

    def keep(self, change: Change) -> None:
        """The change is written: know how many each group holds."""
        for (lane, name), difference in change.held.items():
            groups = self._lanes[lane.number]
            group = groups.get(name)
            if group is None:
                group = groups[name] = Group(keys.held_prefix(lane.number, name), 0)
                group.first = group.position = group.end
            group.count += difference
            if not group.count:
                del groups[name]

    def waiting(self, lane: Lane, name: str) -> Iterator[bytes]:
        """The due keys of what a group holds, in order, from its position on."""
        group = self._lanes[lane.number].get(name)
        if group is not None:
            for place, _ in scan(self._db.meta, group.position, group.end, values=False):
                yield lane.start + place[len(group.prefix) :]

    def entries(self, due_keys: list[bytes]) -> list[Entry]:
        """How these held-back records are."""
        found = self._db.get_many(self._db.meta, [keys.held_key(key) for key in due_keys])
        return [_decode(raw) for raw in found if raw]

    def handed_out(self, lane: Lane, name: str, key: bytes) -> None:
        """Everything of a group up to this due key is in flight."""
        group = self._lanes[lane.number][name]
        group.position = group.prefix + key[2:] + b"\0"

    def firsts(self, lane: Lane) -> dict[str, tuple[int, str]]:
        """The groups of a lane with the attempts and the error of the first record of each."""
        found = {}
        for name, group in self._lanes[lane.number].items():
            group.first = next(scan(self._db.meta, group.first, group.end, values=False))[0]
            (entry,) = self.entries([lane.start + group.first[len(group.prefix) :]])
            found[name] = entry[:2]
        return found
