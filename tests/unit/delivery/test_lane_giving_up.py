"""When a destination that fails is given up, and what its messages are told to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import structlog
from contract.stores import record
from msgspec.structs import replace
from unit.delivery.lane_bench import T0, Bench, bodies, settings

from delaybridge.adapters.base import BackOff, Rejected
from delaybridge.core.dead_letters import carrier
from delaybridge.core.message import message
from delaybridge.core.reasons import Reason
from delaybridge.core.store import Refuse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REFUSED = BackOff(Reason.UNROUTABLE, "no such queue")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A lane whose destinations are given up when they have failed for a minute."""
    bench = Bench(tmp_path / "store", settings(give_up_after=60_000))
    yield bench
    bench.store.close()


def _fail(bench: Bench, now: int) -> None:
    """Whatever is published now is refused."""
    bench.tick(now)
    assert bench.wire
    bench.answer(REFUSED)
    bench.tick(now)


def test_a_destination_that_fails_for_too_long_gives_its_overdue_messages_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store", settings(give_up_after=60_000))
    for number in range(3):
        bench.put(str(number), T0)
    now = T0
    while bench.store.counts().shelved < 3:
        bench.tick(now)
        bench.answer(BackOff(Reason.UNROUTABLE, "no such queue"))
        now += 1000
        assert now < T0 + 120_000

    assert now >= T0 + 60_000
    assert {dead.reason for dead in bench.store.dead_letters(10)} == {"delivery_failed"}
    bench.store.close()


def failing(tmp_path: Path) -> Bench:
    """Ninety-five messages behind a destination that has begun to fail, and is given up after a minute, ten at a time."""
    bench = Bench(tmp_path / "store", settings(give_up_after=60_000, batch=10))
    for number in range(95):
        bench.put(f"old-{number}", T0)
    bench.tick(T0)
    bench.answer(BackOff(Reason.UNROUTABLE, "no such queue"))
    bench.tick(T0 + 1)
    return bench


def test_what_a_failing_destination_gives_up_is_all_that_is_old_enough_and_nothing_else(tmp_path: Path) -> None:
    """With a batch for each retry the backlog of a busy destination would grow for ever."""
    bench = failing(tmp_path)
    bench.put("young", T0 + 59_000)

    now = T0 + 70_000
    bench.tick(now)
    assert bench.answer(BackOff(Reason.UNROUTABLE, "no such queue")) == ["old-0"]
    while bench.tick(now) == 0:
        assert bench.wire == []

    assert bench.store.counts().shelved == 95
    bench.tick(now + 1000)
    assert bodies(bench.wire) == ["young"]
    bench.store.close()


def test_what_is_paused_is_not_given_up(tmp_path: Path) -> None:
    bench = failing(tmp_path)
    bench.tick(T0 + 70_000)
    bench.answer(BackOff(Reason.UNROUTABLE, "no such queue"))
    bench.tick(T0 + 70_000)
    bench.paused.add("orders")

    while bench.tick(T0 + 70_000) == 0:
        pass

    assert (bench.store.counts().shelved, bench.store.counts().pending, bench.wire) == (10, 85, [])
    bench.store.close()


def test_a_destination_that_works_again_while_it_is_given_up_gets_the_rest(tmp_path: Path) -> None:
    bench = failing(tmp_path)
    _fail(bench, T0 + 70_000)
    bench.tick(T0 + 72_000)
    assert bench.answer() == ["old-20"]

    assert bench.deliver(T0 + 72_000) == [f"old-{number}" for number in range(21, 95)]
    assert bench.store.counts().shelved == 20
    bench.store.close()


def test_a_destination_that_worked_in_between_is_given_up_a_while_after_that(bench: Bench) -> None:
    for number in range(3):
        bench.put(str(number), T0)
    _fail(bench, T0)
    bench.tick(T0 + 30_000)
    bench.answer()
    _fail(bench, T0 + 30_000)

    _fail(bench, T0 + 70_000)
    assert bench.store.counts().shelved == 0
    _fail(bench, T0 + 90_000)
    assert bench.store.counts().shelved == 2


