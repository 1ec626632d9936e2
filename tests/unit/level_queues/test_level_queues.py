"""Level queues on the in-process broker, step by step: where a message is at which time, and what may go wrong on its way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract.level_queues import Stepped
from contract.stores import MINUTE, T0, bodies, delivered, give, record, take
from msgspec.structs import replace
from structlog.testing import capture_logs

from delaybridge.adapters.base import NotConnected
from delaybridge.adapters.memory import Memory, broker
from delaybridge.bridge.level_queues.envelope import Envelope, pack
from delaybridge.core.fields import plain
from delaybridge.core.message import Message
from delaybridge.core.store import Held, Put, Query, Refuse, Settled, SourceProgress, StoreFull, Unsupported

if TYPE_CHECKING:
    from pathlib import Path


SECOND = 1_000
NESTED = b"\x96" + (pack(Envelope(record("a"), T0)).body or b"")[1:] + b"\x91" * 100_000 + b"\x90"


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


def test_what_a_full_disk_did_not_let_the_ledger_tell_is_told_later_and_forgotten_by_the_broker_then(store: Stepped, place: Path) -> None:
    give(store, record("a"))
    (due,) = take(store)

    with store.full_disk(), pytest.raises(StoreFull):
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

    store.lose_connections()
    if way == "put_back":
        store.put_back([flying.key])
    else:
        store.hold([Held(flying.key, 1, "refused")], T0)

    assert take(store, held=flying.record.address) == []
    assert bodies(take(store)) == ["a"], "the broker gives it again, once"


def test_what_came_over_a_connection_that_is_lost_is_in_memory_no_more(store: Stepped) -> None:
    give(store, record("a", T0 + 700))
    store.move_on(T0 + 100)
    assert store._waiting.count() == (1, 0)

    for passage in store.passages:
        passage.close()

    assert store._waiting.count() == (0, 0)


def test_what_was_held_and_is_delivered_or_waits_at_the_broker_again_counts_as_held_no_more(store: Stepped) -> None:
    give(store, record("a"), record("b"))
    store.hold([Held(due.key, 1, "refused") for due in take(store)], T0)
    first, second = take(store, held="orders")
    assert store.counts().held == 2

    delivered(store, [first])
    assert store.counts().held == 1
    store.lose_connections()
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


@pytest.mark.parametrize("body", [b"hello", NESTED], ids=["text", "an envelope with a nested array behind its last field"])
def test_a_message_that_no_bridge_put_into_a_level_goes_to_the_dead_letters(store: Stepped, place: Path, body: bytes) -> None:
    options_queue = broker(str(place))
    options_queue.put("levels.1s", Message(body), Memory())
    give(store, record("a", T0 + SECOND))

    assert bodies(take(store, T0 + SECOND)) == ["a"]
    assert [entry.message.body for entry in options_queue.queue("levels.dead-letters")] == [body]


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
