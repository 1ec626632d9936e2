"""Whatever is done to a time index, in any order and with restarts anywhere, it does as the model does."""

from __future__ import annotations

import shutil
import tempfile
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace
from unit.time_index.store_model import PARTITIONS, Change, Item, Model, partition_of

from delaybridge.core.ledger import CLOSING
from delaybridge.core.message import Message
from delaybridge.core.schedule import Recurrence, Schedule
from delaybridge.core.store import Due, Held, Pending, Put, Query, Record, Refuse, Settled, SourceProgress, Withdraw
from delaybridge.core.targets import Partition, Target
from delaybridge.core.time_index import TimeIndex, counters, delivery, gaps, ids
from delaybridge.core.time_index import lanes as index_lanes
from delaybridge.core.time_index.database import scan

if TYPE_CHECKING:
    from delaybridge.core.ledger import Row

T0 = 1_763_700_000_000
HOUR = 3_600_000
LANES, ADDRESSES, CHOSEN = ("rabbit", "kafka"), ("x", "y"), ("a", "b")
MEMORY = HOUR
_MEMORY_DISK = Path("/dev/shm")  # thousands of stores are opened here, and none of these tests is about the disk

TARGETS: tuple[Target, ...] = (
    *ADDRESSES,
    *(Partition(address, number, PARTITIONS) for address in ADDRESSES for number in range(PARTITIONS)),
)

