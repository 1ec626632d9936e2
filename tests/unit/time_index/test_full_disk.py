"""Where a full disk refuses a write for good, what it was about is found again: the daemon ends then, but meanwhile others may write again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal
from unittest.mock import Mock

import pytest
from contract.stores import T0, adds_up, bodies, delivered, give, record, take

from delaybridge.core.store import Answer, Held, Pending, StoreError, StoreFull, Withdraw
from delaybridge.core.time_index import database, delivery
from delaybridge.core.time_index.numbers import Numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from delaybridge.core.time_index import TimeIndex


@pytest.fixture(autouse=True)
def cursors_move_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies before a cursor is not looked at after a restart."""
    monkeypatch.setattr(delivery, "_CURSOR_EVERY", 1)


@pytest.fixture
def on_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Does something that finds no room, not even that of the reserve."""

    def does(something: Callable[[], object]) -> None:
        with monkeypatch.context() as full:
            full.setattr(database.Database, "write", Mock(side_effect=StoreFull("no space left")))
            with pytest.raises(StoreFull):
                something()

    return does


Fate = Literal["not written", "written"]


@pytest.fixture
def the_disk_is_full_for(monkeypatch: pytest.MonkeyPatch) -> Callable[[*tuple[Fate, ...]], None]:
    """Lets the next writes find no room. Some happen all the same. Like RocksDB, the database takes none after such a one until it is opened again."""
    write, open_it = database.Database.write, database.Database._open
    fates: list[Fate] = []
    only_reads: list[bool] = []

    def written(self: database.Database, *puts: Any) -> None:
        if fates or only_reads:
            if not only_reads and fates.pop(0) == "written":
                write(self, *puts)
            only_reads[:] = [True]
            raise StoreFull("no space left")
        write(self, *puts)

    def opened(self: database.Database) -> None:
        open_it(self)
        only_reads.clear()

    monkeypatch.setattr(database.Database, "write", written)
    monkeypatch.setattr(database.Database, "_open", opened)
    return lambda *next_ones: fates.extend(next_ones)


def test_what_could_not_be_set_aside_is_handed_out_after_a_restart(
    open_index: Callable[[], TimeIndex], on_a_full_disk: Callable[[Callable[[], object]], None]
) -> None:
    index = open_index()
    give(index, record("1", address="down"), record("2", address="up"))
    first, second = take(index)
    index.hold([Held(first.key, 1, "refused")], T0)
    give(index, record("3", address="down"))

    on_a_full_disk(lambda: take(index))
    delivered(index, [second])
    index = open_index()

    take(index)
    assert bodies(take(index, held="down")) == ["1", "3"]
    assert adds_up(index)


def test_what_was_withdrawn_in_flight_and_could_not_be_ended_when_it_came_back_ends_after_a_restart(
    open_index: Callable[[], TimeIndex], on_a_full_disk: Callable[[Callable[[], object]], None]
) -> None:
    index = open_index()
    give(index, record("1", chosen_id="a"), record("2"))
    first, second = take(index)
    index.put([Withdraw("a")], T0)

    on_a_full_disk(lambda: index.put_back([first.key]))
    delivered(index, [second])
    index = open_index()

    assert take(index) == []
    assert index.find("a") == Answer("too_late", "cancelled", T0)
    assert index.counts().pending == 0
    assert adds_up(index)


def test_a_write_that_was_refused_and_happened_all_the_same_is_not_taken_for_the_next_one(
    open_index: Callable[[], TimeIndex], the_disk_is_full_for: Callable[[*tuple[Fate, ...]], None]
) -> None:
    """Both have the same number. What the next one wrote would be lost, and told to be there."""
    index = open_index()
    give(index, record("1", chosen_id="a"))

    the_disk_is_full_for("not written", "written")
    with pytest.raises(StoreFull):
        index.cancel("a", T0)
    with pytest.raises(StoreError, match="has it all the same"):
        give(index, record("2"))

    index.close()
    index = open_index()
    assert index.find("a") == Answer("too_late", "cancelled", T0)
    give(index, record("2"))
    assert bodies(take(index)) == ["2"]
    assert [row.sequence for row in index.unfiled.rows(10)] == [1, 2, 3]
    assert adds_up(index)


def test_a_write_that_was_refused_and_did_not_happen_is_followed_by_the_next_one(
    open_index: Callable[[], TimeIndex], the_disk_is_full_for: Callable[[*tuple[Fate, ...]], None]
) -> None:
    index = open_index()
    give(index, record("1", chosen_id="a"))

    the_disk_is_full_for("not written", "not written")
    with pytest.raises(StoreFull):
        index.cancel("a", T0)
    with pytest.raises(StoreFull):
        give(index, record("2"))
    the_disk_is_full_for("written")
    give(index, record("3"))
    index = open_index()

    assert bodies(take(index)) == ["1", "3"]
    assert adds_up(index)


def test_a_write_that_a_full_disk_lost_is_not_passed_over_by_the_next_one(
    index: TimeIndex, the_disk_is_full_for: Callable[[*tuple[Fate, ...]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was settled and not synced yet was in the log that could not be read back."""
    give(index, record("1"))
    reached = index._state.numbers.write
    delivered(index, take(index))
    monkeypatch.setattr(Numbers, "written", lambda _: reached)

    the_disk_is_full_for("not written")
    with pytest.raises(StoreError, match="the disk lost what was written"):
        give(index, record("2"))
    with pytest.raises(StoreError, match="failed before"):
        take(index)


