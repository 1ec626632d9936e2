"""What waits in memory behind its last level: it goes out in order, in turn with other addresses, and never early."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract.stores import T0, bodies, record

from delaybridge.adapters.base import Batch, Received
from delaybridge.bridge.level_queues.envelope import Envelope
from delaybridge.bridge.level_queues.passage import Batched, Finish, Taken
from delaybridge.bridge.level_queues.waiting import Waiting
from delaybridge.core.message import Message
from delaybridge.core.store import Held

if TYPE_CHECKING:
    from collections.abc import Callable

    from delaybridge.core.store import Due


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


def _add(waiting: Waiting, *names: str, due: int = T0, address: str = "orders", elsewhere: Callable[[int], bool] | None = None) -> Taken:
    origin = Taken()
    batch = Batched(Batch([Received(Message(b""), "", b"")] * len(names), lambda: None, lambda _: None, elsewhere), origin, lambda: 0)
    for place, name in enumerate(names):
        waiting.add(Envelope(record(name, due, address=address), T0), origin, Finish(batch, place, b""))
    return origin


def _take(waiting: Waiting, now: int = T0, limit: int = 100, held: str | None = None) -> list[Due]:
    return waiting.due("rabbit", now, limit, 1 << 20) if held is None else waiting.due_held("rabbit", held, limit, 1 << 20)


def test_what_was_due_and_not_handed_out_is_due_no_more_when_the_clock_was_set_back(waiting: Waiting) -> None:
    _add(waiting, "1", due=T0 + 5)
    _add(waiting, "2", due=T0 + 9)
    _add(waiting, "3", due=T0 + 20)
    assert bodies(_take(waiting, T0 + 9, limit=1)) == ["1"]

    assert _take(waiting, T0 + 8) == []
    assert waiting.next_due("rabbit") == waiting.first_due() == T0 + 9
    assert bodies(_take(waiting, T0 + 9)) == ["2"]


def test_what_comes_while_more_is_due_for_its_address_than_can_go_out_is_not_early(waiting: Waiting) -> None:
    _add(waiting, "1", "2")
    assert bodies(_take(waiting, limit=1)) == ["1"]
    _add(waiting, "later", due=T0 + 500)

    assert bodies(_take(waiting)) == ["2"]
    assert waiting.next_due("rabbit") == T0 + 500
    assert bodies(_take(waiting, T0 + 500)) == ["later"]


def test_what_is_put_back_after_the_clock_was_set_back_is_not_early(waiting: Waiting) -> None:
    _add(waiting, "1", due=T0 - 5)
    _add(waiting, "2", "3", "4")
    first, second = _take(waiting, limit=2)
    waiting.put_back([first.key])
    assert bodies(_take(waiting, T0 - 5, limit=0)) == []

    _add(waiting, "5", "6", due=T0 - 5)
    assert bodies(_take(waiting, T0 - 5, limit=1)) == ["1"]
    waiting.put_back([second.key])

    assert bodies(_take(waiting, T0 - 5)) == ["5", "6"]


def test_what_is_put_back_goes_out_before_what_is_due_later(waiting: Waiting) -> None:
    _add(waiting, "1", "2", "3")
    first, _second = _take(waiting, limit=2)

    waiting.put_back([first.key])

    assert bodies(_take(waiting)) == ["1", "3"]


def test_what_was_taken_out_while_it_was_due_is_neither_handed_out_nor_counted_as_held(waiting: Waiting) -> None:
    _add(waiting, "1", "2", "3", "4")
    first, second = _take(waiting, limit=2)
    waiting.hold([Held(first.key, 1, "refused")])
    third = next(entry for entry in waiting._entries.values() if entry.record.message.body == b"3")
    waiting.take(third.key)
    waiting.take(second.key)

    assert _take(waiting) == []
    assert bodies(_take(waiting, held="orders")) == ["1", "4"]
    assert waiting.count() == (2, 2)


def test_nothing_is_due_at_an_address_of_which_all_is_gone(waiting: Waiting) -> None:
    _add(waiting, "1", "2")
    (first,) = _take(waiting, limit=1)
    for key in list(waiting._entries):
        waiting.take(key)
    assert waiting.find(first.key) is None

    _add(waiting, "other", due=T0 + 1, address="other")

    assert waiting.next_due("rabbit") == T0 + 1
    assert bodies(_take(waiting, T0 + 1)) == ["other"]


def test_what_another_bridge_is_given_meanwhile_is_not_handed_out_here_and_keeps_nothing_else_unacknowledged(waiting: Waiting) -> None:
    gone: set[int] = set()
    origin = _add(waiting, "0", "1", "2", "3", elsewhere=lambda place: place in gone)
    gone.add(1)
    first, third, fourth = _take(waiting)
    assert bodies([first, third, fourth]) == ["0", "2", "3"]

    gone.add(2)
    waiting.hold([Held(third.key, 1, "refused")])
    gone.add(3)
    waiting.put_back([fourth.key])
    assert bodies(_take(waiting)) == bodies(_take(waiting, held="orders")) == []
    assert waiting.count() == (1, 0)

    entry = waiting.take(first.key)
    assert entry is not None
    entry.finish()
    assert len(origin.passed_on) == 1


def test_what_another_bridge_is_given_can_be_let_go_of_before_its_turn_comes(waiting: Waiting) -> None:
    """Behind a destination that refuses, its turn may not come for hours. What is handed out is let go of when it comes back."""
    gone: set[int] = set()
    origin, other = _add(waiting, "0", "1", "2", elsewhere=lambda place: place in gone), _add(waiting, "other", elsewhere=lambda _: True)
    out = _take(waiting, limit=2)
    waiting.hold([Held(out[0].key, 1, "refused")])
    gone |= {0, 1, 2}

    waiting.let_go(origin)

    assert (waiting.count(), len(origin.passed_on), len(other.passed_on)) == ((2, 0), 0, 0)
    waiting.put_back([out[1].key])
    assert (waiting.count(), len(origin.passed_on)) == ((1, 0), 1)


def test_what_came_over_a_lost_connection_is_no_longer_here_and_what_is_handed_out_is_not_once_it_comes_back(waiting: Waiting) -> None:
    origin = _add(waiting, "1", "2")
    (out,) = _take(waiting, limit=1)

    origin.lost = True
    waiting.forget(origin)

    assert waiting.count() == (1, 0)
    waiting.put_back([out.key])
    assert waiting.count() == (0, 0)


def test_what_another_bridge_is_given_is_not_withdrawn_here(waiting: Waiting) -> None:
    """That bridge tells what became of it."""
    gone: set[int] = set()
    _add(waiting, "0", "1", elsewhere=lambda place: place in gone)
    keys = [one.key for one in _take(waiting)]
    waiting.put_back(keys)
    gone.add(0)

    assert [waiting.withdraw(key) is None for key in keys] == [True, False]


def test_what_is_handed_out_is_not_withdrawn(waiting: Waiting) -> None:
    _add(waiting, "0")
    (out,) = _take(waiting)

    assert waiting.withdraw(out.key) is None
    waiting.put_back([out.key])
    assert waiting.withdraw(out.key) is not None
    assert waiting.withdraw(out.key) is None, "it has left"


def test_what_was_forgotten_while_it_was_handed_out_does_not_come_back(waiting: Waiting) -> None:
    origin, _ = _add(waiting, "0", "1", "2"), _add(waiting, "other")
    first, second, third = (one.key for one in _take(waiting, limit=3))

    waiting.forget(origin, handed_out=True)
    waiting.hold([Held(first, 1, "refused")])
    waiting.put_back([second])
    waiting.release([third])

    assert waiting.count() == (1, 0)
    assert bodies(_take(waiting)) == ["other"]


def test_an_address_of_which_all_that_is_held_is_on_its_way_is_not_told_as_held(waiting: Waiting) -> None:
    _add(waiting, "0")
    waiting.hold([Held(_take(waiting)[0].key, 1, "refused")])
    assert waiting.held("rabbit") == {"orders": (1, "refused")}

    _take(waiting, held="orders")

    assert waiting.held("rabbit") == {}


def test_what_is_refused_again_is_held_once(waiting: Waiting) -> None:
    _add(waiting, "0")
    for attempt in (1, 2):
        (out,) = _take(waiting, held="orders" if attempt > 1 else None)
        waiting.hold([Held(out.key, attempt, "refused")])

    assert waiting.count() == (1, 1)


def test_what_was_taken_out_and_given_back_goes_out_again(waiting: Waiting) -> None:
    _add(waiting, "0")
    (out,) = _take(waiting)
    entry = waiting.take(out.key)
    assert entry is not None
    assert waiting.take(out.key) is None

    waiting.give_back([entry])
    waiting.put_back([out.key])

    assert bodies(_take(waiting)) == ["0"]


def test_whatever_way_records_come_and_go_they_are_counted_and_dead_letters_on_their_way_are_not(waiting: Waiting) -> None:
    origin = _add(waiting, "taken", "forgotten", "withdrawn", "delivered")
    carriers = [Envelope(record(name, T0, kind="dead_letter"), T0) for name in ("carried", "carried too")]
    batch = Batched(Batch([Received(Message(b""), "", b"")] * 2, lambda: None, lambda _: None), origin, lambda: 0)
    for place, envelope in enumerate(carriers):
        waiting.add(envelope, origin, Finish(batch, place, b""))
    keys = {body: due.key for due in _take(waiting) for body in bodies([due])}
    assert waiting.count() == (4, 0)

    waiting.hold([Held(key, 1, "no queue") for key in keys.values()])
    assert waiting.count() == (4, 6)

    out = [entry for name in ("taken", "carried") if (entry := waiting.take(keys[name]))]
    assert (len(out), waiting.count()) == (2, (3, 4))
    waiting.give_back(out)
    assert waiting.count() == (4, 4)
    assert waiting.withdraw(keys["withdrawn"])
    assert waiting.count() == (3, 3)
    waiting.forget(origin, handed_out=True)
    assert waiting.count() == (0, 0)


def test_an_address_behind_which_nothing_waits_any_more_takes_no_memory(waiting: Waiting) -> None:
    """There may be any number of addresses."""
    _add(waiting, "1", "2")
    waiting.hold([Held(due.key, 1, "refused") for due in _take(waiting)])
    first, second = _take(waiting, held="orders")
    lane = waiting._lanes["rabbit"]
    assert waiting.take(first.key) is not None
    assert lane.behind == {"orders": 1}
    assert waiting.take(second.key) is not None
    assert not lane.behind
    assert not lane.held