steps = st.sampled_from([0, 0, 0, 1, 5, 1_000, HOUR // 2, 3 * HOUR])
lanes, addresses, chosen_ids = st.sampled_from(LANES), st.sampled_from(ADDRESSES), st.sampled_from(CHOSEN)
flags, limits = st.booleans(), st.sampled_from([1, 2, 100])
picks = st.lists(st.integers(0, 20), min_size=1, max_size=6)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """`schedule.due` is an offset here, made absolute when it is put."""
    every = draw(st.sampled_from([0, 0, 1_000]))
    return Record(
        message=Message(draw(st.binary(max_size=4) | st.just(b"x" * 600))),
        schedule=Schedule(due=draw(steps) - 5, recurrence=Recurrence(start=0, period=every, repeat=3) if every else None),
        lane=draw(lanes),
        address=draw(addresses),
        id=draw(st.sampled_from(["", *CHOSEN])),
        kind="period" if every else "once",
    )


carriers = st.builds(lambda record: replace(record, id="", kind="dead_letter", address="dead"), records())
changes = st.lists(
    st.builds(Put, records())
    | st.builds(Withdraw, chosen_ids)
    | st.builds(Refuse, records(), st.just("bad"), st.just(""), st.none() | carriers),
    min_size=1,
    max_size=5,
)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a real store reaches after thousands of records are reached after a few."""
    monkeypatch.setattr(delivery, "_CURSOR_EVERY", 2)
    monkeypatch.setattr(delivery, "_READ_AT_ONCE", 2)
    monkeypatch.setattr(counters, "_REMEMBERED", 2)
    monkeypatch.setattr(ids, "_STEP", 1)
    monkeypatch.setattr(gaps, "_WIDE_MS", 1)
    monkeypatch.setattr(gaps, "_KEPT", 3)


class TimeIndexMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=_MEMORY_DISK if _MEMORY_DISK.is_dir() else None))
        self.now = T0
        self.model = Model(MEMORY)
        self.flying: dict[bytes, Item] = {}
        self.rows: list[Row] = []
        self.forgotten = 0
        self.patched = pytest.MonkeyPatch()
        self.open()

    @initialize(tracks=st.sampled_from([256, 2, 1]))
    def addresses_share_tracks(self, tracks: int) -> None:
        self.patched.setattr(index_lanes, "_TRACKS", tracks)
        self.model.tracks = tracks

    def open(self) -> None:
        self.store = TimeIndex(
            self.folder, bridge="test", memory_ms=MEMORY, recent_tokens=5, min_free_disk=0, reserve_bytes=0, partition_of=partition_of
        )
        state = self.store._state
        commit = state.commit

        def checked(*change: Any, **how: Any) -> None:
            assert state.write_lock._held, "else it may stand still in the middle of another thread's sync, and all threads with it"
            assert state.memory_lock._held
            commit(*change, **how)

        self.patched.setattr(state, "commit", checked)

    def teardown(self) -> None:
        self.patched.undo()
        self.store.close()
        shutil.rmtree(self.folder)

    def tell(self, stale: bool = False) -> int:
        """The time that this call is told; threads may be a little behind each other."""
        now = self.now - 3 * stale
        self.model.told(now)
        return now

    def absolute(self, record: Record, now: int) -> Record:
        return replace(record, schedule=replace(record.schedule, due=now + record.schedule.due))

    def new_rows(self) -> list[Row]:
        new = [row for row in self.store.unfiled.rows(10_000) if row.sequence > len(self.rows)]
        self.rows += new
        return new

    @rule(step=steps)
    def time_passes(self, step: int) -> None:
        self.now += step

    @precondition(lambda self: not self.model.forgot)  # what is written of it may be known again, as long as it is not deleted
    @rule(step=st.sampled_from([5, 1_000, HOUR // 2]))
    def the_clock_is_set_back(self, step: int) -> None:
        self.now -= step

    @rule(wanted=changes, stale=flags)
    def put(self, wanted: list[Change], stale: bool) -> None:
        now = self.tell(stale)
        given: list[Change] = []
        for one in wanted:
            if isinstance(one, Put):
                given.append(Put(self.absolute(one.record, now)))
            elif isinstance(one, Refuse):
                forward = self.absolute(one.forward, now) if one.forward else None
                given.append(replace(one, record=self.absolute(one.record, now), forward=forward))
            else:
                given.append(one)
        answers = self.store.put(given, now, SourceProgress("in", [b"token"] * len(given)))
        made = [row.id for row in self.new_rows() if row.event == "scheduled" and row.id not in CHOSEN]
        self.model.made.update(made)
        assert answers == self.model.put(given, made, now)

    def taken(self, dues: list[Due], items: list[Item]) -> None:
        assert [(due.record, due.attempts, due.error) for due in dues] == [(item.record, *(item.held or (0, ""))) for item in items]
        self.flying.update(zip([due.key for due in dues], items, strict=True))

    @rule(limit=limits, stale=flags)
    def due(self, limit: int, stale: bool) -> None:
        now = self.tell(stale)
        for lane in LANES:
            exact = limit < len(self.model.items)
            if exact:
                self.read_on(lane)
            self.taken(self.store.due(lane, now, limit, 1 << 30), self.model.due(lane, now, limit))
            if not exact:
                self.learn_the_turn(lane)

    def read_on(self, lane: str) -> None:
        """Let each track stand where something waits: what it comes by before that counts as set aside, and how much that is the model does not know.

        Nor does it know of gaps: it counts what is held back in one as set aside, too.
        """
        place = self.store._state.lanes.by_name.get(lane)
        for track in place.tracks if place else ():
            if self.store._state.held.of(track):
                track.gaps = gaps.Gaps()
            if not track.exact:
                self.store._delivery._peek(track)

    def learn_the_turn(self, lane: str) -> None:
        """Whose it was, where that may have been one who set aside again what is held back already."""
        place = self.store._state.lanes.by_name.get(lane)
        if place is not None and place.last:
            self.model.last[lane] = next(
                owner for (name, owner), track in self.store._state.lanes.by_address.items() if (name, track.number) == (lane, place.last)
            )

    @rule(limit=limits)
    def due_held(self, limit: int) -> None:
        now = self.tell()
        for lane, target in product(LANES, TARGETS):
            self.taken(self.store.due_held(lane, target, now, limit, 1 << 30), self.model.due_held(lane, target, now, limit))

    def picked(self, places: list[int]) -> list[tuple[bytes, Item]]:
        flying = list(self.flying.items())
        some = dict([flying[place % len(flying)] for place in places])
        for key in some:
            del self.flying[key]
        return list(some.items())

    @precondition(lambda self: self.flying)
    @rule(places=picks, event=st.sampled_from(CLOSING), onward=flags, forward=st.none() | carriers)
    def settle(self, places: list[int], event: str, onward: bool, forward: Record | None) -> None:
        now = self.tell()
        some = self.picked(places)
        outcomes = []
        for key, item in some:
            schedule = item.record.schedule
            following = replace(item.record, schedule=replace(schedule, due=schedule.due + 1_000, occurrence=schedule.occurrence + 1))
            going_on = onward and schedule.recurrence is not None and not item.carrier
            carrier = self.absolute(forward, now) if forward and event == "dead_lettered" else None
            outcomes.append(Settled(key, event, now, next=following if going_on else None, forward=carrier))  # type: ignore[arg-type]  # one of CLOSING
        self.store.settle(outcomes, now)
        for (_, item), outcome in zip(some, outcomes, strict=True):
            self.model.settle(item, outcome, now)

    @precondition(lambda self: self.flying)
    @rule(places=picks, attempts=st.integers(1, 3), partition=flags)
    def hold(self, places: list[int], attempts: int, partition: bool) -> None:
        now = self.tell()
        some = self.picked(places)
        failed = [Held(key, attempts, "refused", item.targets[1] if partition else None) for key, item in some]
        self.store.hold(failed, now)
        for (_, item), held in zip(some, failed, strict=True):
            self.model.hold(item, held, now)

    @precondition(lambda self: self.flying)
    @rule(places=picks, late_confirm=flags)
    def put_back(self, places: list[int], late_confirm: bool) -> None:
        some = self.picked(places)
        self.store.put_back([key for key, _ in some])
        for _, item in some:
            self.model.put_back(item)
        if late_confirm:
            now = self.tell()
            self.store.settle([Settled(key, "delivered", now) for key, _ in some], now)
            for _, item in some:
                if item in self.model.items:
                    self.model.settle(item, Settled(b"", "delivered", now), now)

    def some_id(self, place: int) -> str:
        ids = sorted({*CHOSEN, *self.model.made})
        return ids[place % len(ids)]

    @rule(place=st.integers(0, 50))
    def cancel(self, place: int) -> None:
        now, one = self.tell(), self.some_id(place)
        assert self.store.cancel(one, now) == self.model.cancel(one, now)

    @rule(place=st.integers(0, 50), step=steps)
    def reschedule(self, place: int, step: int) -> None:
        now, one = self.tell(), self.some_id(place)
        assert self.store.reschedule(one, now + step - 5, now) == self.model.reschedule(one, now + step - 5, now)

    @precondition(lambda self: self.model.shelf)
    @rule(place=st.integers(0, 10), drop=flags, elsewhere=st.sampled_from(["", *ADDRESSES]))
    def empty_the_shelf(self, place: int, drop: bool, elsewhere: str) -> None:
        now = self.tell()
        letters = self.store.dead_letters(100)
        assert [letter.record for letter in letters] == self.model.shelf
        place %= len(letters)
        if drop:
            assert self.store.drop_dead_letter(letters[place].number, now)
            self.model.shelf.pop(place)
            return
        assert self.store.retry_dead_letter(letters[place].number, now, elsewhere)
        (row,) = self.new_rows()
        made = row.id if row.id != letters[place].record.id else None
        assert (made is not None) == isinstance(self.model.known.get(letters[place].record.id), Item)
        self.model.made.update([made] if made else [])
        self.model.retry(place, made, now, elsewhere)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.open()
        self.model.restart()
        self.store.put([], self.tell())  # a store knows the time from what it is told
        self.flying.clear()

    @rule(rows=st.integers(0, 5))
    def write_the_ledger(self, rows: int) -> None:
        self.new_rows()
        self.forgotten = min(self.forgotten + rows, len(self.rows))
        if rows:
            self.store.unfiled.intend(self.forgotten, self.forgotten)
            assert self.store.unfiled.intent() == (self.forgotten, self.forgotten)
        self.store.unfiled.forget(self.forgotten)
        assert self.store.unfiled.intent() is None

    @rule()
    def give_space_back(self) -> None:
        self.store._state.gone_bytes = 1 << 40
        assert self.store.maintain(self.tell())

    @invariant()
    def counters_agree_and_add_up(self) -> None:
        counts = self.store.counts()
        assert counts == self.model.counts()
        assert self.store.carriers() == sum(item.carrier for item in self.model.items)
        assert counts.events["scheduled"] == sum(counts.events[event] for event in CLOSING) + (counts.pending or 0)

    @invariant()
    def the_ledger_tells_the_same(self) -> None:
        self.new_rows()
        assert [row.sequence for row in self.rows] == list(range(1, len(self.rows) + 1))
        assert [row.sequence for row in self.store.unfiled.rows(10_000)] == list(range(self.forgotten + 1, len(self.rows) + 1))
        assert all(sum(row.event == event for row in self.rows) == count for event, count in self.store.counts().events.items())

    @invariant()
    def the_next_due_time_agrees(self) -> None:
        for lane in LANES:
            assert self.store.next_due(lane) == next((item.instant for item in self.model.waiting(lane)), None)
        assert set(self.store.lanes()) == {lane for lane in LANES if self.model.waiting(lane) or self.model.held(lane)}
        first = min(self.model.items, key=lambda item: item.place, default=None)
        assert self.store.first_due() == (first.record.schedule.due if first else None)

    @invariant()
    def listings_agree(self) -> None:
        items = [item for item in sorted(self.model.items, key=lambda item: item.place) if not item.carrier]
        assert self.listed(Query()) == [item.pending() for item in items]
        only = Query(lane="rabbit", address="x", due_to=self.now)
        inside = [item.pending() for item in items if item.instant < self.now]
        for one in CHOSEN:
            assert self.listed(Query(id_prefix=one)) == [item.pending() for item in items if self.model.known.get(one) is item]
        assert self.listed(only) == [one for one in inside if (one.record.lane, one.record.address) == ("rabbit", "x")]

    def listed(self, query: Query) -> list[Pending]:
        page = self.store.list(query, 3)
        found = list(page.items)
        while page.cursor:
            page = self.store.list(query, 3, page.cursor)
            found += page.items
        return found

    @invariant()
    def every_id_gets_the_same_answer(self) -> None:
        for one in [*CHOSEN, *sorted(self.model.made)[-3:]]:
            assert self.store.find(one) == self.model.find(one)

    @invariant()
    def nothing_waits_where_handing_out_does_not_look(self) -> None:
        state = self.store._state
        for track in state.lanes.tracks.values():
            looked = list(track.unread())
            for key, raw in scan(state.db.due, track.start, track.end):
                waits = key not in state.lanes.claimed and state.held.find(key, state.decoded(key, raw)[0]) is None
                assert not waits or any(first <= key < end for first, end in looked)

    @invariant()
    def held_addresses_agree(self) -> None:
        for lane in LANES:
            assert set(self.store.held(lane)) == {item.target for item in self.model.held(lane)}


TestTimeIndex = TimeIndexMachine.TestCase
TestTimeIndex.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