def test_a_destination_that_failed_is_tried_with_one_message_of_all_that_wait(bench: Bench) -> None:
    for number in range(3):
        bench.put(str(number), T0)
    _fail(bench, T0)

    bench.tick(T0 + 5000)

    assert bodies(bench.wire) == ["0"]


def test_a_dead_letter_whose_own_destination_fails_is_shelved_with_what_was_wrong_with_it(bench: Bench) -> None:
    kept = replace(record("a", kind="refused"), message=message(b"body", {"x-delay": "soon"}))
    forward = carrier(kept, "orders.dead", T0, "bad_duration", "'soon' is not a duration")
    bench.store.put([Refuse(kept, "bad_duration", "'soon' is not a duration", forward)], T0)
    _fail(bench, T0)
    _fail(bench, T0 + 60_000)

    (dead,) = bench.store.dead_letters(10)
    assert dead.reason == "bad_duration"
    assert dead.detail == "'soon' is not a duration (and as a dead letter to 'orders.dead': unroutable: no such queue)"


def test_what_a_header_held_is_in_no_log(bench: Bench) -> None:
    kept = replace(record("a", kind="refused"), message=message(b"body", {"x-delay": "John Doe"}))
    forward = carrier(kept, "orders.dead", T0, "bad_duration", "'John Doe' is not a duration")
    bench.store.put([Refuse(kept, "bad_duration", "'John Doe' is not a duration", forward)], T0)

    with structlog.testing.capture_logs() as logs:
        _fail(bench, T0)
        _fail(bench, T0 + 60_000)

    assert "unroutable" in str(logs)
    assert "John" not in str(logs)


def test_where_no_time_is_set_a_destination_is_never_given_up(bench: Bench) -> None:
    bench.lane.settings = settings(give_up_after=0)
    bench.put("order-1", T0)
    _fail(bench, T0)

    assert bench.deliver(T0 + 365 * 24 * 3_600_000) == ["order-1"]


def test_a_destination_that_failed_before_a_long_pause_is_tried_again_before_it_is_given_up(bench: Bench) -> None:
    bench.put("order-1", T0)
    _fail(bench, T0)
    bench.paused.add("orders")
    bench.tick(T0 + 5000)
    assert bench.wire == []

    bench.paused.clear()
    bench.holds.resume()
    bench.tick(T0 + 200_000)

    assert bodies(bench.wire) == ["order-1"]
    assert bench.store.counts().shelved == 0


def test_a_destination_that_has_just_begun_to_fail_is_not_given_up_because_the_clock_is_set_back(bench: Bench) -> None:
    bench.lane = bench.new_lane(started=T0 + 3_600_000)
    bench.put("overdue", T0 - 3_600_000)
    _fail(bench, T0 + 3_600_000)

    bench.tick(T0)
    bench.tick(T0 + 5000)

    assert bodies(bench.wire) == ["overdue"]
    assert bench.store.counts().shelved == 0


def test_a_clock_that_is_set_forward_makes_no_more_than_a_minute_of_refusing(tmp_path: Path) -> None:
    """Nor does a machine that slept."""
    bench = Bench(tmp_path / "store", settings(give_up_after=120_000))
    bench.put("order-1", T0)
    for now in (T0, T0 + 2000, T0 + 7_200_000, T0 + 7_240_000):
        _fail(bench, now)
    assert bench.store.counts().shelved == 0

    _fail(bench, T0 + 7_280_000)
    assert bench.store.counts().shelved == 1
    bench.store.close()


def test_a_destination_that_is_mended_before_the_next_try_gets_everything(bench: Bench) -> None:
    for number in range(3):
        bench.put(str(number), T0)
    _fail(bench, T0)
    _fail(bench, T0 + 59_000)

    assert bench.deliver(T0 + 120_000) == ["0", "1", "2"]


