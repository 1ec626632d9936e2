"""Delivery: hands out what is due, and records what became of it."""

from __future__ import annotations

from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..durations import HOUR_MS
from ..store import Due, Held, Record, Settled
from . import keys
from .change import Change, ledger_row
from .database import between, scan
from .lanes import NEVER
from .state import State, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from ..by_target import ByTarget
    from ..targets import Target
    from .held_target import HeldTarget
    from .lanes import Lane, Track

    Aside = tuple[bytes, Record, Target]
    """A due key, what is under it, and where that is to be held back."""

_READ_AT_ONCE = 64
_SHARE = 10
"""Records that a track hands out at least when its turn comes, if so many are due: the first one costs five times the others."""
_BEFORE_GIVING_WAY = 10
"""Records that are handed out at least before others have their turn: for fewer it is not worth finding them."""
_ASIDE_AT_ONCE = 100
"""Records that one `due` sets aside at most: each costs several times what handing out costs, and all lanes wait meanwhile.

And at most half as many as it may hand out: else, in a burst, a destination that catches up would have ever more held back behind it.
"""
_PASSED_AT_ONCE = 1_000
"""Held-back records that one search for the next due record passes at most: all lanes wait meanwhile."""
_CURSOR_EVERY = 1_000
"""A restart walks over about so many deleted keys, and reads so many held-back records, at most."""


class Room:
    """What one call may still hand out, in records and bytes, and how many it may set aside."""

    __slots__ = ("aside", "bytes", "records")

    def __init__(self, records: int, size: int, aside: int) -> None:
        self.records = records
        self.bytes = size
        self.aside = aside

    def left(self) -> bool:
        """Whether there is any."""
        return self.records > 0 and self.bytes > 0 and self.aside > 0


