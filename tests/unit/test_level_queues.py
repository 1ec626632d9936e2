"""Level queues on the in-process broker, step by step: where a message is at which time, and what may go wrong on its way."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from contract.level_queues import Stepped
from contract.stores import MINUTE, T0, bodies, delivered, give, record, take
from msgspec.structs import replace
from structlog.testing import capture_logs

from delaybridge.adapters.base import Batch, NotConnected, Received
from delaybridge.adapters.memory import Memory, broker
from delaybridge.bridge.level_queues.envelope import Envelope, pack
from delaybridge.bridge.level_queues.passage import Batched, Finish
from delaybridge.bridge.level_queues.publisher import Item
from delaybridge.bridge.level_queues.store import LevelQueues
from delaybridge.core.downtimes import NONE
from delaybridge.core.fields import plain
from delaybridge.core.message import Message
from delaybridge.core.recurrence import following
from delaybridge.core.store import Held, LedgerEvent, Put, Query, Refuse, Settled, SourceProgress, StoreFull, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from delaybridge.bridge.level_queues.places import Addressed
    from delaybridge.core.store import Due

SECOND = 1_000


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(place: Path) -> Iterator[Stepped]:
    opened = Stepped(place)
    yield opened
    opened.close()  # idempotent


def depth(store: Stepped, place: Path, level: str) -> int:
    """In the queue, or taken from it and staying."""
    passage = next(passage for passage in store.passages if passage.level.name == f"levels.{level}")
    return len(broker(str(place)).queue(passage.level.name)) + passage.staying


def test_a_message_goes_down_the_levels_and_is_never_early(store: Stepped, place: Path) -> None:
    give(store, record("a", T0 + 15 * MINUTE + 1_300))
    seen = []
    for now in (*range(T0, T0 + 15 * MINUTE, 30 * SECOND), *range(T0 + 15 * MINUTE, T0 + 15 * MINUTE + 1_300, 100)):
        store.move_on(now)
        where = [level for level in ("10m", "5m", "1s", "0") if depth(store, place, level)]
        seen += [level for level in where if level not in seen]
        assert take(store, now) == []
    assert seen == ["10m", "5m", "1s"]
    assert bodies(take(store, T0 + 15 * MINUTE + 1_300)) == ["a"]


def test_what_the_bridge_held_in_memory_is_still_there_after_it_was_killed(store: Stepped, place: Path) -> None:
    give(store, record("a", T0 + 700), record("b", T0 + 3 * MINUTE))
    store.move_on(T0 + 100)

    store.die()
    again = Stepped(place)

    assert bodies(take(again, T0 + 700)) == ["a"]
    assert bodies(take(again, T0 + 3 * MINUTE)) == ["b"]
    again.close()


def test_what_a_full_disk_did_not_let_the_ledger_tell_is_told_later_and_forgotten_by_the_broker_then(
    store: Stepped, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(store, record("a"))
    (due,) = take(store)

    def full(*_: object) -> None:
        raise StoreFull("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(store.journal, "tell", full)
        with pytest.raises(StoreFull):
            store.settle([Settled(due.key, "delivered", T0)], T0)
    delivered(store, [due], T0)

    assert [row.event for row in store.journal.unfiled.rows(10)] == ["scheduled", "delivered"]
    store.move_on(T0 + SECOND)
    store.die()
    again = Stepped(place)
    assert take(again, T0 + MINUTE) == []
    again.close()


def test_a_batch_is_acknowledged_when_all_of_it_is_delivered(store: Stepped, place: Path) -> None:
    give(store, record("a"), record("b", T0 + 1))
    delivered(store, take(store, T0 + 1), T0 + 1)

    store.close()
    again = Stepped(place)

    assert take(again, T0 + 2) == []
    again.close()


def test_an_orderly_end_hands_back_what_shares_a_batch_with_something_delivered(store: Stepped, place: Path) -> None:
    give(store, record("a"), record("b", T0 + 500), record("c", T0 + 1))
    delivered(store, take(store, T0 + 1)[:1], T0 + 1)

    store.close()
    again = Stepped(place)

    assert bodies(take(again, T0 + 500)) == ["c", "b"]
    again.close()


def test_after_a_kill_a_batch_comes_again_as_a_whole(store: Stepped, place: Path) -> None:
    give(store, record("a"), record("b", T0 + 500))
    delivered(store, take(store))

    store.die()
    again = Stepped(place)

    assert bodies(take(again, T0 + 500)) == ["a", "b"], "better twice than never"
    again.close()


@pytest.mark.parametrize("way", ["put_back", "hold"])
def test_what_was_in_flight_when_its_levels_connection_broke_waits_at_the_broker_alone(store: Stepped, way: str) -> None:
    give(store, record("a"))
    (flying,) = take(store)

    for passage in store.passages:
        passage.close()
        passage.connect()
    if way == "put_back":
        store.put_back([flying.key])
    else:
        store.hold([Held(flying.key, 1, "refused")], T0)

    assert take(store, held=flying.record.address) == []
    assert bodies(take(store)) == ["a"], "the broker gives it again, once"


def test_what_was_held_and_is_delivered_or_waits_at_the_broker_again_counts_as_held_no_more(store: Stepped) -> None:
    give(store, record("a"), record("b"))
    store.hold([Held(due.key, 1, "refused") for due in take(store)], T0)
    first, second = take(store, held="orders")
    assert store.counts().held == 2

    delivered(store, [first])
    assert store.counts().held == 1
    for passage in store.passages:
        passage.close()
        passage.connect()
    store.put_back([second.key])
    assert store.counts().held == 0


def test_what_was_taken_in_is_remembered_where_its_tokens_name_one_message_each(store: Stepped, place: Path) -> None:
    for source in ("exact", "other"):
        store.put([Put(record()), Put(record())], T0, SourceProgress(source, [b"1", b"2"]))

    store.die()
    again = Stepped(place)

    assert (again.came("exact").tokens, again.came("other").tokens) == ([b"1", b"2"], [])
    again.close()


def test_what_the_broker_did_not_take_is_not_remembered(store: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise NotConnected("the broker is away")

    monkeypatch.setattr(store.doors, "_published", away)
    with pytest.raises(NotConnected):
        store.put([Put(record())], T0, SourceProgress("exact", [b"1"]))
    assert store.came("exact").tokens == []


def test_the_next_occurrence_is_at_its_level_before_this_one_is_forgotten(store: Stepped, place: Path) -> None:
    give(store, record("tick", every=MINUTE))
    (due,) = take(store)
    later = replace(due.record, schedule=replace(due.record.schedule, due=T0 + MINUTE, occurrence=2))
    store.settle([Settled(due.key, "delivered", T0, next=later)], T0)

    assert depth(store, place, "1m") == 1
    (again,) = take(store, T0 + MINUTE)
    assert (again.record.id, again.record.schedule.occurrence) == (due.record.id, 2)


def test_a_dead_letter_lies_in_a_queue_of_the_broker_with_its_reason(store: Stepped, place: Path) -> None:
    give(store, record("bad"))
    (due,) = take(store)
    store.settle([Settled(due.key, "dead_lettered", T0, "too_large", "9 MB")], T0)
    store.put([Refuse(record("worse", kind="refused"), "bad_number", "x")], T0)

    letters = [entry.message for entry in broker(str(place)).queue("levels.dead-letters")]
    assert [letter.body for letter in letters] == [b"bad", b"worse"]
    assert [plain(letter.headers)["x-delay-reason"] for letter in letters] == ["too_large", "bad_number"]


@pytest.mark.parametrize("refused", [True, False])
def test_a_dead_letter_with_a_destination_of_its_own_goes_there_under_the_same_id_and_is_told_of_once(
    store: Stepped, refused: bool
) -> None:
    letter = record("bad", T0, address="dead", kind="refused")
    if refused:
        store.put([Refuse(record("bad", kind="refused"), "bad_number", "x", letter)], T0)
    else:
        give(store, record("bad"))
        (due,) = take(store)
        store.settle([Settled(due.key, "dead_lettered", T0 + 7, "too_large", forward=letter)], T0 + 7)

    (forwarded,) = take(store, T0 + 7)
    delivered(store, [forwarded], T0 + 9)

    rows = store.journal.unfiled.rows(10)
    assert forwarded.record.address == "dead"
    assert [(row.event, row.id, row.lateness_ms) for row in rows] == [
        (event, forwarded.record.id, None) for event in ("scheduled", "dead_lettered")
    ]


def test_what_is_delivered_leaves_nothing_behind_at_the_broker(store: Stepped, place: Path) -> None:
    give(store, record("a"), record("b", T0 + 2 * SECOND))
    for now in (T0, T0 + 2 * SECOND):
        delivered(store, take(store, now), now)
    store.close()

    assert {name: len(broker(str(place)).queue(name)) for name in (*store.places.addresses, store.places.shelf)} == dict.fromkeys(
        (*store.places.addresses, store.places.shelf), 0
    )


def test_a_message_that_no_bridge_put_into_a_level_goes_to_the_dead_letters(store: Stepped, place: Path) -> None:
    options_queue = broker(str(place))
    options_queue.put("levels.1s", Message(b"hello"), Memory())
    give(store, record("a", T0 + SECOND))

    assert bodies(take(store, T0 + SECOND)) == ["a"]
    assert [entry.message.body for entry in options_queue.queue("levels.dead-letters")] == [b"hello"]


def test_a_message_for_a_broker_that_this_bridge_does_not_know_goes_round_until_one_does(store: Stepped, place: Path) -> None:
    give(store, record("a", lane="elsewhere"))
    with capture_logs() as logs:
        store.move_on(T0 + 10 * SECOND)
    assert (store.lanes(), depth(store, place, "1s")) == ([], 1), "it waits where another bridge can take it"
    assert [(line["event"], line["broker"]) for line in logs] == [("messages_without_broker", "elsewhere")], "it went round again and again"
    store.close()

    knowing = Stepped(place, lanes=("elsewhere",))

    assert bodies(take(knowing, T0 + 20 * SECOND, lane="elsewhere")) == ["a"]
    knowing.close()


def test_what_needs_an_index_is_refused_in_words(store: Stepped) -> None:
    with pytest.raises(Unsupported, match="cancelling needs a time index"):
        store.cancel("a", T0)
    with pytest.raises(Unsupported, match="listing"):
        store.list(Query(), 1)
    with pytest.raises(Unsupported, match=r"on the broker, in levels\.dead-letters"):
        store.dead_letters(1)


def test_the_ledger_tells_of_each_occurrence_once(store: Stepped) -> None:
    give(store, record("a", T0 + 3 * MINUTE))
    delivered(store, take(store, T0 + 3 * MINUTE), T0 + 3 * MINUTE + 7)

    rows = store.journal.unfiled.rows(10)
    assert [(row.event, row.due_time, row.lateness_ms) for row in rows] == [
        ("scheduled", T0 + 3 * MINUTE, None),
        ("delivered", T0 + 3 * MINUTE, 7),
    ]
    assert len({row.id for row in rows}) == 1


def test_a_lane_hears_of_what_has_come_into_memory(store: Stepped) -> None:
    give(store, record("a", T0 + 2_300))
    store.move_on(T0 + 2_100)

    assert store.woken == [("rabbit", T0 + 2_300)]


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
        batch = Batched(Batch([again], lambda: None), passage._taken, lambda: T0)
        store.hops.leave(Envelope(first.record, T0), passage._taken, T0, Finish(batch, 0, b"", again=again.redelivered))
    assert len(take(store)) == 1
