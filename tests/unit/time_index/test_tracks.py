"""Each address of a lane has a track of its own, as long as there are any."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract.stores import T0, bodies, give, record, take

from delaybridge.core.store import Held, Query, StoreError, StoreFull
from delaybridge.core.time_index import TimeIndex, delivery, keys, lanes
from delaybridge.core.time_index.database import Database
from delaybridge.core.time_index.held_target import HeldTarget

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from delaybridge.core.time_index.change import Change


def _tracks(index: TimeIndex) -> dict[str, int]:
    return {address: track.number for (_, address), track in index._state.lanes.by_address.items()}


def test_more_addresses_than_tracks_share_them_in_the_same_way_after_a_restart(
    open_index: Callable[[], TimeIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_TRACKS", 3)
    addresses = [f"address {number}" for number in range(20)]
    index = open_index()
    give(index, *(record(f"{address} 1", T0 + 1, address=address) for address in addresses))

    index = open_index()
    give(index, *(record(f"{address} 2", T0 + 1, address=address) for address in addresses))
    found = bodies(take(index, T0 + 1))

    assert len(_tracks(index)) == 3
    assert [[body for body in found if body.startswith(f"{address} ")] for address in addresses] == [
        [f"{address} 1", f"{address} 2"] for address in addresses
    ]


def test_an_address_that_shares_its_track_is_held_back_alone(open_index: Callable[[], TimeIndex], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_TRACKS", 1)
    index = open_index()
    give(index, record("1", T0, address="down"), record("2", T0 + 1, address="up"))
    index.hold([Held(take(index)[0].key, 1, "refused")], T0)
    give(index, record("3", T0 + 2, address="down"), record("4", T0 + 3, address="up"))

    up, down = take(index, T0 + 5), take(index, T0 + 5, held="down")
    assert (bodies(up), bodies(down)) == (["2", "4"], ["1", "3"])

    index.hold([Held(due.key, 1, "refused") for due in [*down, *up]], T0 + 5)
    assert [one.record.message.body for one in index.list(Query(), 10).items] == [b"1", b"2", b"3", b"4"]


def test_a_track_keeps_its_address_across_restarts_whatever_the_addresses_are_called(open_index: Callable[[], TimeIndex]) -> None:
    index = open_index()
    give(index, *(record(address, address=address) for address in ("z", "a", "ä/ö", "")))
    before = _tracks(index)

    index = open_index()

    assert _tracks(index) == before == {"z": 1, "a": 2, "ä/ö": 3, "": 4}
    assert bodies(take(index)) == ["z", "a", "ä/ö", ""]


@pytest.mark.parametrize("other", [1, 3])
def test_a_store_of_another_format_is_refused_and_not_touched(tmp_path: Path, other: int) -> None:
    TimeIndex(tmp_path, bridge="b1", min_free_disk=0, reserve_bytes=0).close()
    db = Database(tmp_path / "db")
    db.write({}, {}, {keys.FORMAT_KEY: bytes((other,))})
    db.close()

    with pytest.raises(StoreError, match=f"has format {other}; this version reads format 2"):
        TimeIndex(tmp_path, bridge="b1", min_free_disk=0, reserve_bytes=0)


def test_a_track_of_which_the_first_write_failed_is_kept_with_the_next_one(
    open_index: Callable[[], TimeIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreFull("no room")

    index = open_index()
    with monkeypatch.context() as failing:
        failing.setattr(Database, "write", full)
        with pytest.raises(StoreFull):
            give(index, record("lost", address="new"))
    give(index, record("1", address="other"), record("2", T0 + 1, address="new"))
    before = _tracks(index)

    index = open_index()

    assert _tracks(index) == before == {"new": 1, "other": 2}
    assert bodies(take(index, T0 + 1)) == ["2", "1"]


def test_a_burst_for_an_address_that_is_held_back_keeps_no_other_waiting(open_index: Callable[[], TimeIndex]) -> None:
    index = open_index()
    give(index, record("0", address="down"), record("other", T0 + 1, address="up"))
    index.hold([Held(due.key, 1, "refused") for due in take(index)], T0)
    give(index, *(record("burst", address="down") for _ in range(500)))
    index = open_index()

    first, second = (bodies(take(index, T0 + 1, limit=100)) for _ in range(2))

    assert first + second == ["other"]
    for _ in range(10):
        take(index, T0 + 1, limit=100)
    assert len(take(index, held="down")) == 501


def test_what_is_due_next_is_found_in_several_looks_behind_very_many_records_that_are_held_back(
    open_index: Callable[[], TimeIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_PASSED_AT_ONCE", 10)
    index = open_index()
    give(index, *(record("held", T0 + number) for number in range(25)), record("next", T0 + 100))
    _, *others = take(index, T0 + 50)
    index.hold([Held(due.key, 1, "refused") for due in others], T0)
    index = open_index()
    assert bodies(take(index, T0 + 50, limit=1)) == []

    assert [index.next_due("rabbit") for _ in range(4)] == [T0 + 11, T0 + 21, T0 + 100, T0 + 100]


def test_what_another_lane_holds_back_meanwhile_does_not_disturb_a_lane(
    open_index: Callable[[], TimeIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = open_index()
    give(index, *(record("1", lane=lane, address=address) for lane in ("rabbit", "kafka") for address in ("x", "y")))
    mine, others = take(index, lane="rabbit"), take(index, lane="kafka")
    index.hold([Held(due.key, 1, "refused") for due in mine], T0)
    flying = [due for address in ("x", "y") for due in take(index, lane="rabbit", held=address)]

    def meanwhile(behind: HeldTarget) -> bool:
        index.hold([Held(due.key, 1, "refused") for due in others], T0)
        others.clear()
        return behind.count > behind.out

    with monkeypatch.context() as another_thread:
        another_thread.setattr(HeldTarget, "waits", property(meanwhile))
        assert not index._state.held.waits(index._state.lanes.by_name["rabbit"])

    assert len(flying) == 2
    assert set(index.held("kafka")) == {"x", "y"}


def test_what_is_held_back_where_it_is_asked_whether_any_is_may_end_meanwhile(
    open_index: Callable[[], TimeIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_TRACKS", 1)
    index = open_index()
    give(index, *(record("1", address=address, chosen_id=address) for address in ("x", "y")))
    index.hold([Held(due.key, 1, "refused") for due in take(index)], T0)
    assert len(take(index, held="x")) == 1

    def meanwhile(behind: HeldTarget) -> bool:
        index.cancel("y", T0)
        return behind.count > behind.out

    with monkeypatch.context() as another_thread:
        another_thread.setattr(HeldTarget, "waits", property(meanwhile))
        assert not index._state.held.waits(index._state.lanes.by_name["rabbit"])


def test_what_falls_due_is_held_back_in_a_writers_turn_also_where_another_address_has_all_that_it_held_in_flight(
    index: TimeIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else that write may come in the middle of another thread's sync, and stop all threads until it is done."""
    give(index, record("first"), record("other", address="bills"))
    index.hold([Held(due.key, 1, "full") for due in take(index)], T0)
    assert bodies(take(index, held="bills")) == ["other"]
    give(index, record("later"))
    state, turns = index._state, []
    commit = state.commit

    def noting(change: Change) -> None:
        turns.append(state.write_lock._held)
        commit(change)

    monkeypatch.setattr(state, "commit", noting)

    assert take(index) == []
    assert turns == [True]


@pytest.mark.parametrize("limit", [1, 2])
def test_what_goes_out_with_later_records_that_are_held_is_not_what_falls_due_next(index: TimeIndex, limit: int) -> None:
    """It was put back, or came when the clock had been set back; a lane would wake for it."""
    give(index, record("1"), record("2", T0 + 1), record("3", T0 + 2))
    first, second, third = take(index, T0 + 2)
    index.hold([Held(third.key, 1, "full")], T0 + 2)
    index.put_back([first.key, second.key])
    assert index.next_due("rabbit") == T0

    assert bodies(take(index, T0 + 2, held="orders", limit=limit)) == ["1", "2"][:limit]

    assert index.next_due("rabbit") is None