class Delivery:
    """Hands records out and settles them."""

    def __init__(self, state: State) -> None:
        self._state = state

    def due(self, lane: Lane, now: int, limit: int, max_bytes: int) -> tuple[list[Due], bool]:
        """See `Store.due`. True where it stopped because another thread waits for the lock: ask again.

        The tracks take turns, and share what may be handed out: a burst on one keeps no other waiting.
        """
        found: list[Due] = []
        room = Room(limit, max_bytes, min(_ASIDE_AT_ONCE, (limit + 1) // 2))
        ready = lane.ready(now)
        while ready and room.left():
            share = max(_SHARE, room.records // len(ready))
            for track in ready:
                before = len(found)
                aside = self._claim(track, now, share, room, found)
                if aside:
                    room.aside -= len(aside)
                    self._set_aside(track, aside, now, found)
                if aside or len(found) > before:
                    lane.last = track.number
                if not room.left():
                    break
                if self._gives_way(found):
                    return found, True
            ready = [track for track in ready if track.at <= now]
        return found, False

    def _gives_way(self, found: list[Due]) -> bool:
        return self._state.memory_lock.wanted and len(found) >= _BEFORE_GIVING_WAY

    def _claim(self, track: Track, now: int, share: int, room: Room, found: list[Due]) -> list[Aside]:
        """Walk on from the track's position and hand out its share; returns what is to be set aside: doomed, or for a target that holds others back.

        Ends early where another thread waits for the lock.
        """
        state, lock, claimed, named = self._state, self._state.memory_lock, self._state.lanes.claimed, self._state.lanes.named
        behind, doomed = state.held.of(track), state.doomed
        until = len(found) + min(share, room.records)
        aside: list[Aside] = []
        at, end, bound = track.end, track.end, keys.due_key(track.base | min(now + 1, keys.INSTANT_LIMIT - 1), 0)
        for first, last in track.unread():
            records = state.db.due.iter(between(first, last))
            records.seek(first)
            while records.valid():
                at = records.key()
                if (
                    at >= bound
                    or len(found) >= until
                    or room.bytes <= 0
                    or len(aside) >= room.aside
                    or (lock.wanted and self._gives_way(found))
                ):
                    break
                if at not in claimed:
                    raw = records.value()
                    record, has_entry = state.decoded(at, raw)
                    target = _behind(behind, record) if behind else None
                    if target is not None or (doomed and at in doomed):
                        aside.append((at, record, target or record.address))
                    else:
                        claimed[at] = record
                        if has_entry:
                            named.add(at)
                        found.append(Due(at, record))
                        room.records -= 1
                        room.bytes -= len(raw)
                records.next()
            else:
                records.status()
                at = end
                continue
            break
        track.stand(at, exact=at < end and not behind and at not in claimed)
        return aside

    def _set_aside(self, track: Track, aside: list[Aside], now: int, found: Sequence[Due] = ()) -> None:
        """Hold records back that the track's position has passed. Nobody may be reading: on a full disk the store could not be opened again.

        If it cannot be written, the position goes back: a cursor that moved on behind them would lose them. So does what was `found` and now reaches nobody.
        """
        try:
            self._hold_aside(aside, now)
        except BaseException:
            for key, _, _ in aside:
                track.back(key)
            self.put_back(due.key for due in found)
            raise

    def _hold_aside(self, aside: list[Aside], now: int) -> None:
        held = self._state.held
        change = self._state.change()
        for key, record, target in aside:
            if key in self._state.doomed:
                self._state.bury(change, key, record, now)
            elif held.find(key, record) is None:
                held.add(change, key, record, target, (0, ""))
        self._advance(change, len(aside))
        self._state.commit(change)

    def overtaken(self, track: Track, target: Target) -> list[Aside]:
        """What is due for a target before records that are held back there: it was in flight when they came, and is due again.

        Nearly always none, which costs one look-up. Of a very long stretch only the beginning is looked at.
        """
        state = self._state
        last = state.held.last(track, target)
        stretches = ((first, min(end, last)) for first, end in track.unread() if first < last)
        records = chain.from_iterable(scan(state.db.due, *some) for some in stretches)
        due = ((key, state.decoded(key, raw)[0]) for key, raw in islice(records, _PASSED_AT_ONCE) if key not in state.lanes.claimed)
        targets = state.held.of(track)
        return [
            (key, record, target)
            for key, record in due
            if any(its == target for its, _ in targets.of(record)) and state.held.find(key, record) is None
        ]

    def line_up(self, track: Track, target: Target, now: int) -> None:
        """Hold back what is `overtaken`, too, so that it goes out first. Asked again: some of it may have ended since it was looked for without this lock."""
        self._set_aside(track, self.overtaken(track, target), now)
        track.exact = False  # what lay right at the position may be among it

    def due_held(self, track: Track, target: Target, now: int, limit: int, max_bytes: int) -> list[Due]:
        """Hand out what is held back at a target, in order. A record that was doomed before a restart ends here."""
        state, lanes = self._state, self._state.lanes
        found: list[Due] = []
        with_entry: set[bytes] = set()
        doomed: list[Aside] = []
        waiting = (one for one in state.held.waiting(track, target) if one[0] not in lanes.claimed)
        while max_bytes > 0 and (some := list(islice(waiting, min(_READ_AT_ONCE, limit - len(found))))):
            for (key, attempts, error), raw in zip(some, state.db.get_many(state.db.due, [key for key, _, _ in some]), strict=True):
                if max_bytes <= 0 or raw is None:
                    break
                record, named = state.decoded(key, raw)
                if key in state.doomed:
                    doomed.append((key, record, target))
                    continue
                found.append(Due(key, record, attempts, error))
                if named:
                    with_entry.add(key)
                max_bytes -= len(raw)
        waiting.close()
        if doomed:
            self._set_aside(track, doomed, now)
        for due in found:  # not before: what could not be written would leave them in flight
            lanes.claim(due.key, due.record, named=due.key in with_entry)
            lanes.from_held[due.key] = state.held.handed_out(track, target, due.key)
        return found

    def next_due(self, lane: Lane) -> int | None:
        """See `Store.next_due`; reads the disk only if the answer is not known. Where very many held-back records lie first, the time of one of them."""
        while lane.tracks:
            track = min(lane.tracks, key=_instant)
            if track.at == NEVER:
                break
            if track.exact or not self._peek(track):
                return track.at
        return None

    def _peek(self, track: Track) -> bool:
        """Go on to the first record that is neither in flight nor held back. False if it was not reached in one search: ask again."""
        state, behind, passed = self._state, self._state.held.of(track), 0
        for key, raw in chain.from_iterable(scan(state.db.due, *some, values=bool(behind)) for some in track.unread()):
            if key in state.lanes.claimed:
                continue
            if passed == _PASSED_AT_ONCE:
                track.stand(key, exact=False)
                return False
            if behind and state.held.find(key, state.decoded(key, raw)[0]) is not None:
                passed += 1
                continue
            track.stand(key, exact=True)
            return True
        track.stand(track.end, exact=False)
        return True

    def settle(self, outcomes: Sequence[Settled], now: int) -> None:
        """See `Store.settle`. What is not in flight is settled too if it still waits, and passed over if it is gone."""
        lanes = self._state.lanes
        change = self._state.change()
        settled: dict[bytes, Record] = {}
        strays: set[bytes] = set()
        try:
            self._settle_all(change, outcomes, settled, strays, now)
            self._advance(change, len(settled))
            if settled:
                self._state.commit(change)
        except BaseException:
            lanes.claimed.update((key, record) for key, record in settled.items() if key not in strays)
            raise

    def _settle_all(self, change: Change, outcomes: Sequence[Settled], settled: dict[bytes, Record], strays: set[bytes], now: int) -> None:
        """The common outcomes are settled within this loop, which calls only what it must; the others one by one."""
        state, claimed, named, from_held = self._state, self._state.lanes.claimed, self._state.lanes.named, self._state.lanes.from_held
        due, rows, totals, by_address, by_hour = change.due, change.rows, change.totals, change.by_address, change.by_hour
        special = bool(named or from_held or state.doomed)
        for outcome in outcomes:
            key, event, at = outcome.key, outcome.event, outcome.at
            record = claimed.pop(key, None)
            if record is None:
                self._settle_stray(change, outcome, settled, strays, now)
                continue
            settled[key] = record
            if (
                outcome.next is not None
                or outcome.forward is not None
                or event == "dead_lettered"
                or record.is_carrier
                or (special and (key in named or key in from_held or key in state.doomed))
            ):
                self._settle_one(change, outcome, record, named=key in named, now=now)
                continue
            due[key] = None
            instant = record.schedule.due
            lateness = at - instant if event == "delivered" else None
            rows.append(ledger_row(event, at, record, record.id, lateness, outcome.attempts, outcome.reason))
            totals[event] += 1
            totals["pending"] -= 1
            by_address[record.lane, record.address] -= 1
            by_hour[instant // HOUR_MS] -= 1

    def _settle_stray(self, change: Change, outcome: Settled, settled: dict[bytes, Record], strays: set[bytes], now: int) -> None:
        found = self._state.read(outcome.key) if outcome.key not in settled else None
        if found is not None:
            record, named = found
            settled[outcome.key] = record
            strays.add(outcome.key)
            self._settle_one(change, outcome, record, named=named, now=now)

    def _settle_one(self, change: Change, outcome: Settled, record: Record, *, named: bool, now: int) -> None:
        state, key, at = self._state, outcome.key, outcome.at
        change.then.append(lambda: state.lanes.unclaim(key))
        if key in state.doomed and outcome.event != "delivered":
            state.bury(change, key, record, now)
            return
        state.remove(change, key, record)
        if not record.is_carrier:
            lateness = at - record.schedule.due if outcome.event == "delivered" else None
            change.event(outcome.event, at, record, record.id, lateness, outcome.attempts, outcome.reason)
        if outcome.forward is not None:
            state.carry(change, replace(outcome.forward, id=outcome.forward.id or record.id), now)
        elif outcome.event == "dead_lettered":
            state.shelf.add(change, record, outcome.reason, outcome.detail, at, outcome.attempts)
        known = state.ids.get(change, record.id) if named else None
        ours = known is None or known.key in (None, key)  # if another record waits under this id, it keeps the id
        if key in state.doomed:
            if known is not None and known.key == key:
                state.ids.ended(change, record.id, outcome.event, at)
        elif outcome.next is not None:
            state.schedule(change, outcome.next, encode(outcome.next), now, index=ours)
        elif named and ours:
            state.ids.ended(change, record.id, outcome.event, at)

    def _advance(self, change: Change, passed: int, leaving: AbstractSet[bytes] = frozenset()) -> None:
        """Count records that no longer wait, or that are held back now, and move the cursors once there are enough. `leaving`: those of them in flight."""
        lanes = self._state.lanes
        lanes.passed += passed
        if lanes.passed >= _CURSOR_EVERY:
            lanes.passed = 0
            change.cursors.update(lanes.floors(leaving))

    def hold(self, failed: Iterable[Held], now: int) -> None:
        """See `Store.hold`. A doomed record ends here."""
        state = self._state
        change = state.change()
        leaving: set[bytes] = set()
        for one in failed:
            record = state.lanes.claimed.get(one.key)
            if record is None:
                continue
            if one.key in state.doomed:
                state.bury(change, one.key, record, now)
            else:
                state.held.add(change, one.key, record, one.partition or record.address, (one.attempts, one.error))
            leaving.add(one.key)
            change.then.append(partial(state.lanes.unclaim, one.key))
        self._advance(change, len(leaving), leaving)
        state.commit(change)

    def put_back(self, given_back: Iterable[bytes]) -> None:
        """See `Store.put_back`. A doomed record ends here, at the latest time that the store was told."""
        state, lanes = self._state, self._state.lanes
        change = state.change()
        for key in given_back:
            record = lanes.claimed.get(key)
            if record is None:
                continue
            if key in state.doomed:
                state.bury(change, key, record, state.ids.now)
                change.then.append(partial(lanes.unclaim, key))  # not before: nobody would look for one that could not be ended
                continue
            if (behind := lanes.from_held.get(key)) is not None:
                behind.back(key)
            else:
                lanes.of(key).back(key)
            lanes.unclaim(key)
        if change.due:
            state.commit(change)


def _behind(targets: ByTarget[HeldTarget], record: Record) -> Target | None:
    """Behind what a record that falls due has to wait, if anything waits there still."""
    return next((target for target, behind in targets.of(record) if behind.waits), None)


def _instant(track: Track) -> int:
    return track.at
