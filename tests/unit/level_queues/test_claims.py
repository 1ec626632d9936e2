"""Level queues with a log of ids: what was cancelled or replaced goes no further, wherever it is met, and the ledger adds up."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from brokers.common import wait_until
from contract.level_queues import Stepped
from contract.stores import HOUR, MINUTE, T0, bodies, delivered, give, record, take
from msgspec.structs import replace
from unit.level_queues.sharing import Sharing, log_of

from delaybridge.adapters.base import NotConnected
from delaybridge.adapters.moves import LEAD
from delaybridge.bridge.level_queues import entries
from delaybridge.bridge.level_queues.ids import endings
from delaybridge.bridge.level_queues.ids import replica as module
from delaybridge.bridge.level_queues.ids.claims import named
from delaybridge.bridge.level_queues.ids.lines import Claim
from delaybridge.bridge.level_queues.ids.register import Claiming, Register
from delaybridge.bridge.level_queues.ids.replica import Replica
from delaybridge.core.ledger import CLOSING
from delaybridge.core.store import MEMORY_MS, Answer, Held, Put, Settled, SourceProgress, StoreFull, Unsupported, Withdraw

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(sharing: Sharing) -> Sharing:
    return sharing


def closed(store: Sharing) -> None:
    """Nothing waits any more, and all is accounted for."""
    assert store.events["scheduled"] == sum(store.events.get(event, 0) for event in CLOSING)
    wait_until(lambda: store.replica.size == 0, "the ids to be forgotten")


def test_what_was_cancelled_is_not_handed_out_and_everything_else_is(store: Sharing) -> None:
    give(store, record("a", T0 + MINUTE, chosen_id="a"), record("b", T0 + MINUTE, chosen_id="b"), record("c", T0 + MINUTE))
    assert store.cancel("a", T0) == Answer("done")
    assert store.handed_out(T0 + MINUTE) == ["b", "c"]
    assert store.events == {"scheduled": 3, "cancelled": 1}


def test_what_another_bridge_has_cancelled_and_told_of_is_not_delivered_by_one_that_had_stood_still(store: Sharing) -> None:
    store.holds(record("a", T0 + 500, chosen_id="a"))
    store.ends_elsewhere("cancelled")

    assert store.handed_out(T0 + 500) == []
    assert store.events == {"scheduled": 1}, "the other one has told of it"
    assert store.left() == 0


def test_nor_is_it_where_its_id_was_used_again_meanwhile(store: Sharing) -> None:
    store.holds(record("old", T0 + 500, chosen_id="a"))
    store.ends_elsewhere("replaced")
    (new,), _ = store.register.enter([Claiming("a", T0 + 200)], T0)
    store.read()
    store.register.ended("a", new, "delivered", T0 + 200)
    wait_until(lambda: store.replica.size == 0, "the end to be read")

    assert store.handed_out(T0 + 500) == []
    assert store.left() == 0


def test_nor_is_it_where_so_much_else_has_ended_meanwhile_that_this_is_forgotten(store: Sharing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "REMEMBERED", 1)
    store.holds(record("a", T0 + 500, chosen_id="a"), record("b", T0 + 500, chosen_id="b"))
    monkeypatch.setattr(module, "FRESH", -1.0)  # it knows too little to deliver anything
    assert take(store, T0 + 500) == []
    store.ends_elsewhere("cancelled")
    monkeypatch.setattr(module, "FRESH", 1.0)
    came: list[str] = []

    def let_go() -> bool:
        came.extend(store.handed_out(T0 + 500))
        return store.holding == 0

    wait_until(let_go, "it to let go of both")
    assert came == []
    assert store.left() == 0


def test_what_another_bridge_has_ended_goes_to_no_further_level(store: Sharing) -> None:
    store.put([Put(record("a", T0 + 3 * HOUR, chosen_id="a"))], T0)
    store.read()
    (word,) = store.replica.ids.words("a")
    store.register.ended("a", Claim(word.mark, word.place), "cancelled", T0)
    wait_until(lambda: store.replica.size == 0, "the end to be read")

    store.move_on(T0 + 2 * HOUR)

    assert store.events == {"scheduled": 1}, "the other one has told of it"
    assert store.left() == 0


def test_of_two_cancellations_that_come_together_one_is_enough(store: Sharing) -> None:
    """A producer that sent its cancellation twice: neither must take the other for the one that counts, and withdraw."""
    answers = store.put([Put(record("a", T0 + MINUTE, chosen_id="a")), Withdraw("a"), Withdraw("a")], T0)
    assert [answer.outcome for answer in answers] == ["done", "too_late"]
    wait_until(lambda: len(store.replica.ids.words("a")) == 2, "the second one to be withdrawn")
    assert store.handed_out(T0 + MINUTE) == []
    assert store.events == {"scheduled": 1, "cancelled": 1}


def test_a_message_that_was_cancelled_ends_where_it_leaves_a_level(store: Sharing) -> None:
    give(store, record("a", T0 + 3 * HOUR, chosen_id="a"))
    store.cancel("a", T0)
    store.read()
    store.move_on(T0 + HOUR)
    assert store.events == {"scheduled": 1}
    store.move_on(T0 + 2 * HOUR)
    assert store.events == {"scheduled": 1, "cancelled": 1}
    closed(store)


def test_a_message_that_is_sent_again_under_its_id_replaces_what_waits(store: Sharing) -> None:
    give(store, record("old", T0 + MINUTE, chosen_id="a", lane="kafka"), record("later", T0 + HOUR, chosen_id="b"))
    give(store, record("new", T0 + 2 * MINUTE, chosen_id="a"), record("sooner", T0 + MINUTE, chosen_id="b"))
    store.read()
    assert take(store, T0 + MINUTE, lane="kafka") == []
    first = take(store, T0 + MINUTE)
    assert bodies(first) == ["sooner"]
    delivered(store, first, T0 + MINUTE)
    second = take(store, T0 + 2 * MINUTE)
    assert bodies(second) == ["new"]
    delivered(store, second, T0 + 2 * MINUTE)
    assert store.handed_out(T0 + HOUR) == []
    assert store.events == {"scheduled": 4, "delivered": 2, "replaced": 2}
    closed(store)


def test_a_cancel_of_which_a_full_disk_lets_the_ledger_tell_nothing_is_told_when_there_is_room(store: Sharing) -> None:
    give(store, record("a", T0 + MINUTE, chosen_id="a"))
    with store.full_disk():
        assert store.cancel("a", T0) == Answer("done")
        store.read()
        store.move_on(T0 + MINUTE)
        store.sync()
        assert store.events == {"scheduled": 1}
    store.sync()

    assert store.events == {"scheduled": 1, "cancelled": 1}


def test_a_cancellation_that_overtakes_its_message_wins(store: Sharing) -> None:
    assert store.put([Withdraw("a"), Put(record("a", T0 + 500, chosen_id="a")), Put(record("again", T0 + 500, chosen_id="a"))], T0) == [
        Answer("unknown")
    ]
    assert store.handed_out(T0 + 500) == ["again"]
    assert store.events == {"scheduled": 2, "cancelled": 1}


def test_a_cancellation_waits_for_its_message_for_as_long_as_is_remembered(store: Sharing) -> None:
    store.put([Withdraw("a"), Withdraw("b")], T0)
    store.put([Put(record("a", T0 + MEMORY_MS + HOUR, chosen_id="a"))], T0 + MEMORY_MS)
    store.put([Put(record("b", T0 + MEMORY_MS + HOUR, chosen_id="b"))], T0 + MEMORY_MS + 1)
    assert store.handed_out(T0 + MEMORY_MS + HOUR) == ["b"]
    assert store.events == {"scheduled": 2, "cancelled": 1}


def test_a_message_that_is_held_back_is_taken_away_when_it_is_cancelled(store: Sharing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delaybridge.bridge.level_queues.store.ENDING", 10.0)
    give(store, record("a", chosen_id="a"), record("b"))
    store.read()
    store.hold([Held(due.key, 1, "refused") for due in take(store)], T0)
    assert store.cancel("a", T0) == Answer("done")
    assert bodies(take(store, T0, held="orders")) == ["b"]
    assert store.events == {"scheduled": 2, "cancelled": 1}


@pytest.mark.parametrize("way", ["put_back", "hold"])
def test_what_is_cancelled_while_it_is_out_and_was_not_delivered_is_cancelled_then(
    store: Sharing, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr("delaybridge.bridge.level_queues.store.ENDING", 0.0)
    give(store, record("a", chosen_id="a"))
    store.read()
    (due,) = take(store)
    assert store.cancel("a", T0) == Answer("in_flight")
    if way == "put_back":
        store.put_back([due.key])
        assert take(store) == []
    else:
        store.hold([Held(due.key, 1, "refused")], T0)
        assert take(store, held="orders") == []
    assert store.events == {"scheduled": 1, "cancelled": 1}
    closed(store)


def test_while_a_bridge_cannot_read_nothing_that_claims_an_id_is_delivered_and_all_else_is(
    store: Sharing, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(store, record("a", chosen_id="a"), record("b"))
    store.read()
    monkeypatch.setattr(module, "FRESH", -1.0)
    (due,) = take(store)
    assert due.record.message.body == b"b"
    store.woken.clear()
    monkeypatch.setattr(module, "FRESH", 1.0)
    wait_until(lambda: ("rabbit", T0) in store.woken, "the lane to be told")
    assert bodies(take(store)) == ["a"]


def test_what_claims_an_id_is_not_delivered_before_its_claim_is_read(store: Sharing, monkeypatch: pytest.MonkeyPatch) -> None:
    """However lately this bridge has looked: a cancel may stand behind the claim."""
    monkeypatch.setattr(module, "FRESH", 3_600.0)
    store.reader.stop()
    give(store, record("a", chosen_id="a"))
    assert take(store) == []

    store.replica.connect()
    store.replica.look(lambda: False)

    assert bodies(take(store)) == ["a"]


def test_what_was_held_back_and_could_not_be_looked_up_waits_for_its_turn_anew(store: Sharing, monkeypatch: pytest.MonkeyPatch) -> None:
    give(store, record("a", chosen_id="a"))
    store.read()
    store.hold([Held(due.key, 1, "refused") for due in take(store)], T0)
    monkeypatch.setattr(module, "FRESH", -1.0)
    assert take(store, held="orders") == []
    monkeypatch.setattr(module, "FRESH", 1.0)
    wait_until(lambda: store.next_due("rabbit") == T0, "it to be there again")
    assert store.held("rabbit") == {}
    assert bodies(take(store)) == ["a"]


def test_what_leaves_with_its_connection_just_as_it_is_found_cancelled_is_told_of_by_whoever_gets_it_then(
    store: Sharing, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.holds(record("a", T0 + 500, chosen_id="a"))
    store.read()
    (due,) = take(store, T0 + 500)
    store.register.cancel("a", T0, 0.0)
    store.read()
    store.put_back([due.key])
    take_out = store._waiting.take

    def too_late(key: bytes) -> None:
        assert take_out(key) is not None

    monkeypatch.setattr(store._waiting, "take", too_late)
    assert take(store, T0 + 500) == []
    assert store.events == {"scheduled": 1}


def test_what_is_withdrawn_or_belongs_to_another_bridge_just_as_it_is_handed_out_is_not_delivered(store: Sharing) -> None:
    store.holds(record("a", T0 + 500, chosen_id="a"), record("b", T0 + 500))
    found = store._waiting.due("rabbit", T0 + 500, 10, 1_000_000)
    assert bodies(found) == ["a", "b"]
    for due in found:
        store._waiting.take(due.key)
    assert store.claims.standing(found) == []


def test_what_is_due_behind_what_was_cancelled_is_handed_out_at_once(store: Sharing) -> None:
    store.holds(record("a", T0 + 500, chosen_id="a"), record("b", T0 + 500))
    found = take(store, T0 + 500)
    store.register.cancel("a", T0, 0.0)
    store.read()
    store.put_back([due.key for due in found])
    assert bodies(store.due("rabbit", T0 + 500, 1, 1_000_000)) == ["b"]


@pytest.mark.parametrize("error", [NotConnected("the broker is away"), StoreFull("the ledger has no room")])
def test_what_comes_again_because_its_batch_was_not_taken_in_claims_its_id_only_once_the_log_was_looked_at(
    store: Sharing, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Another bridge may have had it in between, and ended it."""
    batch = [Put(record("a", T0 + MINUTE, chosen_id="a"))], T0, SourceProgress("exact", [b"token"])
    store.reader.stop()
    store.replica.connect()
    store.replica.look(lambda: True)
    monkeypatch.setattr(module, "FRESH", HOUR)
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    with monkeypatch.context() as away:
        away.setattr(store.doors, "enter", Mock(side_effect=error))
        with pytest.raises(type(error), match=str(error)):
            store.put(*batch)
    store.replica._read(10.0)

    with pytest.raises(NotConnected, match="has not read the log of ids"):
        store.put(*batch)
    store.replica.look(lambda: True)
    store.put(*batch)
    assert store.events == {"scheduled": 1}


