"""A lane whose sink keeps messages until they are due."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.delivery.lane_bench import T0, Bench, bodies, settings

from delaybridge.adapters.base import BackOff
from delaybridge.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REFUSED = BackOff(Reason.REFUSED_BY_BROKER, "the queue is full")
LEAD = 6


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "store", settings(lead=LEAD))
    yield bench
    bench.store.close()


def test_a_message_is_given_to_the_sink_so_long_before_it_is_due_and_the_lane_wakes_for_that(bench: Bench) -> None:
    bench.put("a", T0 + 100)
    assert (bench.tick(T0), bodies(bench.wire)) == (100 - LEAD, [])
    bench.tick(T0 + 100 - LEAD)
    assert bodies(bench.wire) == ["a"]


def test_one_that_waits_behind_its_address_is_given_as_early_and_no_earlier(bench: Bench) -> None:
    bench.put("first", T0)
    bench.tick(T0)
    bench.answer(REFUSED)
    bench.tick(T0)
    retried = T0 + 1000
    bench.put("second", retried + LEAD)
    bench.put("third", retried + LEAD + 1)
    assert bench.deliver(retried) == ["first", "second"]
    assert bench.deliver(retried + 1) == ["third"]