def test_time_in_which_the_broker_could_not_be_reached_does_not_count(bench: Bench) -> None:
    """Nor do the first refusals after it: a queue's leader may still be missing."""
    for number in range(3):
        bench.put(str(number), T0)
    _fail(bench, T0)
    bench.lane.connected(T0 + 3_600_000)
    _fail(bench, T0 + 3_600_000)
    assert bench.store.counts().shelved == 0

    _fail(bench, T0 + 3_660_000)
    assert bench.store.counts().shelved == 3


def test_a_clock_that_is_set_back_while_the_broker_is_away_makes_no_time_of_refusing(bench: Bench) -> None:
    bench.put("order-1", T0 - 3_600_000)
    _fail(bench, T0 + 200_000)
    bench.lane.connected(T0)

    _fail(bench, T0)

    assert bench.store.counts().shelved == 0


def test_what_was_held_before_a_restart_and_an_outage_is_tried_first(bench: Bench) -> None:
    bench.put("order-1", T0)
    _fail(bench, T0)
    bench.lane = bench.new_lane(started=T0 + 1000)
    bench.lane.connected(T0 + 7_200_000)

    assert bench.deliver(T0 + 7_200_000) == ["order-1"]


def test_what_has_ended_meanwhile_is_expired_and_not_given_up(bench: Bench) -> None:
    bench.put("due", T0)
    bench.put("over", T0, ends=T0 + 50_000)
    _fail(bench, T0)
    _fail(bench, T0 + 60_000)

    events = {row.id: (row.event, row.reason) for row in bench.store.unfiled.rows(10) if row.event != "scheduled"}
    assert events == {"over": ("expired", "ended"), "due": ("dead_lettered", "delivery_failed")}


def test_what_is_given_up_tells_how_often_it_was_tried_itself(bench: Bench) -> None:
    bench.put("first", T0)
    bench.put("second", T0)
    for now in (T0, T0 + 30_000, T0 + 60_000):
        _fail(bench, now)

    assert [(dead.record.id, dead.attempts) for dead in bench.store.dead_letters(10)] == [("first", 3), ("second", 1)]


def test_a_dead_letter_tells_how_often_it_was_tried(bench: Bench) -> None:
    bench.put("huge", T0)
    _fail(bench, T0)
    _fail(bench, T0 + 5000)
    bench.tick(T0 + 10_000)
    bench.answer(Rejected(Reason.TOO_LARGE, "16 MiB at most"))
    bench.tick(T0 + 10_000)
    bench.lane.drain(T0 + 10_000)

    assert [dead.attempts for dead in bench.store.dead_letters(10)] == [3]
    assert [row.attempts for row in bench.store.unfiled.rows(10) if row.event == "dead_lettered"] == [3]


def _told(bench: Bench, now: int, *answers: BackOff | None) -> list[str]:
    """What the log says of the destination while its next tries are answered so, a minute apart."""
    with structlog.testing.capture_logs() as logs:
        for later, answer in enumerate(answers):
            bench.tick(now + later * 60_000)
            bench.answer(answer)
            bench.tick(now + later * 60_000)
        bench.tick(now + len(answers) * 60_000)
    return [line["event"] for line in logs if line["event"].startswith("destination_")]


def test_a_destination_is_told_as_free_once_it_takes_messages_and_not_where_what_waited_was_given_up(bench: Bench) -> None:
    bench.put("a", T0)
    assert _told(bench, T0, REFUSED, None) == ["destination_held", "destination_free"]
    bench.put("b", T0 + 200_000)
    assert _told(bench, T0 + 200_000, REFUSED, REFUSED, REFUSED) == ["destination_held"]
    assert bench.store.counts().shelved == 1
    assert bench.holds.targets == {}


@pytest.mark.parametrize("restarted", [True, False], ids=["restart", "pause"])
def test_a_destination_that_refuses_is_told_also_after_a_pause_and_after_a_restart(bench: Bench, restarted: bool) -> None:
    bench.put("a", T0, address="full")
    if restarted:
        bench.holds.restore("full", 3, str(REFUSED), T0)
    else:
        bench.holds.pause("full")
        bench.holds.resume()
    assert _told(bench, T0, REFUSED) == ["destination_held"]