def test_an_id_that_the_bridge_made_is_the_same_whenever_a_route_is_given_a_message_and_another_one_by_another_route() -> None:
    def made(route: str) -> str:
        change = named(Put(record("a")), route, b"token")
        assert isinstance(change, Put)
        return change.record.id

    assert made("one") == made("one")
    assert made("one") != made("other")


def test_a_cancel_stops_a_series_under_the_id_that_the_bridge_made(store: Sharing) -> None:
    give(store, record("tick", every=MINUTE))
    store.read()
    (due,) = take(store)
    later = replace(due.record, schedule=replace(due.record.schedule, due=T0 + MINUTE, occurrence=2))
    store.settle([Settled(due.key, "delivered", T0, next=later)], T0)
    wait_until(lambda: store.replica.ids.words(due.record.id)[0].until == T0 + MINUTE, "the next due time to be known")
    assert store.cancel(due.record.id, T0) == Answer("done")
    assert store.handed_out(T0 + MINUTE) == []
    assert store.events == {"scheduled": 2, "delivered": 1, "cancelled": 1}
    closed(store)


@pytest.mark.parametrize("event", ["dead_lettered", "expired"])
def test_whatever_ends_a_message_frees_its_id(store: Sharing, event: str) -> None:
    give(store, record("a", chosen_id="a"))
    store.read()
    (due,) = take(store)
    store.settle([Settled(due.key, event, T0, "too_large")], T0)  # type: ignore[arg-type]
    closed(store)
    assert store.cancel("a", T0) == Answer("too_late", event, T0)  # type: ignore[arg-type]


