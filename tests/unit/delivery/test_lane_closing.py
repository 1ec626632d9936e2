"""How messages come to their end in a lane: what follows, what is told of it, and when it is settled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.delivery.lane_bench import T0, Bench, bodies, settings

from delaybridge.adapters.base import BackOff, Rejected
from delaybridge.core.fields import plain
from delaybridge.core.reasons import Reason
from delaybridge.core.schedule import Recurrence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EACH_SECOND = Recurrence(start=T0, delay=1000, period=1000, repeat=99)
REFUSED = BackOff(Reason.REFUSED_BY_BROKER, "no room")
TOO_LARGE = Rejected(Reason.TOO_LARGE, "16 MiB at most")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "store", settings(window=10, share=4, batch=5), dead_letter="dead")
    yield bench
    bench.store.close()


def attempts(bench: Bench, event: str) -> list[int]:
    """What the ledger says of how often each was tried that came to this end."""
    return [row.attempts for row in bench.store.unfiled.rows(100) if row.event == event]


def test_a_repeat_goes_on_after_occurrences_that_were_missed_and_skipped(bench: Bench) -> None:
    bench.put("beat", T0 + 1000, recurrence=EACH_SECOND, misfire="skip")
    bench.lane = bench.new_lane(started=T0 + 10_500)

    assert bench.deliver(T0 + 10_500) == []
    assert bench.deliver(T0 + 11_000) == ["beat"]


def test_a_repeat_goes_on_after_an_occurrence_that_was_dead_lettered_and_its_dead_letter_says_which(bench: Bench) -> None:
    bench.put("beat", T0 + 1000, recurrence=EACH_SECOND)
    assert bench.deliver(T0 + 1000) == ["beat"]
    bench.tick(T0 + 2000)
    bench.answer(TOO_LARGE)
    bench.tick(T0 + 2000)
    bench.tick(T0 + 2500)
    bench.tick(T0 + 2500)

    ((address, headers),) = [(sent.address, plain(sent.message.headers)) for sent in bench.wire]
    assert (address, headers["x-delay-occurrence"]) == ("dead", 2)
    bench.answer()
    assert bench.deliver(T0 + 3000) == ["beat"]


def test_a_delivery_and_an_expiry_tell_how_often_the_message_was_tried(bench: Bench) -> None:
    bench.put("delivered", T0)
    bench.put("expired", T0, address="b", ends=T0 + 15_000)
    for later in (0, 5_000, 10_000):
        bench.tick(T0 + later)
        bench.answer(lambda sent: REFUSED if sent.address == "b" or later < 10_000 else None)  # noqa: B023 - called at once
        bench.tick(T0 + later)
    bench.tick(T0 + 20_000)
    bench.lane.drain(T0 + 20_000)

    assert (attempts(bench, "delivered"), attempts(bench, "expired")) == ([3], [3])


def test_what_is_confirmed_is_settled_in_time_however_soon_others_follow(bench: Bench) -> None:
    """Until then a kill makes a duplicate of it."""
    after = bench.settings.settle_after
    bench.put("first", T0)
    bench.put("second", T0)
    bench.tick(T0)
    first, second = bench.wire
    bench.lane.confirm([(first.tag, None)])
    bench.tick(T0)
    bench.lane.confirm([(second.tag, None)])

    assert bench.tick(T0 + after - 1) == 1
    assert bench.store.counts().events["delivered"] == 0
    bench.tick(T0 + after)
    assert bench.store.counts().events["delivered"] == 2


def test_a_dead_letter_of_a_route_that_is_configured_no_more_goes_to_the_shelf(bench: Bench) -> None:
    bench.put("huge", T0, route="removed")
    bench.tick(T0)
    bench.answer(TOO_LARGE)
    bench.tick(T0)
    bench.lane.drain(T0)
    bench.tick(T0)

    assert bodies(bench.wire) == []
    assert [dead.record.id for dead in bench.store.dead_letters(10)] == ["huge"]
