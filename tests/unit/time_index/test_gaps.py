"""Where a track knows that nothing waits: whatever comes and goes, it reads over everything that waits, and over what is gone only once."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaybridge.core.time_index import gaps, keys
from delaybridge.core.time_index.gaps import Gaps
from delaybridge.core.time_index.lanes import Lane, Track

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

START, END = keys.track_prefix(1), keys.track_prefix(2)


def key(instant: int, arrival: int = 0) -> bytes:
    return keys.due_key(keys.track_base(1) | instant, arrival)


def behind(instant: int) -> bytes:
    return key(instant) + b"\0"


def test_what_lies_between_a_record_that_came_in_early_and_the_place_where_the_track_stood_is_left_out() -> None:
    known = Gaps()
    known.went_back(key(1_000), key(9_000))

    assert list(known.around(key(1_000), END)) == [(key(1_000), behind(1_000)), (key(9_000), END)]
    assert list(known.around(key(5_000), END)) == [(key(9_000), END)]
    assert list(known.around(key(9_500), END)) == [(key(9_500), END)]


def test_where_all_is_known_to_hold_nothing_nothing_is_left_to_be_read() -> None:
    known = Gaps()
    known.went_back(key(1_000), END)

    assert list(known.around(behind(1_000), END)) == []


def test_what_comes_to_wait_in_a_gap_is_read_and_what_is_left_of_the_gap_is_not() -> None:
    known = Gaps()
    known.went_back(key(1_000), key(9_000))
    known.cut([key(500), *(key(4_000 + number) for number in range(20)), key(7_000), key(9_000), key(9_500)])

    assert list(known.around(key(1_000), END)) == [
        (key(1_000), behind(1_000)),
        (key(4_000), behind(4_019)),
        (key(7_000), behind(7_000)),
        (key(9_000), END),
    ]


def test_records_of_the_same_millisecond_are_told_apart() -> None:
    known = Gaps()
    known.went_back(key(1_000, 7), key(9_000, 5))
    known.cut([key(9_000, 4)])

    assert list(known.around(key(1_000, 7), END)) == [(key(1_000, 7), key(1_000, 7) + b"\0"), (key(9_000, 4), END)]


def test_a_gap_behind_the_position_is_forgotten() -> None:
    known = Gaps()
    known.went_back(key(5_000), key(9_000))
    known.went_back(key(1_000), key(5_000))
    known.went_on(key(5_000))
    known.went_on(key(6_000))

    assert list(known.around(key(1_000), END)) == [(key(1_000), behind(5_000)), (key(9_000), END)]


def test_of_many_gaps_the_nearest_are_remembered() -> None:
    known = Gaps()
    for number in range(100, 0, -1):
        known.went_back(key(number * 1_000), key((number + 1) * 1_000))
    known.cut([key(1_500)])

    read = list(known.around(key(1_000), END))

    assert len(read) == gaps._KEPT + 1
    assert read[:3] == [(key(1_000), behind(1_000)), (key(1_500), behind(1_500)), (key(2_000), behind(2_000))]
    assert read[-1] == (key(gaps._KEPT * 1_000), END)


class Ground:
    """A track over plain sets: what waits, what is in flight, and the graves of what is gone, each with how often it was come by."""

    def __init__(self) -> None:
        self.track = Track(Lane("rabbit", 1), 1, None)
        self.waiting: set[bytes] = set()
        self.flying: set[bytes] = set()
        self.graves: dict[bytes, int] = {}
        self.arrivals = count()

    def arrive(self, instants: list[int], *, once: bool) -> None:
        """Those of one change. `once`: no two records ever have the same instant, for gaps within one are too narrow to be remembered."""
        numbers = [(instant * 1_000 + number if once else instant, number) for instant in instants for number in [next(self.arrivals)]]
        arrived = sorted({key(*number) for number in numbers} - self.graves.keys() - self.flying - self.waiting)
        if arrived:
            self.waiting.update(arrived)
            self.track.arrived(arrived)

    def walk(self) -> Iterator[bytes]:
        """What an iterator finds and comes by."""
        for first, end in self.track.unread():
            for one in sorted(self.waiting | self.graves.keys()):
                if not first <= one < end:
                    continue
                if one in self.graves:
                    self.graves[one] += 1
                else:
                    yield one

    def take(self, most: int) -> None:
        expected, found = sorted(self.waiting), list[bytes]()
        for one in self.walk():
            if len(found) == most:
                self.track.stand(one, exact=True)
                break
            found.append(one)
            self.waiting.remove(one)
            self.flying.add(one)
        else:
            self.track.stand(self.track.end, exact=False)
        assert found == expected[:most]

    def peek(self) -> None:
        found = next(self.walk(), self.track.end)
        assert found == min(self.waiting, default=self.track.end)
        self.track.stand(found, exact=found != self.track.end)

    def cancel(self, place: int) -> None:
        if self.waiting:
            gone = sorted(self.waiting)[place % len(self.waiting)]
            self.waiting.remove(gone)
            self.graves[gone] = 0
            self.track.gone(gone)

    def settle(self, place: int) -> None:
        if self.flying:
            gone = sorted(self.flying)[place % len(self.flying)]
            self.flying.remove(gone)
            self.graves[gone] = 0

    def give_back(self, place: int) -> None:
        if self.flying:
            back = sorted(self.flying)[place % len(self.flying)]
            self.flying.remove(back)
            self.waiting.add(back)
            self.track.back(back)


Step = tuple[str, list[int]]

_instants = st.lists(st.integers(0, 30), min_size=1, max_size=6)
_places = st.lists(st.integers(0, 50), min_size=1, max_size=4)
_steps = st.lists(
    st.tuples(st.just("arrive"), _instants)
    | st.tuples(st.sampled_from(["cancel", "settle", "give_back"]), _places)
    | st.tuples(st.sampled_from(["take", "peek"]), st.lists(st.integers(1, 5), min_size=1, max_size=1)),
    max_size=60,
)


def done(steps: list[Step], *, once: bool) -> Ground:
    ground = Ground()
    for verb, numbers in steps:
        one_by_one: dict[str, Callable[[int], None]] = {
            "cancel": ground.cancel,
            "settle": ground.settle,
            "give_back": ground.give_back,
            "take": ground.take,
            "peek": lambda _: ground.peek(),
        }
        if verb == "arrive":
            ground.arrive(numbers, once=once)
        else:
            for number in numbers:
                one_by_one[verb](number)
    return ground


@contextmanager
def remembered(most: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gaps, "_KEPT", most)
        patched.setattr(gaps, "_WIDE_MS", 1)
        yield


@settings(max_examples=500, deadline=None)
@given(steps=_steps, most=st.sampled_from([1, 2, 1_000]))
def test_whatever_comes_and_goes_nothing_that_waits_is_ever_left_out(steps: list[Step], most: int) -> None:
    with remembered(most):
        ground = done(steps, once=False)
        ground.take(1_000)

    assert not ground.waiting


@settings(max_examples=300, deadline=None)
@given(steps=_steps)
def test_what_is_gone_is_come_by_once_at_most_where_all_gaps_are_remembered(steps: list[Step]) -> None:
    with remembered(1_000):
        ground = done(steps, once=True)
        ground.take(1_000)

    assert max(ground.graves.values(), default=0) <= 1
