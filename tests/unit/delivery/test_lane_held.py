"""What is held behind an address is neither forgotten nor held for ever, whatever else is under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.delivery.lane_bench import T0, Bench, bodies, settings

from delaybridge.adapters.base import BackOff
from delaybridge.core.reasons import Reason
from delaybridge.core.store import Pending

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REFUSED = BackOff(Reason.REFUSED_BY_BROKER, "no room")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "store", settings(window=10, share=4, batch=5, window_bytes=1000))
    yield bench
    bench.store.close()


def test_a_lane_with_all_its_bytes_under_way_sleeps_until_an_outcome_comes(bench: Bench) -> None:
    bench.put("l" * 1000, T0, address="large")
    bench.put("next", T0)

    bench.tick(T0)
    assert bench.tick(T0) > 0
    assert len(bench.wire) == 1
    bench.answer()
    bench.tick(T0)
    assert bodies(bench.wire) == ["next"]


def test_what_is_held_is_not_forgotten_when_its_next_try_finds_all_bytes_under_way(bench: Bench) -> None:
    bench.put("held", T0)
    bench.tick(T0)
    bench.answer(REFUSED)
    bench.tick(T0)
    bench.put("l" * 2000, T0, address="large")
    bench.tick(T0)

    bench.tick(T0 + 2000)
    assert len(bench.wire) == 1
    bench.answer()

    assert bench.deliver(T0 + 2000) == ["held"]


def test_what_is_held_behind_messages_whose_end_has_passed_is_delivered(bench: Bench) -> None:
    bench.paused.add("orders")
    for number in range(7):
        bench.put(f"ended {number}", T0, ends=T0 + 5000)
    bench.put("last", T0)
    while bench.tick(T0) == 0:
        pass
    bench.paused.clear()
    bench.holds.resume()

    while bench.tick(T0 + 10_000) == 0:
        pass

    assert bodies(bench.wire) == ["last"]


def test_an_address_that_refuses_several_messages_at_once_while_it_catches_up_is_tried_again(bench: Bench) -> None:
    for number in range(3):
        bench.put(str(number), T0)
    bench.tick(T0)
    bench.answer(REFUSED)
    bench.tick(T0)
    bench.tick(T0 + 2000)
    assert bench.answer() == ["0"]
    bench.tick(T0 + 2000)
    bench.tick(T0 + 2000)
    assert bench.answer(REFUSED) == ["1", "2"]
    bench.tick(T0 + 2000)

    assert bench.deliver(T0 + 5000) == ["1", "2"]


def test_a_paused_route_keeps_no_message_of_another_waiting_that_falls_due_with_its_own(bench: Bench) -> None:
    bench.paused.add("orders")
    bench.put("order", T0)
    bench.put("bill", T0, address="b", route="bills")

    assert bench.deliver(T0) == ["bill"]


def test_what_waits_behind_a_destination_that_is_being_tried_tells_why(bench: Bench) -> None:
    bench.put("first", T0)
    bench.tick(T0)
    bench.answer(REFUSED)
    bench.tick(T0)
    bench.tick(T0 + 2000)
    bench.put("second", T0 + 2000)
    bench.tick(T0 + 2000)

    found = bench.store.find("second")

    assert isinstance(found, Pending)
    assert (found.state, found.attempts, found.error) == ("held", 0, str(REFUSED))


def test_a_destination_that_first_refuses_when_its_route_is_resumed_is_not_given_up(bench: Bench) -> None:
    bench.paused.add("orders")
    bench.put("order", T0)
    bench.tick(T0)
    bench.paused.clear()
    bench.holds.resume()
    later = T0 + 2 * bench.settings.give_up_after
    bench.tick(later)
    bench.answer(REFUSED)
    bench.tick(later)

    assert bench.deliver(later + 2000) == ["order"]


def test_a_destination_that_confirms_in_time_gets_the_whole_window(bench: Bench) -> None:
    for number in range(5):
        bench.put(f"first {number}", T0)
    bench.tick(T0)
    for number in range(10):
        bench.put(f"second {number}", T0)

    bench.tick(T0 + 10)

    assert len(bench.wire) == bench.settings.window