def test_a_store_that_a_full_disk_lets_nobody_open_again_tells_that_to_whoever_writes(
    open_index: Callable[[], TimeIndex],
    on_a_full_disk: Callable[[Callable[[], object]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So the bridge ends as with any failure of its store, and not as with a defect of its own."""
    index = open_index()
    give(index, record("1"))
    dues = take(index)
    with monkeypatch.context() as full:
        full.setattr(database.Database, "_open", Mock(side_effect=StoreFull("no space left")))
        on_a_full_disk(lambda: give(index, record("2")))

    with pytest.raises(StoreError, match="make room and start anew"):
        delivered(index, dues)
    index.close()
    index = open_index()
    assert bodies(take(index)) == ["1"]


def test_what_was_confirmed_late_and_could_not_be_settled_is_handed_out_again(
    index: TimeIndex, on_a_full_disk: Callable[[Callable[[], object]], None]
) -> None:
    """It was put back before: nobody has it in flight, and who asks for it must not be told so until the next start."""
    give(index, record("1", chosen_id="a"), record("2"))
    late, other = take(index)
    index.put_back([late.key])

    on_a_full_disk(lambda: delivered(index, [late, other]))

    assert index.cancel(other.record.id, T0) == Answer("in_flight")
    assert bodies(take(index)) == ["1"]


def test_where_something_could_not_be_set_aside_nothing_was_handed_out(
    index: TimeIndex, on_a_full_disk: Callable[[Callable[[], object]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be in flight until the next start: nobody could deliver it, nor cancel it."""
    give(index, *(record(address, address=address) for address in ("up", "also up", "down")))
    dues = take(index)
    index.hold([Held(dues[2].key, 1, "refused")], T0)
    index.put_back([due.key for due in dues[:2]])
    index._state.lanes.by_name["rabbit"].last = 0
    give(index, record("later", address="down"))

    monkeypatch.setattr(delivery.Delivery, "_gives_way", Mock(side_effect=[True, False]))  # to another thread, after the first one
    on_a_full_disk(lambda: take(index))
    monkeypatch.undo()

    assert index.find(dues[0].record.id) == Pending(dues[0].record, "waiting")
    assert bodies(take(index)) == ["up", "also up"]
    assert bodies(take(index, held="down")) == ["down", "later"]


def test_where_what_was_withdrawn_could_not_be_ended_nothing_was_handed_out_with_it(
    open_index: Callable[[], TimeIndex], on_a_full_disk: Callable[[Callable[[], object]], None]
) -> None:
    index = open_index()
    give(index, *(record(name, chosen_id=name) for name in ("a", "b", "c")))
    index.hold([Held(due.key, 1, "refused") for due in take(index)], T0)
    take(index, held="orders")
    index.put([Withdraw("b")], T0)
    index = open_index()

    on_a_full_disk(lambda: take(index, held="orders"))

    assert bodies(take(index, held="orders")) == ["a", "c"]
    assert index.find("b") == Answer("too_late", "cancelled", T0)
    assert adds_up(index)
