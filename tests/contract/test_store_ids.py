"""What a store with an index promises about ids: cancel, replace, reschedule and find give a definite answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from contract.stores import HOUR, MINUTE, T0, adds_up, bodies, delivered, give, only_an_index, record, take
from delaybridge.core.store import Answer, EndsBefore, Held, Pending, Put, Query, Refuse, Settled, Store, Withdraw

if TYPE_CHECKING:
    from contract.stores import OpenStore

pytestmark = only_an_index

MEMORY = HOUR
"""The memory of the stores under test, see conftest."""


def withdraw(store: Store, chosen_id: str, now: int = T0) -> Answer:
    (answer,) = store.put([Withdraw(chosen_id)], now)
    return answer


def made_id(store: Store) -> str:
    return store.list(Query(), 1).items[0].record.id


def test_a_record_without_an_id_gets_one_by_which_it_is_found(store: Store) -> None:
    give(store, record("a", T0 + 1))
    found = store.find(made_id(store))

    assert isinstance(found, Pending)
    assert (found.record.message.body, found.state) == (b"a", "waiting")
    assert take(store, T0 + 1)[0].record.id == found.record.id


def test_a_pending_record_can_be_cancelled_by_a_chosen_id_and_by_a_made_one(store: Store) -> None:
    give(store, record("a", T0 + 1))
    assert store.cancel(made_id(store), T0) == Answer("done")
    give(store, record("b", T0 + 1, chosen_id="b"))
    assert store.next_due("rabbit") == T0 + 1
    assert store.cancel("b", T0) == Answer("done")

    assert store.next_due("rabbit") is None
    assert take(store, T0 + 1) == []
    assert store.counts().events["cancelled"] == 2
    assert adds_up(store)


def test_cancelling_twice_tells_that_it_was_cancelled_and_when(store: Store) -> None:
    give(store, record("a", T0 + 1, chosen_id="a"))
    store.cancel("a", T0 + 7)

    assert store.cancel("a", T0 + 8) == Answer("too_late", "cancelled", T0 + 7)


def test_a_cancel_after_delivery_tells_when_it_was_delivered_also_after_a_restart(open_store: OpenStore) -> None:
    store = open_store()
    give(store, record("a", chosen_id="a"))
    delivered(store, take(store), T0 + 3)

    assert open_store().cancel("a", T0 + 4) == Answer("too_late", "delivered", T0 + 3)
    assert open_store().find("a") == Answer("too_late", "delivered", T0 + 3)


def test_a_made_id_is_known_to_be_gone_although_nothing_is_remembered_of_it(store: Store) -> None:
    give(store, record("a"))
    gone = made_id(store)
    delivered(store, take(store))

    assert store.cancel(gone, T0) == Answer("too_late")


def test_an_id_that_was_never_seen_is_unknown(store: Store) -> None:
    give(store, record("a"))

    assert store.cancel("never", T0) == Answer("unknown")
    assert store.find("never") == Answer("unknown")
    assert store.reschedule("never", T0, T0) == Answer("unknown")
    assert store.find(made_id(store)[:-1] + "f") == Answer("unknown")


def test_asking_to_cancel_an_unknown_id_does_not_cancel_what_comes_later(store: Store) -> None:
    store.cancel("a", T0)
    give(store, record("a", chosen_id="a"))

    assert bodies(take(store)) == ["a"]


def test_a_withdrawal_that_overtakes_its_record_cancels_it_on_arrival(open_store: OpenStore) -> None:
    assert withdraw(open_store(), "a") == Answer("unknown")
    store = open_store()
    give(store, record("a", T0 + 1, chosen_id="a"), now=T0 + 1)

    assert take(store, T0 + 1) == []
    assert store.counts().events["cancelled"] == 1
    assert adds_up(store)
    give(store, record("again", T0 + 1, chosen_id="a"), now=T0 + 1)
    assert bodies(take(store, T0 + 1)) == ["again"]


def test_a_withdrawal_waits_on_when_the_first_message_with_its_id_cannot_be_scheduled(store: Store) -> None:
    withdraw(store, "a")
    store.put([Refuse(record("wrong", chosen_id="a", kind="refused"), "bad_duration", "no duration")], T0)

    give(store, record("right", chosen_id="a"))

    assert take(store) == []
    assert store.counts().events["cancelled"] == 1
    assert adds_up(store)


def test_an_early_withdrawal_and_an_ending_are_forgotten_in_time(store: Store) -> None:
    withdraw(store, "early")
    give(store, record("done", chosen_id="done"))
    delivered(store, take(store))

    later = T0 + MEMORY + 1
    give(store, record("early", later, chosen_id="early"), now=later)

    assert bodies(take(store, later)) == ["early"]
    assert store.cancel("done", later) == Answer("unknown")


def test_an_id_may_be_used_again_after_its_end_also_where_a_withdrawal_came_too_late(store: Store) -> None:
    give(store, record("1", chosen_id="a"))
    delivered(store, take(store))
    assert withdraw(store, "a") == Answer("too_late", "delivered", T0)

    give(store, record("2", chosen_id="a"))

    assert bodies(take(store)) == ["2"]
    assert store.counts().events["replaced"] == 0


def test_an_id_that_is_used_again_is_not_forgotten_with_its_earlier_end(store: Store) -> None:
    give(store, record("1", chosen_id="a"), record("1", chosen_id="b"))
    delivered(store, take(store))
    again = T0 + MEMORY - 1
    give(store, record("2", again, chosen_id="a"), record("2", T0 + 2 * MEMORY, chosen_id="b"), now=again)
    delivered(store, take(store, again), again)

    later = T0 + MEMORY + 1
    give(store, record(), now=later)

    assert store.cancel("a", later) == Answer("too_late", "delivered", again)
    assert store.cancel("b", later) == Answer("done")


def test_a_record_and_its_withdrawal_in_one_batch_are_applied_in_order(store: Store) -> None:
    answers = store.put([Put(record("a", chosen_id="a")), Withdraw("a"), Put(record("b", chosen_id="a"))], T0)

    assert answers == [Answer("done")]
    assert bodies(take(store)) == ["b"]
    assert adds_up(store)


def test_the_same_id_sent_again_replaces_what_waits_even_on_another_lane(store: Store) -> None:
    give(store, record("old", T0 + 1, chosen_id="a", lane="kafka"))
    give(store, record("new", T0 + 2, chosen_id="a"))
    give(store, record("1", T0 + 3, chosen_id="b"), record("2", T0 + 3, chosen_id="b"))

    assert take(store, T0 + 3, lane="kafka") == []
    assert bodies(take(store, T0 + 3)) == ["new", "2"]
    assert store.counts().events["replaced"] == 2
    assert adds_up(store)


def test_what_is_replaced_while_it_waits_is_gone_at_once(store: Store) -> None:
    give(store, record("old", T0 + 1, chosen_id="a"))

    give(store, record("new", T0 + 2, chosen_id="a"))

    assert (store.counts().pending, store.counts().events["replaced"]) == (1, 1)
    assert [pending.record.message.body for pending in store.list(Query(), 10).items] == [b"new"]


def test_what_is_in_flight_cannot_be_cancelled_or_moved_and_the_answer_says_so(store: Store) -> None:
    give(store, record("a", chosen_id="a"))
    due = take(store)

    assert store.cancel("a", T0) == Answer("in_flight")
    assert store.reschedule("a", T0 + 9, T0) == Answer("in_flight")
    found = store.find("a")
    assert isinstance(found, Pending)
    assert found.state == "in_flight"
    store.put_back([due[0].key])
    assert store.cancel("a", T0) == Answer("done")


def test_a_record_replaced_in_flight_stands_as_delivered_but_has_no_next_occurrence(store: Store) -> None:
    give(store, record("old", chosen_id="a", every=MINUTE))
    (due,) = take(store)
    give(store, record("new", T0 + HOUR, chosen_id="a"))

    store.settle([Settled(due.key, "delivered", T0, next=replace(due.record))], T0)

    assert bodies(take(store, T0 + HOUR)) == ["new"]
    assert store.counts().events["replaced"] == 0
    assert adds_up(store)
    assert isinstance(store.find("a"), Pending)


def test_a_record_replaced_in_flight_and_not_delivered_is_replaced_then(store: Store) -> None:
    give(store, record("old", chosen_id="a"))
    (due,) = take(store)
    give(store, record("new", T0 + HOUR, chosen_id="a"))

    store.hold([Held(due.key, 1, "refused")], T0)

    assert store.counts().events["replaced"] == 1
    assert store.held("rabbit") == {}
    assert bodies(take(store, T0 + HOUR)) == ["new"]


def test_a_record_replaced_in_flight_does_not_go_out_again_after_a_crash(open_store: OpenStore) -> None:
    store = open_store()
    give(store, record("old", chosen_id="a"))
    take(store)
    give(store, record("new", T0 + HOUR, chosen_id="a"))

    store = open_store()

    assert bodies(take(store, T0 + HOUR)) == ["new"]
    assert store.counts().events["replaced"] == 1
    assert adds_up(store)


def test_a_record_withdrawn_in_flight_is_cancelled_when_its_id_comes_again_after_a_crash(open_store: OpenStore) -> None:
    store = open_store()
    give(store, record("old", chosen_id="a"))
    take(store)
    withdraw(store, "a")

    store = open_store()
    give(store, record("new", T0 + HOUR, chosen_id="a"))

    assert (store.counts().events["cancelled"], store.counts().events["replaced"], store.counts().pending) == (1, 0, 1)
    assert bodies(take(store, T0 + HOUR)) == ["new"]


def test_a_record_withdrawn_in_flight_cannot_be_moved_after_a_crash_and_the_answer_says_why(open_store: OpenStore) -> None:
    store = open_store()
    give(store, record("a", chosen_id="a"))
    take(store)
    withdraw(store, "a")

    store = open_store()

    assert store.reschedule("a", T0 + HOUR, T0 + 5) == Answer("too_late", "cancelled", T0 + 5)
    assert (store.counts().events["cancelled"], store.counts().pending) == (1, 0)
    assert store.cancel("a", T0 + 6) == Answer("too_late", "cancelled", T0 + 5)


def test_a_record_withdrawn_in_flight_is_cancelled_unless_it_gets_delivered(store: Store) -> None:
    give(store, record("1", chosen_id="1"), record("2", chosen_id="2"))
    first, second = take(store)
    assert withdraw(store, "1") == Answer("in_flight")
    assert withdraw(store, "2") == Answer("in_flight")

    delivered(store, [first])
    store.put_back([second.key])

    assert take(store) == []
    assert withdraw(store, "1") == Answer("too_late", "delivered", T0)
    assert withdraw(store, "2") == Answer("too_late", "cancelled", T0)
    assert adds_up(store)


def test_a_repeating_record_keeps_its_id_from_occurrence_to_occurrence(open_store: OpenStore) -> None:
    store = open_store()
    give(store, record("chosen", every=MINUTE, chosen_id="a"), record("made", every=MINUTE))
    for due in take(store):
        upcoming = replace(due.record, schedule=replace(due.record.schedule, due=T0 + MINUTE, occurrence=2))
        store.settle([Settled(due.key, "delivered", T0, next=upcoming)], T0)

    store = open_store()
    ids = [pending.record.id for pending in store.list(Query(), 10).items]
    assert ids[0] == "a"
    assert [store.cancel(one, T0) for one in ids] == [Answer("done"), Answer("done")]
    assert take(store, T0 + MINUTE) == []
    assert [store.cancel(one, T0).outcome for one in ids] == ["too_late", "too_late"]


def test_a_rescheduled_record_moves_in_either_direction_and_keeps_its_id(store: Store) -> None:
    give(store, record("a", T0 + 10, chosen_id="a"), record("b", T0 + 20, chosen_id="b"), record("c", T0 + 30))
    third = store.list(Query(), 3).items[2].record.id

    assert store.reschedule("a", T0 + 40, T0) == Answer("done")
    assert store.reschedule("b", T0 + 50, T0) == Answer("done")
    assert store.reschedule("b", T0 + 5, T0) == Answer("done")
    assert store.reschedule(third, T0 + 1, T0) == Answer("done")

    assert store.next_due("rabbit") == T0 + 1
    dues = take(store, T0 + 40)
    assert bodies(dues) == ["c", "b", "a"]
    assert [due.record.id for due in dues] == [third, "b", "a"]
    assert [due.record.schedule.due for due in dues] == [T0 + 1, T0 + 5, T0 + 40]


def test_a_rescheduled_record_counts_as_replaced_by_itself_so_that_the_ledger_adds_up(store: Store) -> None:
    give(store, record("a", T0 + 10, chosen_id="a"))

    store.reschedule("a", T0 + HOUR, T0)

    counts = store.counts()
    assert (counts.events["scheduled"], counts.events["replaced"], counts.pending) == (2, 1, 1)


def test_a_record_can_be_released_at_once_by_an_instant_that_has_passed(store: Store) -> None:
    give(store, record("a", T0 + HOUR, chosen_id="a"))

    assert store.reschedule("a", T0 - 5, T0) == Answer("done")

    found = take(store, T0)
    assert bodies(found) == ["a"]
    assert found[0].record.schedule.due == T0, "it has missed no instant at which the bridge may have been down"


def test_nothing_is_moved_behind_its_end(store: Store) -> None:
    waiting = record("a", T0 + 1000, chosen_id="a")
    give(store, replace(waiting, schedule=replace(waiting.schedule, ends=T0 + 5000)))

    with pytest.raises(EndsBefore) as refused:
        store.reschedule("a", T0 + 5001, T0)

    assert (refused.value.ends, refused.value.due) == (T0 + 5000, T0 + 5001)
    assert [due.record.schedule.due for due in take(store, T0 + 1000)] == [T0 + 1000]


def test_a_held_record_can_be_cancelled_and_rescheduled_until_it_was_delivered(store: Store) -> None:
    give(store, record("a", chosen_id="a"), record("b", chosen_id="b"), record("c", chosen_id="c"))
    store.hold([Held(due.key, 1, "refused") for due in take(store)], T0)
    found = store.find("a")
    assert found == Pending(record("a", chosen_id="a"), "held", 1, "refused")

    assert store.cancel("a", T0) == Answer("done")
    assert store.reschedule("b", T0 + 5, T0) == Answer("done")
    delivered(store, take(store, held="orders"))
    assert store.cancel("c", T0 + 1) == Answer("too_late", "delivered", T0)

    assert store.held("rabbit") == {}
    assert store.counts().held == 0
    assert bodies(take(store, T0 + 5)) == ["b"]


def test_a_retried_dead_letter_keeps_its_id_where_that_is_free(store: Store) -> None:
    give(store, record("a", chosen_id="a"))
    store.settle([Settled(due.key, "dead_lettered", T0, "no_route") for due in take(store)], T0)

    assert store.retry_dead_letter(store.dead_letters(1)[0].number, T0)

    assert isinstance(store.find("a"), Pending)
    assert store.cancel("a", T0) == Answer("done")


def test_a_retried_dead_letter_does_not_push_away_a_newer_record_with_its_id(store: Store) -> None:
    give(store, record("old", chosen_id="a"))
    store.settle([Settled(due.key, "dead_lettered", T0, "no_route") for due in take(store)], T0)
    give(store, record("new", T0 + 5, chosen_id="a"))

    assert store.retry_dead_letter(store.dead_letters(1)[0].number, T0)

    assert bodies(take(store, T0 + 5)) == ["old", "new"]
    assert store.counts().events["replaced"] == 0
