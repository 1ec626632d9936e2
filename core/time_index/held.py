"""Records held back behind their address. The records stay where they are; this is an index beside them, in the same order."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from . import keys
from .database import Database, scan, scan_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .change import Change
    from .lanes import Lane

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, str]).decode

Entry = tuple[int, str]
"""Attempts and error of a held-back record."""


class Behind:
    """What is held back behind one address: `count` in all, `out` of that in flight.

    None of it lies before `first`, and none that could be handed out before `position`.
    """

    __slots__ = ("count", "end", "first", "out", "position", "prefix")

    def __init__(self, prefix: bytes, count: int, position: bytes) -> None:
        self.prefix = prefix
        self.end = keys.after(prefix)
        self.count = count
        self.out = 0
        self.first = self.position = position

    @property
    def waits(self) -> bool:
        """Whether any of it is not in flight. Where all of it is, what falls due for the address may follow."""
        return self.count > self.out

    def place(self, key: bytes) -> bytes:
        """Where the record under this due key stands in the index."""
        return self.prefix + key[2:]


class HeldBack:
    """All held-back records. In memory is one small entry for each address that holds any back."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._lanes: defaultdict[int, dict[str, Behind]] = defaultdict(dict)
        for key, value in scan_prefix(db.meta, keys.HELD_COUNTS):
            number, address = keys.lane_of(key[1:]), key[3:].decode()
            prefix = keys.held_prefix(number, address)
            self._lanes[number][address] = Behind(prefix, int.from_bytes(value, "big"), prefix)

    def of(self, lane: Lane) -> dict[str, Behind]:
        """The addresses of a lane that hold any back."""
        return self._lanes[lane.number]

    def first(self, lane: Lane) -> bytes:
        """No record of this lane before this due key is held back."""
        return min((lane.start + behind.first[len(behind.prefix) :] for behind in self.of(lane).values()), default=lane.end)

    def entry(self, address: str, key: bytes) -> Entry | None:
        """How the record for `address` under a due key is held back, None where it is not."""
        behind = self._lanes[keys.lane_of(key)].get(address)
        raw = self._db.meta.get(behind.place(key)) if behind else None
        return _decode(raw) if raw else None

    def add(self, change: Change, lane: Lane, address: str, key: bytes, entry: Entry) -> None:
        """Hold a record back; one that is held back already gets the new attempts and error."""
        if self.entry(address, key) is None:
            change.held[lane, address] += 1
        change.meta[keys.held_prefix(lane.number, address) + key[2:]] = _encode(entry)
        change.then.append(lambda: self.back(lane, address, key))

    def remove(self, change: Change, lane: Lane, address: str, key: bytes) -> None:
        """Hold a record back no longer, if it is held back."""
        if self.entry(address, key) is not None:
            change.meta[self.of(lane)[address].place(key)] = None
            change.held[lane, address] -= 1

    def back(self, lane: Lane, address: str, key: bytes) -> None:
        """A held-back record may be handed out, for the first time or again."""
        behind = self.of(lane)[address]
        place = behind.place(key)
        behind.position = min(behind.position, place)
        behind.first = min(behind.first, place)

    def stage(self, change: Change) -> None:
        """Write how many each address holds back."""
        for (lane, address), difference in change.held.items():
            behind = self.of(lane).get(address)
            count = (behind.count if behind else 0) + difference
            change.meta[keys.held_count_key(lane.number, address)] = keys.pack64(count) if count else None
            change.totals["held"] += difference

    def keep(self, change: Change) -> None:
        """The change is written: know how many each address holds back."""
        for (lane, address), difference in change.held.items():
            addresses = self.of(lane)
            behind = addresses.get(address)
            if behind is None:
                prefix = keys.held_prefix(lane.number, address)
                behind = addresses[address] = Behind(prefix, 0, keys.after(prefix))
            behind.count += difference
            if not behind.count:
                del addresses[address]

    def waiting(self, lane: Lane, address: str) -> Iterator[tuple[bytes, int, str]]:
        """Due key, attempts and error of what waits behind an address, in order, from the position on."""
        behind = self.of(lane).get(address)
        if behind is not None:
            for place, value in scan(self._db.meta, behind.position, behind.end):
                yield lane.start + place[len(behind.prefix) :], *_decode(value)

    def handed_out(self, lane: Lane, address: str, key: bytes) -> Behind:
        """Everything behind an address up to this due key is in flight; returns what that one is counted in."""
        behind = self.of(lane)[address]
        behind.position = behind.place(key) + b"\0"
        behind.out += 1
        return behind

    def firsts(self, lane: Lane) -> dict[str, Entry]:
        """The addresses of a lane that hold any back, with the attempts and the error of the first record of each."""
        found = {}
        for address, behind in self.of(lane).items():
            behind.first, value = next(scan(self._db.meta, behind.first, behind.end))
            found[address] = _decode(value)
        return found
