"""What every store promises of records that are held back behind an address, because a delivery there failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.stores import T0, bodies, delivered, give, only_an_index, record, take
from delaybridge.core.store import Held, Store

if TYPE_CHECKING:
    from contract.stores import OpenStore


def test_a_held_record_comes_back_only_when_its_address_is_asked_for(store: Store) -> None:
    give(store, record("a", address="down"), record("b", address="up"))
    down, up = take(store)
    store.hold([Held(down.key, 3, "refused")], T0)

    assert take(store) == []
    assert store.next_due("rabbit") is None
    assert store.held("rabbit") == {"down": (3, "refused")}
    (again,) = take(store, held="down")
    assert (bodies([again]), again.attempts, again.error) == (["a"], 3, "refused")
    assert take(store, held="down") == []
    delivered(store, [again, up])
    assert store.held("rabbit") == {}


def test_later_records_for_a_held_address_queue_up_behind_what_is_still_held(store: Store) -> None:
    give(store, record("0", T0, address="down"), record("1", T0, address="down"))
    store.hold([Held(due.key, 1, "refused") for due in take(store)], T0)
    delivered(store, take(store, limit=1, held="down"))
    give(store, record("2", T0 + 1, address="down"), record("other", T0 + 2, address="up"))

    assert bodies(take(store, T0 + 2)) == ["other"]
    assert bodies(take(store, T0 + 2, held="down")) == ["1", "2"]
    assert store.counts().held == 2


def test_no_more_bytes_are_handed_out_at_a_time_than_asked_for_and_one_record(store: Store) -> None:
    names = [f"{number}" * 1000 for number in range(4)]
    give(store, *(record(name, T0 + number) for number, name in enumerate(names)))
    assert bodies(store.due("rabbit", T0 + 3, 10, 1100)) == names[:2]
    assert bodies(store.due("rabbit", T0 + 3, 10, 1 << 20)) == names[2:]


def test_no_more_bytes_of_what_is_held_are_handed_out_at_a_time_than_asked_for_and_one_record(store: Store) -> None:
    names = [f"{number}" * 1000 for number in range(4)]
    give(store, *(record(name, T0 + number) for number, name in enumerate(names)))
    store.hold([Held(due.key, 1, "refused") for due in take(store, T0 + 3)], T0 + 3)

    assert bodies(store.due_held("rabbit", "orders", T0 + 3, 10, 1100)) == names[:2]
    assert bodies(store.due_held("rabbit", "orders", T0 + 3, 10, 1 << 20)) == names[2:]


def test_a_later_record_follows_when_all_that_was_held_before_it_is_in_flight(store: Store) -> None:
    give(store, record("1", T0), record("2", T0))
    store.hold([Held(due.key, 1, "refused") for due in take(store)], T0)
    give(store, record("3", T0 + 1))
    (first,) = take(store, T0 + 1, limit=1, held="orders")

    assert take(store, T0 + 1) == []  # the second one waits still, and the third behind it
    assert bodies(take(store, T0 + 1, held="orders")) == ["2", "3"]
    assert take(store, T0 + 1, held="orders") == []
    give(store, record("4", T0 + 2))
    (fourth,) = take(store, T0 + 2)
    assert bodies([fourth]) == ["4"]

    store.put_back([first.key, fourth.key])

    assert take(store, T0 + 2) == []
    assert bodies(take(store, T0 + 2, held="orders")) == ["1", "4"]


def test_a_failed_retry_goes_back_to_the_head_of_its_address(store: Store) -> None:
    give(store, record("1", T0), record("2", T0 + 1))
    store.hold([Held(due.key, 1, "refused") for due in take(store, T0 + 1)], T0 + 1)
    (first,) = take(store, T0 + 1, limit=1, held="orders")

    store.hold([Held(first.key, 2, "again")], T0 + 1)

    assert [(due.attempts, due.error) for due in take(store, held="orders")] == [(2, "again"), (1, "refused")]


@only_an_index
def test_held_records_stay_held_across_a_restart(open_store: OpenStore) -> None:
    store = open_store()
    give(store, record("1", T0), record("2", T0 + 1), record("free", T0 + 2, address="up"))
    first, second, _ = take(store, T0 + 2)
    store.hold([Held(first.key, 1, "refused"), Held(second.key, 1, "refused")], T0 + 2)
    take(store, held="orders")

    store = open_store()

    assert store.held("rabbit") == {"orders": (1, "refused")}
    assert bodies(take(store, T0 + 2)) == ["free"]
    held = take(store, T0 + 2, held="orders")
    assert bodies(held) == ["1", "2"]
    delivered(store, held)
    assert store.held("rabbit") == {}


def test_a_held_record_that_is_put_back_is_still_held(store: Store) -> None:
    give(store, record("1"))
    store.hold([Held(due.key, 1, "refused") for due in take(store)], T0)
    (due,) = take(store, held="orders")

    store.put_back([due.key])

    assert take(store) == []
    assert bodies(take(store, held="orders")) == ["1"]


def test_what_is_put_back_goes_out_before_later_records_that_are_held_behind_its_address(store: Store) -> None:
    give(store, *(record(f"{number}", T0 + number) for number in range(4)))
    first, second, third, fourth = take(store, T0 + 3)
    store.hold([Held(second.key, 1, "refused"), Held(fourth.key, 1, "refused")], T0 + 3)
    store.put_back([first.key, third.key])

    again = take(store, T0 + 3, held="orders")
    assert bodies(again) == ["0", "1", "2", "3"]

    store.put_back([due.key for due in again])
    assert bodies(take(store, T0 + 3, limit=1, held="orders")) == ["0"]
    assert take(store, T0 + 3) == []
    assert bodies(take(store, T0 + 3, held="orders")) == ["1", "2", "3"]


def test_what_is_put_back_together_with_later_records_that_were_held_goes_out_before_them(store: Store) -> None:
    give(store, record("0", T0), record("1", T0 + 1))
    first, second = take(store, T0 + 1)
    store.hold([Held(second.key, 1, "refused")], T0 + 1)
    (second,) = take(store, T0 + 1, held="orders")
    store.put_back([first.key, second.key])

    assert bodies(take(store, T0 + 1, held="orders")) == ["0", "1"]


@only_an_index
def test_what_was_in_flight_at_a_kill_goes_out_before_later_records_that_are_held_behind_its_address(open_store: OpenStore) -> None:
    store = open_store()
    give(store, *(record(f"{number}", T0 + number) for number in range(4)))
    _, second, _, fourth = take(store, T0 + 3)
    store.hold([Held(second.key, 1, "refused"), Held(fourth.key, 1, "refused")], T0 + 3)

    store = open_store()

    assert bodies(take(store, T0 + 3, held="orders")) == ["0", "1", "2", "3"]
    assert store.counts().held == 4


def test_a_million_held_records_do_not_stop_another_address(store: Store) -> None:
    """A hundred here: what counts is that none of them is handed out again and again."""
    give(store, *(record("x", address="down") for _ in range(100)))
    store.hold([Held(due.key, 1, "refused") for due in take(store)], T0)
    give(store, record("free", address="up"))

    assert bodies(take(store, limit=1)) == ["free"]
