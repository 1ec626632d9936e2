"""The wall clock is set back, or forth, while a lane runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.delivery.lane_bench import T0, Bench, bodies, settings

from delaybridge.adapters.base import BackOff
from delaybridge.core.fields import plain
from delaybridge.core.reasons import Reason
from delaybridge.core.schedule import Recurrence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOUR = 3_600_000


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A lane that was started while the clock was an hour ahead."""
    bench = Bench(tmp_path / "store", settings(window=10, share=5, batch=5))
    bench.lane = bench.new_lane(started=T0 + HOUR)
    bench.tick(T0 + HOUR)
    yield bench
    bench.store.close()


def test_what_falls_due_after_the_clock_was_set_back_was_not_missed(bench: Bench) -> None:
    bench.tick(T0)
    bench.put("on time", T0 + 1000, misfire="skip")

    assert bench.deliver(T0 + 1000) == ["on time"]


def test_a_repeat_goes_on_after_the_clock_was_set_back(bench: Bench) -> None:
    bench.tick(T0)
    bench.put("beat", T0 + 1000, recurrence=Recurrence(start=T0, delay=1000, period=1000, repeat=99))

    dues = []
    for now in (T0 + 1000, T0 + 2000, T0 + 3000):
        bench.tick(now)
        dues += [plain(out.message.headers)["x-delay-due"] for out in bench.wire]
        bench.deliver(now)

    assert dues == [T0 + 1000, T0 + 2000, T0 + 3000]


def test_what_was_confirmed_before_the_clock_was_set_back_is_settled(bench: Bench) -> None:
    bench.put("order-1", T0 + HOUR, now=T0 + HOUR)
    bench.tick(T0 + HOUR)
    bench.answer()
    bench.tick(T0 + HOUR)

    bench.tick(T0)

    assert bench.store.counts().pending == 0


def test_nothing_is_told_to_have_been_delivered_early_when_the_clock_is_set_back_before_the_confirm(bench: Bench) -> None:
    bench.put("order-1", T0 + HOUR, now=T0 + HOUR)
    bench.tick(T0 + HOUR)
    bench.answer()
    bench.tick(T0 + HOUR - 600)
    bench.tick(T0 + HOUR)

    assert [row.event_time - row.due_time for row in bench.store.unfiled.rows(10) if row.event == "delivered"] == [0]


def test_a_held_destination_is_tried_again_soon_after_the_clock_was_set_back(bench: Bench) -> None:
    bench.put("order-1", T0, now=T0)
    bench.tick(T0 + HOUR)
    bench.answer(BackOff(Reason.REFUSED_BY_BROKER, "no room"))
    bench.tick(T0 + HOUR)

    bench.tick(T0)

    assert bench.deliver(T0 + 2000) == ["order-1"]


def test_what_is_held_waits_until_it_is_due_again_after_the_clock_was_set_back(bench: Bench) -> None:
    bench.put("order-1", T0, now=T0)
    bench.put("order-2", T0 + HOUR, now=T0)
    bench.tick(T0 + HOUR)
    bench.answer(BackOff(Reason.REFUSED_BY_BROKER, "no room"))
    bench.tick(T0 + HOUR)
    bench.put("order-3", T0 + 3000, now=T0)

    bench.tick(T0)

    assert bench.deliver(T0 + 2000) == ["order-1"]
    bench.tick(T0 + 3000)
    assert bench.deliver(T0 + 4000) == ["order-3"]
    assert bench.deliver(T0 + HOUR - 100) == []
    assert bench.tick(T0 + HOUR - 90) == 90
    assert bench.deliver(T0 + HOUR) == ["order-2"]


def test_a_stuck_destination_is_recognised_after_the_clock_was_set_back(bench: Bench) -> None:
    for number in range(20):
        bench.put(f"stuck {number}", T0 + HOUR, address="stuck", now=T0 + HOUR)
    bench.tick(T0 + HOUR)
    bench.put("quick", T0 + 10, address="quick")

    bench.tick(T0)
    bench.tick(T0 + 1100)

    assert bodies(bench.wire)[-1] == "quick"


def test_nothing_goes_out_early_when_the_clock_is_set_back(bench: Bench) -> None:
    bench.put("later", T0 + HOUR - 1000)
    bench.tick(T0)

    assert bench.wire == []


def test_a_held_destination_is_tried_as_soon_as_it_would_have_been_without_the_clock_being_set_back(bench: Bench) -> None:
    now = T0 + HOUR + 500
    bench.put("order-1", T0)
    bench.tick(now)
    bench.answer(BackOff(Reason.REFUSED_BY_BROKER, "no room"))
    wait = bench.tick(now)

    assert bench.tick(T0) == wait


def test_a_destination_is_found_stuck_as_soon_as_it_would_have_been_without_the_clock_being_set_back(bench: Bench) -> None:
    now = T0 + HOUR + 500
    for number in range(20):
        bench.put(str(number), T0)
    wait = bench.tick(now)

    assert bench.tick(T0) == wait
