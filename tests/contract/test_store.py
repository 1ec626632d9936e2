"""What every store promises: in, out in order, once, and across a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from contract.stores import HOUR, LATER, MINUTE, T0, adds_up, bodies, delivered, give, only_an_index, record, take, without_an_index
from delaybridge.core.fields import table
from delaybridge.core.message import Message, Properties
from delaybridge.core.store import Put, Query, Record, Refuse, Settled, SourceProgress, Store, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.stores import OpenStore


def test_a_record_is_not_handed_out_before_it_is_due(store: Store) -> None:
    give(store, record("a", T0 + 1))

    assert take(store, T0) == []
    assert bodies(take(store, T0 + 1)) == ["a"]


def test_records_come_in_order_of_due_time_whatever_order_they_came_in(store: Store) -> None:
    give(store, record("late", T0 + 3), record("early", T0 + 1))
    give(store, record("middle", T0 + 2))

    assert bodies(take(store, T0 + 3)) == ["early", "middle", "late"]


def test_records_due_at_the_same_instant_come_in_the_order_in_which_they_came(store: Store) -> None:
    give(store, record("1", T0 + 5), record("2", T0 + 5))
    give(store, record("3", T0 + 5))

    assert bodies(take(store, T0 + 5)) == ["1", "2", "3"]


def test_a_record_is_handed_out_only_once(store: Store) -> None:
    give(store, record("a"))
    take(store)

    assert take(store) == []


def test_a_record_that_becomes_due_before_those_already_handed_out_is_still_found(store: Store) -> None:
    give(store, record("first", T0 + 10))
    take(store, T0 + 10)

    give(store, record("second", T0 + 5), now=T0 + 10)

    assert bodies(take(store, T0 + 10)) == ["second"]


def test_a_record_put_under_a_clock_that_was_set_back_is_still_found(store: Store) -> None:
    give(store, record("first", T0 + LATER))
    delivered(store, take(store, T0 + LATER), T0 + LATER)

    give(store, record("second", T0 + 1), now=T0)

    assert bodies(take(store, T0 + 1)) == ["second"]


def test_no_more_than_the_limit_is_handed_out_at_once(store: Store) -> None:
    give(store, *(record(str(number)) for number in range(5)))

    assert [bodies(take(store, limit=2)) for _ in range(3)] == [["0", "1"], ["2", "3"], ["4"]]


def test_a_burst_for_one_address_lets_the_others_go_in_between(store: Store) -> None:
    give(store, *(record(f"burst {number}", T0 + number, address="burst") for number in range(50)))
    give(store, record("quiet 1", T0 + 51, address="quiet"), record("quiet 2", T0 + 52, address="quiet"))

    found = [bodies(take(store, T0 + 60, limit=20)) for _ in range(4)]

    assert max(len(part) for part in found) == 20
    assert [[body for body in part if body.startswith("quiet")] for part in found] == [["quiet 1", "quiet 2"], [], [], []]
    assert [body for part in found for body in part if body.startswith("burst")] == [f"burst {number}" for number in range(50)]


def test_addresses_take_turns_where_one_record_is_asked_for_at_a_time(store: Store) -> None:
    give(store, *(record(address, T0, address=address) for address in "aaabbc"))

    assert "".join(body for _ in range(6) for body in bodies(take(store, limit=1))) == "abcaba"


def test_about_as_many_bytes_as_asked_for_are_handed_out_but_at_least_one_record(store: Store) -> None:
    give(store, *(record("x" * 10_000) for _ in range(4)))

    assert len(store.due("rabbit", T0, 100, 15_000)) == 2
    assert len(store.due("rabbit", T0, 100, 1)) == 1


def test_lanes_do_not_see_each_others_records(store: Store) -> None:
    give(store, record("r", lane="rabbit"), record("k", lane="kafka"))

    assert bodies(take(store, lane="kafka")) == ["k"]
    assert bodies(take(store, lane="rabbit")) == ["r"]
    assert take(store, lane="nobody") == []


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 70_000, 5 << 20, 64 << 20])
def test_a_body_of_any_size_comes_back_unchanged_after_a_restart(open_store: OpenStore, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    give(open_store(), record()) if not size else open_store().put([Put(_with_body(body))], T0)

    assert take(open_store())[0].record.message.body == body


def _with_body(body: bytes | None) -> Record:
    return Record(message=Message(body), schedule=record().schedule, lane="rabbit", address="orders")


@pytest.mark.parametrize("size", [0, 255, 256, 200_000])
def test_a_key_of_any_size_comes_back_unchanged(store: Store, size: int) -> None:
    message = Message(b"", key=b"\xff" * size)
    store.put([Put(Record(message=message, schedule=record().schedule, lane="rabbit", address="orders"))], T0)

    assert take(store)[0].record.message == message


def test_everything_in_a_record_comes_back_after_a_restart(open_store: OpenStore) -> None:
    properties = Properties(content_type=b"\xff", priority=3, timestamp=1, expiration=b"5")
    message = Message(None, table([("a", 1), ("a", 2.5), ("b", None)]), properties, b"\x00key")
    whole = Record(
        message=message, schedule=record(every=MINUTE).schedule, lane="rabbit", address="ä/ö", id="order-1", kind="period", dialect="x-delay",
        route="orders", source_broker="kafka", source="in", taken=T0,
    )  # fmt: skip
    give(open_store(), whole)

    assert take(open_store())[0].record == whole


def test_the_next_due_time_is_that_of_the_first_record_that_waits(store: Store) -> None:
    assert store.next_due("rabbit") is None
    give(store, record("b", T0 + 20))
    assert store.next_due("rabbit") == T0 + 20
    give(store, record("a", T0 + 10, address="other"))
    assert store.next_due("rabbit") == T0 + 10
    take(store, T0 + 10)
    assert store.next_due("rabbit") == T0 + 20
    take(store, T0 + 20)
    assert store.next_due("rabbit") is None


def test_a_settled_record_is_gone_for_good(open_store: OpenStore) -> None:
    store = open_store()
    give(store, record("a"))
    delivered(store, take(store))

    assert take(store) == []
    assert take(open_store()) == []


def test_what_was_in_flight_is_handed_out_again_after_a_restart(open_store: OpenStore) -> None:
    store = open_store()
    give(store, record("a"), record("b"), record("c"))
    delivered(store, take(store)[1:2])

    assert bodies(take(open_store())) == ["a", "c"]


def test_what_is_put_back_is_handed_out_again_in_its_old_place(store: Store) -> None:
    give(store, record("a", T0), record("b", T0 + 1), record("c", T0 + 2))
    first, second = take(store, T0 + 1)

    store.put_back([second.key])

    assert store.next_due("rabbit") == T0 + 1
    assert bodies(take(store, T0 + 2)) == ["b", "c"]
    store.put_back([first.key])
    assert bodies(take(store, T0 + 2)) == ["a"]


def test_settling_the_same_record_twice_counts_once(store: Store) -> None:
    give(store, record("a"))
    due = take(store)

    delivered(store, [*due, *due])
    delivered(store, due)

    assert store.counts().events["delivered"] == 1
    assert adds_up(store)


def test_a_confirm_that_arrives_after_its_record_was_put_back_settles_it(store: Store) -> None:
    give(store, record("a"))
    due = take(store)
    store.put_back([due[0].key])

    delivered(store, due)

    assert take(store) == []
    assert adds_up(store)


def test_the_next_occurrence_is_kept_in_the_same_write(open_store: OpenStore) -> None:
    store = open_store()
    give(store, record("tick", T0, every=LATER))
    (due,) = take(store)

    store.settle([Settled(due.key, "delivered", T0, next=_later(due.record))], T0)

    (again,) = take(open_store(), T0 + LATER)
    assert again.record.id == due.record.id
    assert again.record.schedule.occurrence == 2


def _later(one: Record) -> Record:
    from msgspec.structs import replace  # noqa: PLC0415 - used here only

    return replace(one, schedule=replace(one.schedule, due=one.schedule.due + LATER, occurrence=one.schedule.occurrence + 1))


@only_an_index
def test_a_dead_letter_goes_to_the_shelf_and_can_be_retried_or_dropped(open_store: OpenStore) -> None:
    store = open_store()
    give(store, record("bad"), record("worse"))
    for due in take(store):
        store.settle([Settled(due.key, "dead_lettered", T0, "no_route", "nobody listens", attempts=2)], T0)

    store = open_store()
    first, second = store.dead_letters(10)
    assert (first.reason, first.detail, first.attempts, first.at) == ("no_route", "nobody listens", 2, T0)
    assert store.dead_letters(10, after=first.number) == [second]
    assert store.counts().shelved == 2
    assert store.retry_dead_letter(first.number, T0 + 5)
    assert store.drop_dead_letter(second.number, T0 + 5)
    assert not store.retry_dead_letter(first.number, T0 + 5)
    assert not store.drop_dead_letter(second.number, T0 + 5)
    assert bodies(take(store, T0 + 5)) == ["bad"]
    assert (store.counts().events["scheduled"], store.counts().shelved) == (3, 0)
    assert adds_up(store)


@only_an_index
def test_a_dead_letter_on_its_way_to_its_destination_is_not_pending(store: Store) -> None:
    give(store, record("bad"))
    (due,) = take(store)
    store.settle([Settled(due.key, "dead_lettered", T0, "no_route", forward=record("bad", address="dead", kind="dead_letter"))], T0)

    assert store.counts().pending == 0
    assert store.dead_letters(10) == []
    (carrier,) = take(store)
    assert (carrier.record.address, carrier.record.id) == ("dead", due.record.id)
    delivered(store, [carrier])
    assert store.counts().events == {"scheduled": 1, "delivered": 0, "cancelled": 0, "replaced": 0, "expired": 0, "dead_lettered": 1}


@only_an_index
def test_a_dead_letter_whose_destination_fails_too_goes_to_the_shelf(store: Store) -> None:
    give(store, record("bad"))
    (due,) = take(store)
    store.settle([Settled(due.key, "dead_lettered", T0, "no_route", forward=record("bad", address="dead", kind="dead_letter"))], T0)
    store.settle([Settled(due.key, "dead_lettered", T0, "no_route") for due in take(store)], T0)

    assert [letter.record.address for letter in store.dead_letters(10)] == ["dead"]
    assert store.counts().events["dead_lettered"] == 1
    assert adds_up(store)


@only_an_index
def test_a_schedule_goes_on_after_one_of_its_occurrences_was_dead_lettered(store: Store) -> None:
    give(store, record("tick", every=LATER))
    (due,) = take(store)
    store.settle([Settled(due.key, "dead_lettered", T0, "no_route", next=_later(due.record))], T0)

    assert len(store.dead_letters(10)) == 1
    assert bodies(take(store, T0 + LATER)) == ["tick"]
    assert adds_up(store)


@only_an_index
def test_a_refused_message_counts_as_scheduled_and_dead_lettered(store: Store) -> None:
    refused = record("what?", kind="refused")
    store.put(
        [
            Refuse(refused, "bad_delay", "no number"),
            Refuse(refused, "bad_delay", "no number", forward=record("what?", address="dead", kind="dead_letter")),
        ],
        T0,
    )

    assert [letter.reason for letter in store.dead_letters(10)] == ["bad_delay"]
    assert [(due.record.address, due.record.kind) for due in take(store)] == [("dead", "dead_letter")]
    assert store.counts().events["scheduled"] == store.counts().events["dead_lettered"] == 2
    assert adds_up(store)


@only_an_index
def test_the_latest_tokens_of_each_source_survive_a_restart(open_store: OpenStore) -> None:
    store = open_store()
    for batch in range(10):
        store.put([Put(record())], T0, SourceProgress("a", [b"%d-%d" % (batch, number) for number in range(4)]))
    store.put([Put(record())], T0, SourceProgress("b", [b"other"]))

    store = open_store()

    kept = store.came("a").tokens
    assert kept == [b"%d-%d" % (batch, number) for batch in range(10) for number in range(4)][-len(kept) :]
    assert 10 <= len(kept) < 20
    assert store.came("b").tokens == [b"other"]
    assert store.came("never") == SourceProgress("never", [])


@only_an_index
def test_of_logs_it_is_remembered_how_far_they_came_and_not_how(open_store: OpenStore) -> None:
    store = open_store()
    store.put([Put(record()), Put(record())], T0, SourceProgress("a", [b"log-1", b"other-1"], {b"log-": b"log-1", b"other-": b"other-1"}))
    store.put([Put(record())], T0, SourceProgress("a", [b"log-2"], {b"log-": b"log-2"}))

    store = open_store()

    assert store.came("a") == SourceProgress("a", [], {b"log-": b"log-2", b"other-": b"other-1"})
    assert store.came("b") == SourceProgress("b", [])


@only_an_index
def test_counters_tell_what_waits_by_address_and_by_hour_of_due(open_store: OpenStore) -> None:
    store = open_store()
    give(store, record("a", T0, address="x"), record("b", T0 + HOUR, address="x"), record("c", T0 + HOUR, address="y"))
    delivered(store, take(store))

    counts = open_store().counts()

    assert counts.pending == 2
    assert counts.by_address == {("rabbit", "x"): 1, ("rabbit", "y"): 1}
    assert counts.by_hour == {(T0 + HOUR) // HOUR: 2}


@without_an_index
def test_what_needs_an_index_is_refused_in_words_and_changes_nothing(store: Store) -> None:
    give(store, record("a", T0 + 1, chosen_id="a"))
    asked: list[Callable[[], object]] = [
        lambda: store.cancel("a", T0),
        lambda: store.reschedule("a", T0 + LATER, T0),
        lambda: store.find("a"),
        lambda: store.list(Query(), 10),
        lambda: store.dead_letters(10),
        lambda: store.retry_dead_letter(1, T0),
        lambda: store.drop_dead_letter(1, T0),
    ]

    for ask in asked:
        with pytest.raises(Unsupported, match="needs a time index"):
            ask()

    assert not store.cancels
    assert not store.indexed
    assert bodies(take(store, T0 + 1)) == ["a"]


@only_an_index
def test_what_can_be_looked_for_can_be_cancelled(store: Store) -> None:
    assert store.cancels
    assert store.indexed


def test_a_store_knows_its_disk(store: Store) -> None:
    assert store.room()
    assert store.free_bytes() > store.size_bytes() > 0
