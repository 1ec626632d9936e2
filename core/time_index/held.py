"""Records held back behind their address. The records stay where they are; this is an index beside them, in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from . import keys
from .database import Database, last_up_to, scan, scan_prefix
from .held_address import HeldAddress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .change import Change
    from .lanes import Lane, Lanes, Track

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, str]).decode

Entry = tuple[int, str]
"""Attempts and error of a held-back record."""


class HeldBack:
    """All held-back records. Memory holds one small entry for each address that holds any back."""

    def __init__(self, db: Database, lanes: Lanes) -> None:
        self._db = db
        self._lanes = lanes
        self._behind: dict[Track, dict[str, HeldAddress]] = {}
        for key, value in scan_prefix(db.meta, keys.HELD_COUNTS):
            track, address = lanes.of(key[1:]), key[3:].decode()
            prefix = keys.held_prefix(track.number, address)
            self._behind.setdefault(track, {})[address] = HeldAddress(prefix, int.from_bytes(value, "big"), prefix)

    def of(self, track: Track) -> dict[str, HeldAddress]:
        """The addresses on a track that hold any back."""
        return self._behind.get(track, {})

    def holding(self, lane: Lane) -> Iterator[dict[str, HeldAddress]]:
        """The same of all tracks of a lane where there are any."""
        return (addresses for track, addresses in self._behind.items() if track.lane is lane)

    def waits(self, lane: Lane) -> bool:
        """Whether anything of a lane is held back and not in flight. Asked without the lock: of copies, while other threads change what is held."""
        held = (addresses for track, addresses in list(self._behind.items()) if track.lane is lane)
        return any(behind.waits for addresses in held for behind in list(addresses.values()))

    def first(self, track: Track) -> bytes:
        """No record of this track before this due key is held back."""
        return min((track.start + behind.first[len(behind.prefix) :] for behind in self.of(track).values()), default=track.end)

    def last(self, track: Track, address: str) -> bytes:
        """The last due key of what is held back behind an address; the start of the track where nothing is."""
        behind = self.of(track).get(address)
        return track.start + last_up_to(self._db.meta, behind.end)[len(behind.prefix) :] if behind else track.start

    def entry(self, address: str, key: bytes) -> Entry | None:
        """How the record for `address` under a due key is held back, None where it is not."""
        behind = self.of(self._lanes.of(key)).get(address)
        raw = self._db.meta.get(behind.place(key)) if behind else None
        return _decode(raw) if raw else None

    def add(self, change: Change, track: Track, address: str, key: bytes, entry: Entry) -> None:
        """Hold a record back; one that is held back already gets the new attempts and error."""
        if self.entry(address, key) is None:
            change.held[track, address] += 1
        change.meta[keys.held_prefix(track.number, address) + key[2:]] = _encode(entry)
        change.then.append(lambda: self.back(track, address, key))

    def remove(self, change: Change, track: Track, address: str, key: bytes) -> None:
        """Hold a record back no longer, if it is held back."""
        if self.entry(address, key) is not None:
            change.meta[self.of(track)[address].place(key)] = None
            change.held[track, address] -= 1

    def back(self, track: Track, address: str, key: bytes) -> None:
        """A held-back record may be handed out, for the first time or again."""
        behind = self.of(track)[address]
        place = behind.place(key)
        behind.position = min(behind.position, place)
        behind.first = min(behind.first, place)

    def stage(self, change: Change) -> None:
        """Write how many each address holds back."""
        for (track, address), difference in change.held.items():
            behind = self.of(track).get(address)
            count = (behind.count if behind else 0) + difference
            change.meta[keys.held_count_key(track.number, address)] = keys.pack64(count) if count else None
            change.totals["held"] += difference

    def keep(self, change: Change) -> None:
        """The change is written: know how many each address holds back."""
        for (track, address), difference in change.held.items():
            addresses = self._behind.setdefault(track, {})
            behind = addresses.get(address)
            if behind is None:
                prefix = keys.held_prefix(track.number, address)
                behind = addresses[address] = HeldAddress(prefix, 0, keys.after(prefix))
            behind.count += difference
            if not behind.count:
                del addresses[address]

    def waiting(self, track: Track, address: str) -> Iterator[tuple[bytes, int, str]]:
        """Due key, attempts and error of what waits behind an address, in order, from the position on."""
        behind = self.of(track).get(address)
        if behind is not None:
            for place, value in scan(self._db.meta, behind.position, behind.end):
                yield track.start + place[len(behind.prefix) :], *_decode(value)

    def handed_out(self, track: Track, address: str, key: bytes) -> HeldAddress:
        """Everything behind an address up to this due key is in flight; returns the entry that counts this record."""
        behind = self.of(track)[address]
        behind.position = behind.place(key) + b"\0"
        behind.out += 1
        return behind

    def firsts(self, lane: Lane) -> dict[str, Entry]:
        """The addresses of a lane that hold any back, with the attempts and the error of the first record of each."""
        found = {}
        for addresses in self.holding(lane):
            for address, behind in addresses.items():
                behind.first, value = next(scan(self._db.meta, behind.first, behind.end))
                found[address] = _decode(value)
        return found
