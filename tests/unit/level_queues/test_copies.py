"""Copies of one message that are there because its broker gave it again: one of them is delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract.level_queues import Stepped
from contract.stores import MINUTE, T0, bodies, delivered, give, record, take

from delaybridge.adapters.memory import Memory, broker
from delaybridge.core.store import Held, Settled, StoreFull

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_delivered_only_after_its_levels_connection_broke_is_not_delivered_again(store: Stepped, place: Path) -> None:
    give(store, record("a"), record("b"))
    flying = take(store)
    store.lose_connections()
    delivered(store, flying[:1])

    assert bodies(take(store)) == ["b"], "nobody has told of that one"
    assert [row.event for row in store.journal.unfiled.rows(10)] == ["scheduled", "scheduled", "delivered"]
    store.close()
    again = Stepped(place)
    assert bodies(take(again)) == ["b"], "the other one may be forgotten"
    again.close()


def test_nor_is_it_after_many_such_losses(store: Stepped) -> None:
    give(store, record("a", chosen_id="x"))
    flying = take(store)
    store.lose_connections()
    delivered(store, flying)
    for _ in range(3):
        store.lose_connections()
        assert take(store) == []


def test_an_equal_message_under_the_same_id_is_another_one(store: Stepped) -> None:
    give(store, record("a", chosen_id="x"))
    delivered(store, take(store))
    give(store, record("a", chosen_id="x"))

    assert bodies(take(store)) == ["a"]


def test_an_occurrence_of_a_series_is_delivered_again_because_the_next_one_may_not_have_come_to_its_level(store: Stepped) -> None:
    give(store, record("a", every=MINUTE))
    flying = take(store)
    store.lose_connections()
    delivered(store, flying)

    assert bodies(take(store)) == ["a"]


def double(place: Path, level: str) -> None:
    """As after a hop whose first copy's end was not recorded before the connection was lost."""
    levels = broker(str(place))
    (waiting,) = levels.queue(level)
    levels.put(level, waiting.message, Memory())


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one after the other"])
def test_of_copies_that_fall_due_together_one_goes_out_and_none_stays(store: Stepped, place: Path, at_once: bool) -> None:
    give(store, record("a", T0 + 1000))
    double(place, "levels.1s")

    first = take(store, T0 + 1000) if at_once else take(store, T0 + 1000, limit=1)
    assert bodies(first) == ["a"]
    assert take(store, T0 + 1000) == []
    delivered(store, first, T0 + 1000)

    store.die()
    again = Stepped(place)
    assert take(again, T0 + MINUTE) == [], "their broker has forgotten both"
    again.close()


def test_a_copy_of_what_its_destination_refused_goes_out_instead_of_it(store: Stepped, place: Path) -> None:
    give(store, record("a", T0 + 1000))
    double(place, "levels.1s")
    (refused,) = take(store, T0 + 1000, limit=1)
    store.hold([Held(refused.key, 1, "refused")], T0 + 1000)

    found = take(store, T0 + 1000) + take(store, T0 + 1000, held=refused.record.address)
    assert bodies(found) == ["a"]
    delivered(store, found, T0 + 1000)
    assert take(store, T0 + 1000) + take(store, T0 + 1000, held=refused.record.address) == []


def test_what_was_confirmed_while_the_ledgers_disk_was_full_and_its_level_was_lost_is_told_once_and_not_delivered_again(
    store: Stepped,
) -> None:
    give(store, record("a"))
    (flying,) = take(store)
    store.lose_connections()

    with store.full_disk(), pytest.raises(StoreFull):
        store.settle([Settled(flying.key, "delivered", T0)], T0)
    delivered(store, [flying])

    assert take(store) == []
    assert [row.event for row in store.journal.unfiled.rows(10)] == ["scheduled", "delivered"]


def test_two_messages_with_one_id_that_two_bridges_take_in_at_once_are_no_copies(tmp_path: Path) -> None:
    one, other = Stepped(tmp_path / "one", name="shared"), Stepped(tmp_path / "other", name="shared")
    for bridge in (one, other):
        give(bridge, record("a", T0 + 700, chosen_id="x"))
    for passage in other.passages:
        passage.close()

    found = [each for _ in range(2) for each in take(one, T0 + 700)]

    assert bodies(found) == ["a", "a"]
    one.close()
    other.close()
