"""Ids that a time index makes, and ids that several of its records bear."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract.stores import HOUR, T0, adds_up, bodies, delivered, give, record, take
from msgspec.structs import replace

from delaybridge.core.store import Answer, Due, Pending, Put, Settled, Withdraw
from delaybridge.core.time_index import TimeIndex, keys
from delaybridge.core.time_index.made import MadeIds, is_made

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from delaybridge.core.ledger import Event


def test_no_two_stores_give_one_id_to_two_messages(tmp_path: Path) -> None:
    """A consumer that gets from both drops what it has seen by its id."""
    ids = set()
    for name in ("one", "other"):
        index = TimeIndex(tmp_path / name, bridge=name, min_free_disk=0, reserve_bytes=0)
        give(index, *(record(str(number), T0) for number in range(10)))
        ids |= {due.record.id for due in take(index)}
        index.close()

    assert len(ids) == 20
    assert all(map(is_made, ids))


def test_a_store_of_an_earlier_state_goes_on_with_its_ids(open_index: Callable[[], TimeIndex]) -> None:
    index = open_index()
    index._state.db.write({}, {}, {keys.TAG_KEY: None})

    index = open_index()
    give(index, record("1", T0))
    [due] = take(index)

    assert due.record.id == "db" + due.key.hex()
    assert isinstance(index.find(due.record.id), Pending)


@pytest.mark.parametrize("wrong", ["", "db", "db12345678", "db" + "0" * 40, "db12345678" + "g" * 32, "DB12345678" + "0" * 32])
def test_what_another_store_or_a_producer_made_tells_of_no_place(wrong: str) -> None:
    made = MadeIds(bytes.fromhex("12345678"))

    assert made.key(wrong) is None
    assert made.key(made.of(bytes(range(16)))) == bytes(range(16))


def _two_of_one_id(index: TimeIndex, *, every: int = 0) -> Due:
    """As level queues may have them that cannot cancel; the first is handed out."""
    index.migration.take_in([record("first", chosen_id="job", every=every), record("second", T0 + HOUR, chosen_id="job")], T0)
    [first] = take(index)
    return first


def test_of_two_messages_under_one_id_the_later_one_is_found_when_the_first_has_ended(index: TimeIndex) -> None:
    first = _two_of_one_id(index)
    index.settle([Settled(first.key, "delivered", T0)], T0)

    assert index.cancel("job", T0 + 1) == Answer("done")
    assert take(index, T0 + HOUR) == []


def test_of_two_messages_under_one_id_the_first_is_found_again_when_the_later_one_has_ended(index: TimeIndex) -> None:
    index.migration.take_in([record("series", chosen_id="job", every=HOUR), record("single", T0 + 1, chosen_id="job")], T0)
    series, single = take(index, T0 + 1)
    index.settle([Settled(single.key, "delivered", T0)], T0)
    onward = replace(series.record, schedule=replace(series.record.schedule, due=T0 + HOUR, occurrence=2))
    index.settle([Settled(series.key, "delivered", T0, next=onward)], T0)

    assert index.cancel("job", T0 + 1) == Answer("done")
    assert take(index, T0 + HOUR) == []


def test_of_two_messages_under_one_id_the_later_one_is_found_when_the_first_goes_on(index: TimeIndex) -> None:
    first = _two_of_one_id(index, every=60_000)
    onward = replace(first.record, schedule=replace(first.record.schedule, due=T0 + 60_000, occurrence=2))
    index.settle([Settled(first.key, "delivered", T0, next=onward)], T0)

    assert index.cancel("job", T0 + 1) == Answer("done")
    assert bodies(take(index, T0 + HOUR)) == ["first"]


def test_only_a_cancellation_whose_schedule_may_still_come_counts_as_one_that_waits(index: TimeIndex) -> None:
    for number in range(100):
        index.put([Withdraw(f"early-{number}")], T0)
    give(index, record("a", T0 + HOUR, chosen_id="waiting"), record("b", chosen_id="done"))
    delivered(index, take(index))
    assert index.migration.withdrawn() == 100

    give(index, record(), now=T0 + 48 * HOUR)
    assert index.migration.withdrawn() == 0


@pytest.mark.parametrize("event", ["dead_lettered", "expired"])
@pytest.mark.parametrize("forwarded", [True, False])
def test_what_was_withdrawn_or_replaced_in_flight_and_did_not_get_delivered_is_no_dead_letter(
    index: TimeIndex, event: Event, forwarded: bool
) -> None:
    """Whoever retries dead letters would have it delivered after all, the earlier version beside the later one."""
    give(index, record("a", chosen_id="a"), record("b", chosen_id="b"))
    dues = take(index)
    index.put([Withdraw("a"), Put(record("new", T0 + HOUR, chosen_id="b"))], T0)

    forward = record("dead", address="dead", kind="dead_letter") if forwarded and event == "dead_lettered" else None
    index.settle([Settled(due.key, event, T0, "too_large", forward=forward) for due in dues], T0 + 5)

    counts = index.counts()
    assert (counts.events["cancelled"], counts.events["replaced"], counts.events[event]) == (1, 1, 0)
    assert (counts.shelved, index.carriers(), counts.pending) == (0, 0, 1)
    assert index.find("a") == Answer("too_late", "cancelled", T0 + 5)
    assert bodies(take(index, T0 + HOUR)) == ["new"]
    assert adds_up(index)
