"""A series in level queues: whatever was killed, it is one, and the ledger hears of one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from contract.level_queues import Stepped
from contract.stores import MINUTE, T0, give, record, take
from msgspec.structs import replace

from delaybridge.adapters.base import Batch, Received
from delaybridge.bridge.level_queues.envelope import Envelope, pack
from delaybridge.bridge.level_queues.passage import Batched, Finish
from delaybridge.bridge.level_queues.publisher import Item
from delaybridge.bridge.level_queues.store import LevelQueues
from delaybridge.core.downtimes import NONE
from delaybridge.core.recurrence import following
from delaybridge.core.store import LedgerEvent, Settled

if TYPE_CHECKING:
    from pathlib import Path

    from delaybridge.bridge.level_queues.places import Addressed
    from delaybridge.core.store import Due

SECOND = 1_000


def due_next(due: Due) -> Settled:
    """It is delivered when it is due, and the following occurrence goes to its level."""
    now = due.record.schedule.due
    upcoming = following(due.record.schedule, now, NONE)
    return Settled(due.key, "delivered", now, next=replace(due.record, schedule=upcoming) if upcoming else None)


def publish(store: Stepped, *messages: Addressed) -> None:
    for each in messages:
        store.publisher.submit([Item([each], lambda: None, lambda: True)])


def occurrences(found: list[Due]) -> list[int]:
    return [due.record.schedule.occurrence for due in found]


def test_a_series_that_a_killed_bridge_left_twice_is_one_again_with_its_next_occurrence(store: Stepped, place: Path) -> None:
    give(store, record("tick", T0 + MINUTE, every=MINUTE))
    (first,) = take(store, T0 + MINUTE)
    LevelQueues.settle(store, [due_next(first)], T0 + MINUTE)  # the second is confirmed at its level, the first not acknowledged
    store.die()

    again = Stepped(place)
    seen = []
    for number in range(1, 4):
        found = take(again, T0 + number * MINUTE)
        again.settle([due_next(due) for due in found], T0 + number * MINUTE)
        seen.append(occurrences(found))

    assert seen == [[1], [2], [3]]
    events = Counter(row.event for row in again.journal.unfiled.rows(100) if row.occurrence == 2)
    assert events == {"scheduled": 2, "replaced": 1, "delivered": 1}, "what was scheduled twice has ended twice"
    again.close()


def test_a_series_that_a_killed_move_left_twice_is_one_and_the_ledger_hears_of_one(store: Stepped) -> None:
    tick = record("tick", T0 + MINUTE, every=MINUTE, chosen_id="1")
    store.journal.tell([LedgerEvent("scheduled", T0, tick)], T0)  # by the time index that it came from
    publish(store, *(store.places.enter(tick, None, T0, 7) for _ in range(2)))

    seen = []
    for number in range(1, 3):
        found = take(store, T0 + number * MINUTE)
        store.settle([due_next(due) for due in found], T0 + number * MINUTE)
        seen.append(occurrences(found))

    assert seen == [[1], [2]]
    assert Counter((row.event, row.occurrence) for row in store.journal.unfiled.rows(100)) == {
        ("scheduled", 1): 1, ("delivered", 1): 1, ("scheduled", 2): 1, ("delivered", 2): 1, ("scheduled", 3): 1,
    }  # fmt: skip


def test_a_series_that_came_to_its_level_twice_is_one_and_the_ledger_hears_of_one(store: Stepped, place: Path) -> None:
    """Its hop was confirmed, and a kill came before that was acknowledged at the level before. A connection that breaks may double it in the same way."""
    give(store, record("tick", T0 + 15 * MINUTE, every=MINUTE))
    for passage in store.passages:
        passage.step(0.0)
    store.now = T0 + 10 * MINUTE
    passage = next(each for each in store.passages if each.level.name == "levels.10m")
    passage._release(store.now)
    store.die()

    again = Stepped(place)
    found = take(again, T0 + 15 * MINUTE)
    again.settle([due_next(due) for due in found], T0 + 15 * MINUTE)

    assert Counter(row.event for row in again.journal.unfiled.rows(100) if row.occurrence == 1) == {"scheduled": 1, "delivered": 1}
    again.close()


def test_an_orderly_end_does_not_make_the_ledger_hear_of_both_that_a_killed_move_left(store: Stepped, place: Path) -> None:
    tick = record("tick", T0 + 500, every=MINUTE, chosen_id="1")
    store.journal.tell([LedgerEvent("scheduled", T0, tick)], T0)
    publish(store, store.places.enter(tick, None, T0, 7))
    store.move_on(T0)
    store.close()
    again = Stepped(place)
    publish(again, again.places.enter(tick, None, T0, 7))  # had stayed behind at another level

    assert len(take(again, T0 + 500)) == 1
    assert [row.event for row in again.journal.unfiled.rows(100)] == ["scheduled"]
    again.close()


def test_of_a_series_sent_twice_at_once_with_one_id_one_is_kept_and_the_ledger_says_what_became_of_the_other(
    store: Stepped, place: Path
) -> None:
    give(store, record("tick", every=MINUTE, chosen_id="1"), record("tick", every=MINUTE, chosen_id="1"))
    (due,) = take(store)
    store.settle([due_next(due)], T0)
    events = Counter(row.event for row in store.journal.unfiled.rows(100) if row.occurrence == 1)
    assert events == {"scheduled": 2, "replaced": 1, "delivered": 1}
    store.die()
    again = Stepped(place)
    assert occurrences(take(again, T0 + MINUTE)) == [2], "the broker has forgotten both"
    again.close()


@pytest.mark.parametrize("other", ["tock", "again"])
def test_what_merely_looks_like_a_copy_of_a_series_is_none(store: Stepped, other: str) -> None:
    give(store, record("tick", every=MINUTE, chosen_id="1"))
    (first,) = take(store)
    if other == "tock":
        give(store, record("tock", every=MINUTE, chosen_id="1"))
    else:  # while its connection lasts
        passage = store.passages[0]
        again = Received(pack(Envelope(first.record, T0)), "", b"", redelivered=True)
        batch = Batched(Batch([again], lambda: None, lambda _: None), passage._taken, lambda: T0)
        store.hops.leave(Envelope(first.record, T0), passage._taken, T0, Finish(batch, 0, b"", again=again.redelivered))
    assert len(take(store)) == 1
