"""What every store promises of records that are held back at one partition of their destination, because only that refuses them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.stores import T0, bodies, delivered, give, only_an_index, record, take, with_partitions
from delaybridge.core.store import Held, Query, Settled, Store
from delaybridge.core.targets import ANY, Partition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contract.stores import OpenStore
    from delaybridge.core.store import Due

ONE = Partition("orders", 1, 2)
NONE = Partition("orders", ANY, 2)


def _hold(store: Store, dues: Sequence[Due], partition: Partition | None = ONE, now: int = T0) -> None:
    store.hold([Held(due.key, due.attempts + 1, "refused", partition) for due in dues], now)


def _give(store: Store, *keys: int | None, due: int = T0) -> None:
    """Records of these keys, whose bodies they are, too."""
    give(store, *(record(str(key), due + number, key=key) for number, key in enumerate(keys)), now=due)


@with_partitions
def test_a_partition_holds_back_what_is_for_it_and_nothing_else(store: Store) -> None:
    _give(store, 1)
    _hold(store, take(store))
    _give(store, 2, 3, None, due=T0 + 1)

    assert bodies(take(store, T0 + 3)) == ["2", "None"]
    assert store.next_due("rabbit") is None
    assert store.held("rabbit") == {ONE: (1, "refused")}
    assert take(store, T0 + 3, held="orders") == []
    held = take(store, T0 + 3, held=ONE)
    assert [(due.attempts, due.error) for due in held] == [(1, "refused"), (0, "")]
    assert bodies(held) == ["1", "3"]
    assert store.counts().held == 2
    delivered(store, held)
    assert (store.held("rabbit"), store.counts().held) == ({}, 0)


@with_partitions
def test_what_may_go_to_any_partition_waits_for_none_of_them(store: Store) -> None:
    _give(store, None)
    _hold(store, take(store), NONE)
    _give(store, 1, None, 2, due=T0 + 1)

    assert bodies(take(store, T0 + 3)) == ["1", "2"]
    assert bodies(take(store, T0 + 3, held=NONE)) == ["None", "None"]


@with_partitions
def test_a_later_record_follows_when_all_that_its_partition_held_back_is_in_flight(store: Store) -> None:
    _give(store, 1, 3)
    _hold(store, take(store, T0 + 1))
    _give(store, 5, due=T0 + 2)
    (first,) = take(store, T0 + 2, limit=1, held=ONE)

    assert take(store, T0 + 2) == []
    assert bodies(take(store, T0 + 2, held=ONE)) == ["3", "5"]
    _give(store, 7, due=T0 + 3)
    (last,) = take(store, T0 + 3)
    assert bodies([last]) == ["7"]

    store.put_back([first.key, last.key])

    assert take(store, T0 + 3) == []
    assert bodies(take(store, T0 + 3, held=ONE)) == ["1", "7"]


@with_partitions
def test_what_is_put_back_goes_out_before_later_records_of_its_partition_and_without_those_of_others(store: Store) -> None:
    _give(store, 1, 2, 3, 4, 5)
    dues = take(store, T0 + 4)
    _hold(store, dues[-1:], now=T0 + 4)
    store.put_back([due.key for due in dues[:-1]])

    assert bodies(take(store, T0 + 4, held=ONE)) == ["1", "3", "5"]
    assert bodies(take(store, T0 + 4)) == ["2", "4"]


@with_partitions
def test_what_was_held_behind_its_destination_can_be_held_at_its_partition_instead(store: Store) -> None:
    _give(store, 1, 2, 3)
    _hold(store, take(store, T0 + 2), None)
    held = take(store, T0 + 2, held="orders")
    _hold(store, [due for due in held if due.record.message.key != b"2"])
    _hold(store, [due for due in held if due.record.message.key == b"2"], None)

    assert store.held("rabbit") == {"orders": (2, "refused"), ONE: (2, "refused")}
    apart = take(store, T0 + 2, held=ONE)
    assert bodies(apart) == ["1", "3"]
    _give(store, 5, due=T0 + 3)
    assert take(store, T0 + 3) == []  # not yet: what is held behind the whole destination goes before it
    rest = take(store, T0 + 3, held="orders")
    assert bodies(rest) == ["2", "5"]
    delivered(store, [*apart, *rest])
    assert (store.held("rabbit"), store.counts().held) == ({}, 0)


@with_partitions
def test_partitions_that_were_counted_anew_hold_back_apart(store: Store) -> None:
    _give(store, 1, 3)
    one, three = take(store, T0 + 1)
    _hold(store, [one])
    _hold(store, [three], more := Partition("orders", 3, 4))
    _give(store, 2, 7, due=T0 + 2)

    assert bodies(take(store, T0 + 3)) == ["2"]
    assert sorted(bodies([*take(store, T0 + 3, held=ONE), *take(store, T0 + 3, held=more)])) == ["1", "3", "7"]


@only_an_index
def test_a_record_that_is_held_at_its_partition_can_be_found_moved_and_cancelled(store: Store) -> None:
    give(store, record("a", chosen_id="a", key=1), record("b", T0 + 1, chosen_id="b", key=3), record("c", T0 + 2, chosen_id="c", key=5))
    _hold(store, take(store, T0 + 2), now=T0 + 2)
    assert [(each.record.id, each.state, each.attempts) for each in store.list(Query(), 10).items] == [
        ("a", "held", 1), ("b", "held", 1), ("c", "held", 1),
    ]  # fmt: skip

    assert store.cancel("a", T0 + 2).outcome == store.reschedule("c", T0 + 9, T0 + 2).outcome == "done"

    assert bodies(take(store, T0 + 2, held=ONE)) == ["b"]
    assert store.counts().held == 1


@only_an_index
def test_what_is_held_at_a_partition_stays_held_across_a_restart(open_store: OpenStore) -> None:
    store = open_store()
    give(store, record("odd", T0, address="bestellungen-\N{GRINNING FACE}", key=1))
    _give(store, 1, 2, 3, None)
    dues = take(store, T0 + 3)
    strange = next(due for due in dues if due.record.address != "orders")
    _hold(store, [strange], Partition(strange.record.address, 1, 2), T0 + 3)
    _hold(store, [due for due in dues if due.record.message.key == b"3"], now=T0 + 3)
    _hold(store, [due for due in dues if due.record.message.key is None], NONE, T0 + 3)

    store = open_store()

    assert set(store.held("rabbit")) == {ONE, NONE, Partition(strange.record.address, 1, 2)}
    held = take(store, T0 + 3, held=ONE)
    assert bodies(held) == ["1", "3"]  # 1 was in flight
    assert bodies(take(store, T0 + 3)) == ["2"]
    store.settle([Settled(due.key, "delivered", T0 + 3) for due in [*held, *take(store, T0 + 3, held=NONE)]], T0 + 3)
    assert set(store.held("rabbit")) == {Partition(strange.record.address, 1, 2)}
