"""Lanes and their tracks: each address's range of due keys, and how far into it records were handed out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from . import keys
from .database import Database, scan_prefix
from .gaps import Gaps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from ..store import Record
    from .database import Puts
    from .gaps import Stretch
    from .held_target import HeldTarget

_TRACKS = 256
"""So many addresses of a lane have a track to themselves; those that come later share these."""

NEVER: Final = keys.INSTANT_LIMIT
"""Later than any instant."""


class Track:
    """The range of due keys of one address, or of a few where a lane has more addresses than tracks.

    position   no record that could be handed out lies before it; `exact`: one lies right there; at `end` there is none at all
    at         the instant of `position`; `NEVER` at the end
    cursor     like `position`, but as last written to disk, and no record in flight lies before it either: reading begins there after a restart
    gaps       where, ahead of the position, nothing can be handed out; none are known after a restart
    went_on    the position has passed something since space was last given back; whoever gives it back resets this, and `gone_to`
    gone_to    the last key after the position whose record was cancelled, replaced or moved away
    """

    __slots__ = ("at", "base", "cursor", "end", "exact", "gaps", "gone_to", "lane", "number", "position", "start", "went_on")

    def __init__(self, lane: Lane, number: int, cursor: bytes | None) -> None:
        self.lane = lane
        self.number = number
        self.base = keys.track_base(number)
        self.start = keys.track_prefix(number)
        self.end = keys.track_prefix(number + 1)
        self.position = self.start
        self.gaps = Gaps()
        self.went_on = False
        self.gone_to = b""
        self.cursor = cursor or self.start
        self.stand(self.cursor, exact=False)

    def stand(self, key: bytes, *, exact: bool) -> None:
        """Go on from `key`."""
        if key > self.position:
            self.went_on = True
            self.gaps.went_on(key)
        self.position, self.exact = key, exact
        self.at = keys.instant_of(key) if key < self.end else NEVER

    def arrived(self, arrived: list[bytes]) -> None:
        """Records were put at these keys, which are in order."""
        if arrived[0] < self.position:
            self._go_back(arrived[0])
        self.gaps.cut(arrived)

    def _go_back(self, key: bytes) -> None:
        self.gaps.went_back(key, self.position)
        self.stand(key, exact=True)

    def gone(self, key: bytes) -> None:
        """The record at `key` is no longer one to hand out."""
        if key == self.position:
            self.exact = False
        if key >= self.position:
            self.gone_to = max(self.gone_to, key)

    def back(self, key: bytes) -> None:
        """The record at `key` may be handed out again."""
        if key < self.position:
            self._go_back(key)
        self.exact |= key == self.position
        self.gaps.cut((key,))

    def unread(self) -> Iterator[Stretch]:
        """Where from the position on records may lie that could be handed out, in order."""
        return self.gaps.around(self.position, self.end)


class Lane:
    """One destination broker: its tracks in the order in which they were made, and which one handed out last."""

    __slots__ = ("last", "name", "number", "tracks")

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.tracks: list[Track] = []
        self.last = 0

    def ready(self, now: int) -> list[Track]:
        """The tracks in which something may be due, those first whose turn it is."""
        found = [track for track in self.tracks if track.at <= now]
        if len(found) > 1:
            found.sort(key=self._had_its_turn)
        return found

    def _had_its_turn(self, track: Track) -> bool:
        return track.number <= self.last


class Lanes:
    """All lanes by name, their tracks by number and by address, and the records in flight.

    claimed     the records in flight: as many as the delivery window holds, never the backlog
    named       those of them that have an entry in the index of ids
    from_held   those of them that are held back, each with what counts it
    passed      how many records no longer wait, or are held back, since the cursors were last moved
    unwritten   the numbers of new lanes and tracks, which are part of the next write
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self.claimed: dict[bytes, Record] = {}
        self.named: set[bytes] = set()
        self.from_held: dict[bytes, HeldTarget] = {}
        self.passed = 0
        self.unwritten: Puts = {}
        self.by_name: dict[str, Lane] = {}
        self.tracks: dict[int, Track] = {}
        self.by_address: dict[tuple[str, str], Track] = {}
        for key, value in scan_prefix(db.meta, keys.LANES):
            self._add_lane(key[len(keys.LANES) :].decode(), int.from_bytes(value, "big"))
        names = {lane.number: lane.name for lane in self.by_name.values()}
        found = [(int.from_bytes(value, "big"), key[len(keys.TRACKS) :]) for key, value in scan_prefix(db.meta, keys.TRACKS)]
        for number, owner in sorted(found):
            self._add_track(names[keys.number_of(owner)], owner[2:].decode(), number)

    def _add_lane(self, name: str, number: int) -> Lane:
        lane = self.by_name[name] = Lane(name, number)
        return lane

    def _add_track(self, name: str, address: str, number: int) -> Track:
        lane = self.by_name[name]
        track = Track(lane, number, self._db.meta.get(keys.cursor_key(number)))
        lane.tracks.append(track)
        self.tracks[number] = self.by_address[name, address] = track
        return track

    def lane(self, name: str) -> Lane:
        """The lane of this name; a new one is numbered."""
        lane = self.by_name.get(name)
        if lane is None:
            number = len(self.by_name) + 1
            self.unwritten[keys.lane_key(name)] = keys.pack16(number)
            lane = self._add_lane(name, number)
        return lane

    def find(self, name: str, address: str) -> Track | None:
        """The track of an address; None where nothing was ever put for it."""
        track = self.by_address.get((name, address))
        if track is not None:
            return track
        lane = self.by_name.get(name)
        return _shared(lane, address) if lane is not None and len(lane.tracks) >= _TRACKS else None

    def track(self, name: str, address: str) -> Track:
        """The same, but one that is needed is made."""
        track = self.find(name, address)
        if track is None:
            owner, number = self.lane(name), len(self.tracks) + 1
            self.unwritten[keys.track_key(owner.number, address)] = keys.pack16(number)
            track = self._add_track(name, address, number)
        return track

    def of(self, key: bytes) -> Track:
        """The track of a due key."""
        return self.tracks[
            key[0] << 8 | key[1]
        ]  # `keys.number_of` in place: `floors` asks for each record in flight, and a call takes longer than all of this

    def claim(self, key: bytes, record: Record, named: bool) -> None:
        """Mark a record as in flight."""
        self.claimed[key] = record
        if named:
            self.named.add(key)

    def unclaim(self, key: bytes) -> None:
        """A record is no longer in flight."""
        self.claimed.pop(key, None)
        self.named.discard(key)
        behind = self.from_held.pop(key, None)
        if behind is not None:
            behind.out -= 1

    def floors(self, leaving: AbstractSet[bytes] = frozenset()) -> dict[Track, bytes]:
        """For each track the first key at which anything waits or is in flight, held-back records aside. Those `leaving` count as in flight no more."""
        found = {track: track.position for track in self.tracks.values()}
        for key in self.claimed.keys() - self.from_held.keys() - leaving:
            track = self.of(key)
            found[track] = min(found[track], key)
        return found


def _shared(lane: Lane, address: str) -> Track:
    """The same track after each restart, so that an address's records stay in order."""
    return lane.tracks[crc32(address.encode()) % _TRACKS]