def test_claims_survive_a_bridge_that_is_killed_and_one_that_hands_back(store: Sharing, tmp_path: Path) -> None:
    give(store, record("cancelled", T0 + 500, chosen_id="a"), record("kept", T0 + 500, chosen_id="b"))
    store.move_on(T0 + 100)
    assert store.cancel("a", T0 + 100) == Answer("done")
    store.close()
    again = Sharing(tmp_path / "store").start()
    assert again.handed_out(T0 + 500) == ["kept"]
    again.close()


def test_what_needs_an_index_is_refused_all_the_same(store: Sharing) -> None:
    give(store, record("a", T0 + MINUTE, chosen_id="a"))
    with pytest.raises(Unsupported, match="rescheduling or releasing a message needs a time index"):
        store.reschedule("a", T0, T0)
    with pytest.raises(Unsupported, match="looking up an id"):
        store.find("a")


def test_what_was_replaced_a_second_before_it_is_due_is_not_handed_out_to_a_lane_that_asks_ahead_of_time(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    due, seconds = T0 + 3_000, 1_000.0
    monkeypatch.setattr(module, "LOOK", 0.0)
    monkeypatch.setattr(module, "uptime", lambda: seconds)
    monkeypatch.setattr(entries, "uptime", lambda: seconds)
    store = Stepped(place, log=log_of(str(place)))
    assert store.claims.register is not None
    ours = store.claims.register.replica
    ours.connect()
    give(store, record("old", due, chosen_id="a"))
    seconds += 1.995
    store.move_on(T0 + 1_995)
    ours.look(lambda: False)  # and no more

    theirs = Replica(log_of(str(place)), lambda: T0 + 1_997, lambda _: None, lambda: None)
    theirs.connect()
    theirs.look(lambda: False)
    Register(theirs, lambda: T0 + 1_997, MEMORY_MS).enter([Claiming("a", T0 + HOUR)], T0 + 1_997)

    seconds = 1_003 - LEAD / 1_000
    store.move_on(due - LEAD)
    assert take(store, due) == []
    store.close()
