"""A destination of which one partition takes no messages, while the others do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.delivery.lane_bench import T0, Bench, bodies, settings

from delaybridge.adapters.base import AdapterError, BackOff, NotConnected, Outgoing
from delaybridge.core.reasons import Reason
from delaybridge.core.targets import ANY, Partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ONE = Partition("a", 1, 2)
NO_LEADER = BackOff(Reason.REFUSED_BY_BROKER, "no leader", partitions=2)
MISSING = BackOff(Reason.UNROUTABLE, "no such topic")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "store", settings(give_up_after=60_000))
    yield bench
    bench.store.close()


def odd(error: AdapterError = NO_LEADER) -> Callable[[Outgoing], AdapterError | None]:
    """Partition 1 of 2 refuses."""
    return lambda sent: error if sent.message.key is not None and int(sent.message.key) % 2 else None


def _put(bench: Bench, *keys: int, due: int = T0) -> None:
    for key in keys:
        bench.put(str(key), due, key=key)


def _narrowed(bench: Bench, *keys: int) -> None:
    """These are held behind the whole destination, of which only a partition refuses by now."""
    _put(bench, *keys)
    bench.tick(T0)
    bench.answer(MISSING)
    bench.tick(T0)
    bench.holds.fail(ONE, "no leader", T0)
    bench.holds.works("a", T0)


def _run(bench: Bench, until: int, answer: Callable[[Outgoing], AdapterError | None] | None, start: int = T0) -> list[str]:
    """Ticks ten times a second, and what was published and confirmed meanwhile."""
    confirmed: list[str] = []
    for now in range(start, until + 1, 100):
        bench.tick(now)
        confirmed += [(sent.message.body or b"").decode() for sent in bench.wire if answer is None or answer(sent) is None]
        bench.answer(answer)
    bench.tick(until)
    return confirmed


def test_the_other_partitions_go_on_and_what_waits_for_it_follows_in_order_once_it_takes_messages(bench: Bench) -> None:
    _put(bench, 1, 2, 3)
    assert _run(bench, T0 + 1000, odd()) == ["2"]
    _put(bench, 5, 4, 7, 6, due=T0 + 1000)

    assert _run(bench, T0 + 9000, odd(), T0 + 1000) == ["4", "6"]
    assert list(bench.holds.targets) == [ONE]
    assert bench.store.counts().held == 4

    assert _run(bench, T0 + 12_000, None, T0 + 9100) == ["1", "3", "5", "7"]
    assert bench.holds.targets == {}
    assert bench.store.counts().pending == 0


def test_only_what_is_for_the_partition_is_given_up_when_it_has_refused_for_too_long(bench: Bench) -> None:
    for second in range(80):
        _put(bench, 2 * second, 2 * second + 1, due=T0 + 1000 * second)

    _run(bench, T0 + 80_000, odd())

    dead = bench.store.dead_letters(1000)
    assert 10 < len(dead) < 80
    assert {(letter.reason, int(letter.record.message.key or b"") % 2) for letter in dead} == {("delivery_failed", 1)}
    assert bench.store.counts().events["delivered"] == 80


def test_a_message_that_may_go_to_any_partition_waits_only_for_its_like(bench: Bench) -> None:
    bench.put("free", T0)
    bench.tick(T0)
    bench.answer(NO_LEADER)
    bench.tick(T0)
    assert list(bench.holds.targets) == [Partition("a", ANY, 2)]
    _put(bench, 1, 2, due=T0)

    assert _run(bench, T0 + 5000, None) == ["1", "2", "free"]


def test_what_waits_behind_a_whole_destination_goes_to_its_partition_where_only_that_refuses(bench: Bench) -> None:
    _put(bench, *range(1, 9))
    bench.tick(T0)
    bench.answer(MISSING)
    bench.tick(T0)
    assert list(bench.holds.targets) == ["a"]

    assert _run(bench, T0 + 9000, odd()) == ["2", "4", "6", "8"]
    assert list(bench.holds.targets) == [ONE]
    _put(bench, 9, 10, due=T0 + 9000)
    assert _run(bench, T0 + 12_000, None, T0 + 9000) == ["10", "1", "3", "5", "7", "9"]


def test_what_moves_to_a_partition_says_why_it_waits_there_and_not_why_it_waited_before(bench: Bench) -> None:
    _narrowed(bench, 1, 3)
    bench.tick(T0)

    assert bench.store.held("rabbit") == {ONE: (1, "no leader")}
    assert "error='no leader'" in str(bench.store.find("3"))


def test_a_whole_destination_that_refuses_meanwhile_changes_no_order(bench: Bench) -> None:
    _put(bench, 1, 2, 3)
    _run(bench, T0 + 1000, odd())
    _put(bench, 4, 5, due=T0 + 1000)

    assert _run(bench, T0 + 20_000, lambda _: MISSING, T0 + 1000) == []
    assert set(bench.holds.targets) == {ONE, "a"}
    confirmed = _run(bench, T0 + 40_000, None, T0 + 20_000)
    assert [each for each in confirmed if int(each) % 2] == ["1", "3", "5"]
    assert sorted(confirmed) == ["1", "3", "4", "5"]


def test_what_was_in_flight_when_the_connection_was_lost_goes_out_first(bench: Bench) -> None:
    _put(bench, 1, 3)
    bench.tick(T0)
    first, second = bench.wire
    bench.wire = []
    bench.lane.confirm([(second.tag, NO_LEADER)])
    bench.tick(T0)
    bench.lane.confirm([(first.tag, NotConnected("gone"))])

    assert _run(bench, T0 + 5000, None) == ["1", "3"]


def test_a_new_lane_goes_on_with_a_partition_that_was_held(bench: Bench) -> None:
    _put(bench, 1, 2, 3)
    _run(bench, T0, odd())
    bench.holds = bench.no_holds()
    bench.lane = bench.new_lane(T0 + 1000)
    assert list(bench.holds.targets) == [ONE]
    _put(bench, 4, due=T0 + 1000)

    assert _run(bench, T0 + 3000, odd(), T0 + 1000) == ["4"]
    assert _run(bench, T0 + 6000, None, T0 + 3000) == ["1", "3"]


def test_what_was_held_behind_the_whole_destination_does_not_pass_a_partition_that_is_catching_up(bench: Bench) -> None:
    _put(bench, 1, 3, 5, 7, 9)
    bench.tick(T0)
    bench.answer(lambda sent: MISSING if sent.message.key == b"9" else NO_LEADER)
    bench.tick(T0)
    for target in (ONE, "a"):
        bench.holds.slow(target, T0 + 100)  # both are tried then
    bench.lane.settings = settings(window=1, share=1)

    assert _run(bench, T0 + 9000, None) == ["1", "3", "5", "7", "9"]


def test_what_follows_in_a_batch_behind_a_message_for_a_held_partition_goes_out_with_it(bench: Bench) -> None:
    _narrowed(bench, *range(1, 9))

    bench.tick(T0)

    assert bodies(bench.wire) == ["2", "4", "6", "8"]


def test_what_is_held_at_a_partition_waits_there_while_its_route_is_paused(bench: Bench) -> None:
    _put(bench, 1, 3)
    _run(bench, T0, odd())
    bench.paused.add("orders")
    assert _run(bench, T0 + 5000, None) == []
    assert set(bench.store.held("rabbit")) == {ONE}

    bench.paused.clear()
    bench.holds.resume()
    assert _run(bench, T0 + 9000, None, T0 + 5000) == ["1", "3"]
