"""When giving space back is worth it, and of what: decided from numbers alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING
from unittest.mock import Mock, call

import pytest
from contract.stores import HOUR, T0

from delaybridge.core.time_index import keys
from delaybridge.core.time_index.lanes import Lane, Track
from delaybridge.core.time_index.space import Space, compact

if TYPE_CHECKING:
    from delaybridge.core.time_index.space import Range

MIB = 1 << 20
PACE = 10_000


class Numbers:
    """What a store knows of itself: `gone` bytes of `size`, `free` ones on the disk; `garbage` in the bodies of a family; where its tracks begin."""

    def __init__(self, tracks: int = 0, *, stands: int = 0) -> None:
        self.size, self.free, self.garbage = 0, 0, ""
        self.tracks = [Track(Lane("rabbit", 1), number, key(number, stands) if stands else None) for number in range(1, tracks + 1)]
        self.floors = {track: track.position for track in self.tracks}
        for track in self.tracks:
            track.went_on = False
        self.state = SimpleNamespace(
            gone_bytes=0,
            db=SimpleNamespace(
                due="due", meta="meta", size=lambda: self.size, collected=lambda family, _: 0.5 if family == self.garbage else 0.0
            ),
            disk=SimpleNamespace(open=True, free_bytes=lambda: self.free),
            lanes=SimpleNamespace(tracks=dict(enumerate(self.tracks)), floors=lambda: dict(self.floors)),
            outbox=SimpleNamespace(first=7),
            shelf=SimpleNamespace(drained=list),
        )
        self.space = Space(self.state)  # type: ignore[arg-type]  # all that it asks for

    def worth(self, now: int, gone: int = 0) -> bool:
        """Whether it is, once so many more bytes are gone."""
        self.state.gone_bytes += gone
        return self.space.worth(now)

    def due(self) -> list[Range]:
        return self.space.drained()[0]


def key(track: int, instant: int) -> bytes:
    return keys.due_key(keys.track_base(track) | instant, 0)


def test_it_is_worth_it_once_deletion_has_slowed_down_also_after_the_clock_was_set_back() -> None:
    for later in (T0 + 2 * PACE, T0 - 24 * HOUR):
        store = Numbers()
        assert not store.worth(T0)
        assert not store.worth(T0 + PACE, gone=2 * MIB)
        assert store.worth(later)


def test_traffic_that_ebbs_a_little_has_not_slowed_down() -> None:
    store = Numbers()
    assert [store.worth(T0 + number * PACE, gone=gone * MIB) for number, gone in enumerate((0, 8, 4, 3))] == [False] * 4


def test_what_has_gone_is_measured_by_what_the_store_holds() -> None:
    """A compaction reads the index of all that waits."""
    store = Numbers()
    store.size = 1 << 30
    assert not store.worth(T0, gone=100 * MIB)
    assert store.worth(T0, gone=28 * MIB)

    slower = Numbers()
    slower.size = 1 << 30
    assert not slower.worth(T0)
    assert not slower.worth(T0 + PACE, gone=31 * MIB)
    assert not slower.worth(T0 + 2 * PACE)
    assert slower.worth(T0 + 2 * PACE, gone=1 * MIB)


def test_how_fast_it_went_before_space_was_given_back_does_not_count_afterwards() -> None:
    store = Numbers()
    assert not store.worth(T0)
    assert store.worth(T0 + PACE, gone=100 * MIB)
    store.space.drained()

    assert [store.worth(T0 + number * PACE, gone=2 * MIB) for number in (2, 3, 4)] == [False] * 3


def test_what_had_gone_before_a_start_comes_back_when_nothing_goes_or_intake_waits_for_it() -> None:
    def after_a_start(gone: int, *, room: bool) -> bool:
        store = Numbers(1, stands=T0)
        store.state.disk.open = room
        return store.worth(T0 + PACE, gone)

    assert [after_a_start(0, room=True), after_a_start(1, room=True), after_a_start(1, room=False)] == [True, False, True]


@pytest.mark.parametrize("family", ["due", "meta"])
def test_garbage_among_the_bodies_of_what_waits_and_of_the_shelf_is_worth_it(family: str) -> None:
    store = Numbers()
    assert not store.worth(T0)
    store.garbage = family
    assert store.worth(T0)

    db = Mock(due="due", meta="meta")
    compact(db, [], [], lambda: 5)
    assert db.collect.mock_calls == [call("due", 5), call("meta", 5)]


def test_what_could_not_be_compacted_is_tried_again_together_with_what_has_gone_since() -> None:
    store = Numbers(2)
    first, second = store.tracks
    owed = (first.start, key(1, T0 + HOUR))
    store.floors[first] = key(1, T0)
    store.floors[second] = key(2, T0)
    store.space.failed([owed], [(b"s1", b"s9")])
    assert store.worth(T0)

    outbox = (keys.OUTBOX, keys.outbox_key(7))
    assert store.space.drained() == ([owed, (second.start, key(2, T0))], [(b"s1", b"s9"), outbox])
    assert not store.space.owed
    assert store.space.drained() == ([], [outbox])


def test_of_many_tracks_a_single_range_is_compacted_that_holds_them_all() -> None:
    for many, ranges in ((8, 8), (9, 1)):
        store = Numbers(many)
        store.floors = {track: key(track.number, T0) for track in store.tracks}
        found = store.due()
        assert (len(found), found[0][0], found[-1][1]) == (ranges, store.tracks[0].start, key(many, T0))


def test_a_track_is_compacted_where_something_went_since_the_last_time_though_it_stands_where_it_stood() -> None:
    store = Numbers(2)
    first, second = store.tracks
    store.floors = {first: key(1, T0), second: key(2, T0)}
    assert len(store.due()) == 2
    assert store.due() == []

    first.went_on = True
    second.gone_to = key(2, T0 + HOUR)
    assert store.due() == [(first.start, key(1, T0)), (second.start, key(2, T0 + HOUR))]
    assert store.due() == []


def test_copies_may_take_half_of_what_is_free() -> None:
    store = Numbers()
    for store.free, room in ((10, 5), (0, 0), (-10, 0)):
        assert store.space.room() == room
