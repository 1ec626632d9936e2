"""No destination waits for another: not for one that is stuck, not for one that catches up, not for a route that is paused."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from unit.delivery.lane_bench import T0, Bench, bodies, settings

from delaybridge.adapters.base import BackOff, NotConnected
from delaybridge.bridge.delivery.holds import NEVER
from delaybridge.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from delaybridge.adapters.base import Outgoing
    from delaybridge.core.store import Due

SETTINGS = settings(window=10, share=5, batch=5)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "store", SETTINGS)
    yield bench
    bench.store.close()


def _fill(bench: Bench, address: str, messages: int = 40) -> None:
    for number in range(messages):
        bench.put(f"{address} {number}", T0, address=address)


def _tick_until_idle(bench: Bench, now: int) -> int:
    """Ticks without any outcome until the lane wants to sleep; the wait. A lane that never does is caught."""
    for _ in range(200):
        if (wait := bench.tick(now)) > 0:
            return wait
    raise AssertionError("the lane ticks on and on, though only an outcome can help")


def test_a_destination_that_confirms_nothing_at_all_does_not_keep_the_window_for_itself(bench: Bench) -> None:
    _fill(bench, "stuck")
    _tick_until_idle(bench, T0)
    stuck = len(bench.wire)

    bench.put("quick", T0 + 500, address="quick")
    _tick_until_idle(bench, T0 + 1500)

    assert stuck == SETTINGS.window
    assert bodies(bench.wire[stuck:]) == ["quick"]


def test_a_stuck_destination_gets_its_share_of_the_window_and_another_half_of_what_is_free(bench: Bench) -> None:
    bench.lane.settings = settings(window=40, share=5, batch=5)
    bench.put("first", T0, address="stuck")
    bench.tick(T0)
    _fill(bench, "stuck")
    _fill(bench, "quick", 100)

    _tick_until_idle(bench, T0 + 1500)

    flying = Counter(out.address for out in bench.wire)
    assert flying == {"stuck": 5, "quick": 20}


def test_a_stuck_destination_of_large_messages_leaves_half_of_the_bytes_to_the_others(bench: Bench) -> None:
    bench.lane.settings = settings(window=40, share=20, batch=5, window_bytes=1000)
    bench.put("s" * 100, T0, address="stuck")
    bench.tick(T0)
    for number in range(20):
        bench.put(f"{number:0100}", T0, address="stuck")

    _tick_until_idle(bench, T0 + 1500)

    assert sum(len(body) for body in bodies(bench.wire)) <= 1000
    assert len(bench.wire) > 5


def test_a_slow_destination_with_much_that_is_overdue_delays_no_message_for_another(bench: Bench) -> None:
    """It confirms one message every 50 ms: too fast to be stuck, and the window is full of it all the time."""
    _fill(bench, "slow", 100)
    _tick_until_idle(bench, T0)
    bench.put("quick", T0 + 10, address="quick")

    _confirm(bench, 1)
    _tick_until_idle(bench, T0 + 50)
    _confirm(bench, 1)
    _tick_until_idle(bench, T0 + 100)

    assert "quick" in bodies(bench.wire)


def test_a_full_window_is_looked_at_again_when_its_oldest_message_becomes_slow(bench: Bench) -> None:
    _fill(bench, "stuck")

    wait = _tick_until_idle(bench, T0)

    assert wait == SETTINGS.slow_after + 1


def test_each_further_stuck_destination_leaves_room_for_the_next(bench: Bench) -> None:
    for number in range(3):
        _fill(bench, f"stuck {number}")
    for later in range(0, 6000, 500):
        _tick_until_idle(bench, T0 + later)

    bench.put("quick", T0 + 6000, address="quick")
    _tick_until_idle(bench, T0 + 6000)

    assert bodies(bench.wire)[-1] == "quick"
    assert bench.lane.in_flight <= SETTINGS.window + SETTINGS.share


def test_a_stuck_destination_gets_the_rest_in_order_when_its_confirms_come(bench: Bench) -> None:
    _fill(bench, "stuck")
    for later in range(0, 5000, 250):
        _tick_until_idle(bench, T0 + later)

    delivered = bench.answer()
    for later in range(5000, 12_000, 250):
        delivered += bench.deliver(T0 + later)

    assert delivered == [f"stuck {number}" for number in range(40)]


def test_what_a_stuck_destination_has_no_room_for_is_not_read_and_held_again_batch_by_batch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch that is held is a durable write: with thousands of them behind a slow destination, a tick would write all day."""
    bench.lane.settings = settings(window=40, share=5, batch=5)
    _fill(bench, "stuck", 200)
    for later in (0, 500, 1500, 1600):
        _tick_until_idle(bench, T0 + later)
    _confirm(bench, 36)
    hold = Mock(wraps=bench.store.hold)
    monkeypatch.setattr(bench.store, "hold", hold)

    bench.tick(T0 + 1700)

    assert hold.call_count == 1


def _confirm(bench: Bench, count: int) -> list[str]:
    """Answer the first ones on the wire."""
    first, bench.wire = bench.wire[:count], bench.wire[count:]
    bench.lane.confirm([(out.tag, None) for out in first])
    return bodies(first)


@pytest.mark.parametrize("confirmed_at_once", [2, 8])
def test_a_burst_that_got_stuck_once_goes_on_as_any_other_when_confirms_come(bench: Bench, confirmed_at_once: int) -> None:
    """What is held back is written and read once more each: a burst must not go that way to its end because of one pause."""
    _fill(bench, "burst", 400)
    for later in (0, 500, 1500):
        bench.tick(T0 + later)
    assert bench.store.counts().held > 0

    now, gone, free_after = T0 + 2000, list[str](), None
    while len(gone) < 400:
        gone += _confirm(bench, confirmed_at_once)
        bench.tick(now := now + 10)
        if free_after is None and not bench.holds.targets:
            free_after = len(gone)

    assert free_after is not None
    assert free_after < 100
    assert gone == [f"burst {number}" for number in range(400)]


def test_what_follows_a_destination_that_caught_up_waits_behind_it_again_when_the_connection_is_lost(bench: Bench) -> None:
    _fill(bench, "back", 30)
    for later in (0, 1500):
        bench.tick(T0 + later)
    held = bench.store.counts().held
    gone = bench.answer()
    while len(gone) < 10 + held:
        bench.tick(T0 + 2000)
        gone += _confirm(bench, 5)
    bench.tick(T0 + 2000)

    bench.answer(NotConnected("gone"))

    assert gone + bench.deliver(T0 + 3000) == [f"back {number}" for number in range(30)]


def _stuck_before_what_is_held(bench: Bench) -> None:
    """Five messages without an answer, and two more that came when their destination was slow."""
    bench.lane.settings = settings(window=10, share=4)
    for number in range(5):
        bench.put(f"{number}", T0 + number)
    bench.tick(T0 + 4)
    for number in (5, 6):
        bench.put(f"{number}", T0 + 1_000 + number)
    bench.tick(T0 + 1_200)
    assert bodies(bench.wire) == [f"{number}" for number in range(5)]
    assert bench.store.counts().held == 2


def test_what_a_lost_connection_leaves_in_doubt_goes_out_before_what_was_held_behind_it(bench: Bench) -> None:
    _stuck_before_what_is_held(bench)

    bench.answer(NotConnected("gone"))
    bench.lane.drain(T0 + 1_300)
    bench.lane.connected(T0 + 1_400)

    assert bench.deliver(T0 + 1_400) == [f"{number}" for number in range(7)]


def test_what_a_kill_leaves_in_doubt_goes_out_before_what_was_held_behind_it(bench: Bench, tmp_path: Path) -> None:
    _stuck_before_what_is_held(bench)
    bench.store.close()

    again = Bench(tmp_path / "store", SETTINGS)
    again.lane.connected(T0 + 1_400)

    assert again.deliver(T0 + 1_400) == [f"{number}" for number in range(7)]
    again.store.close()


def test_what_a_lost_connection_leaves_in_doubt_goes_out_before_what_was_refused_after_it(bench: Bench) -> None:
    for number in range(5):
        bench.put(f"{number}", T0 + number)
    bench.tick(T0 + 4)
    refused, bench.wire = bench.wire[3:], bench.wire[:3]
    bench.lane.confirm([(out.tag, BackOff(Reason.REFUSED_BY_BROKER, "no room")) for out in refused])
    bench.tick(T0 + 5)

    bench.answer(NotConnected("gone"))
    bench.lane.drain(T0 + 6)
    bench.lane.connected(T0 + 1_400)

    assert bench.deliver(T0 + 1_400) == [f"{number}" for number in range(5)]


def test_a_lane_whose_window_is_full_sleeps_until_an_outcome_comes(bench: Bench) -> None:
    """A held destination that may be tried is no reason to tick: there is no room for it."""
    bench.paused.add("orders")
    bench.put("order-1", T0, address="paused")
    bench.tick(T0)
    bench.paused.clear()
    _fill(bench, "stuck")
    bench.tick(T0)

    bench.holds.resume()

    assert _tick_until_idle(bench, T0) > 0


def test_a_destination_that_catches_up_leaves_half_of_the_room_to_what_falls_due(bench: Bench) -> None:
    _fill(bench, "back", 200)
    bench.tick(T0)
    bench.answer(BackOff(Reason.REFUSED_BY_BROKER, "no room"))
    while bench.store.counts().held < 200:
        bench.tick(T0)
        bench.answer(BackOff(Reason.REFUSED_BY_BROKER, "no room"))
    for _ in range(4):
        bench.tick(T0 + 2010)
        bench.answer()
    for _ in range(4):
        bench.tick(T0 + 2010)
    bench.put("quick", T0 + 2010, address="quick")

    gone: list[str] = []
    while "quick" not in gone:
        bench.tick(T0 + 2010)
        first, bench.wire = bench.wire[:2], bench.wire[2:]
        bench.lane.confirm([(out.tag, None) for out in first])
        gone += bodies(first)

    assert len(gone) < 4 * SETTINGS.window


def test_destinations_that_catch_up_take_turns(bench: Bench) -> None:
    for address in ("a", "b", "c", "d", "e", "f"):
        _fill(bench, address, 30)
    while bench.store.counts().held < 180:
        bench.tick(T0)
        bench.answer(BackOff(Reason.REFUSED_BY_BROKER, "no room"))

    gone: list[str] = []
    for _ in range(6):
        bench.tick(T0 + 2000)
        gone += bench.answer()

    assert min(sum(name[0] == address for name in gone) for address in "abcdef") > 2  # beyond its probe


def test_a_destination_that_catches_up_reads_in_portions_between_which_other_lanes_have_their_turn(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.lane.settings = settings(window=40, share=20, batch=5)
    _fill(bench, "back", 100)
    while bench.store.counts().held < 100:
        bench.tick(T0)
        bench.answer(BackOff(Reason.REFUSED_BY_BROKER, "no room"))
    due_held, sizes = bench.store.due_held, list[int]()

    def note(lane: str, address: str, now: int, limit: int, max_bytes: int) -> list[Due]:
        found = due_held(lane, address, now, limit, max_bytes)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(bench.store, "due_held", note)

    bench.tick(T0 + 2000)
    bench.answer()
    bench.tick(T0 + 2000)

    assert len(bench.wire) == 20  # half of the window, as ever
    assert max(sizes) == 5


def test_destinations_that_are_given_up_leave_what_is_due_its_turn_after_each_batch(bench: Bench) -> None:
    bench.lane.settings = settings(batch=10, give_up_after=60_000)
    for number in range(20):
        _fill(bench, f"gone {number}", 20)
    while bench.store.counts().held < 400:
        bench.tick(T0)
        bench.answer(BackOff(Reason.UNROUTABLE, "gone"))
    bench.tick(T0 + 69_000)
    bench.answer(BackOff(Reason.UNROUTABLE, "gone"))
    bench.put("due", T0 + 69_000)

    bench.tick(T0 + 69_000)

    assert bodies(bench.wire) == ["due"]
    assert bench.store.counts().shelved == 10
    while bench.tick(T0 + 69_000) == 0:
        bench.answer()
    assert bench.store.counts().shelved == 400


def test_held_destinations_respect_the_window(bench: Bench) -> None:
    """Each is probed by one message: that are many where many destinations are gone."""

    def refused(out: Outgoing) -> BackOff | None:
        return BackOff(Reason.UNROUTABLE, "gone") if out.address.startswith("gone") else None

    for number in range(50):
        bench.put(f"m {number}", T0, address=f"gone {number}")
    while bench.store.counts().held < 50:
        bench.tick(T0)
        bench.answer(refused)

    bench.tick(T0 + 2000)

    assert 0 < len(bench.wire) <= SETTINGS.window


def test_what_waits_behind_a_paused_route_does_not_pass_it_when_its_own_route_is_resumed(bench: Bench) -> None:
    bench.paused |= {"orders", "bills"}
    for number in range(8):
        bench.put(f"{number}", T0 + number, route="bills" if number % 2 else "orders")
    bench.tick(T0 + 8)

    bench.paused.discard("bills")
    bench.holds.resume()
    resumed = bench.deliver(T0 + 9)
    bench.paused.discard("orders")
    bench.holds.resume()

    assert resumed + bench.deliver(T0 + 10) == [f"{number}" for number in range(8)]


def test_a_route_that_is_resumed_while_its_message_is_being_held_back_goes_on(bench: Bench) -> None:
    """The lane has seen the pause, then the pause ends, then the lane holds the message back."""

    class Resumed(set[str]):
        def __contains__(self, route: object) -> bool:
            found = super().__contains__(route)
            if found:
                self.clear()
                bench.holds.resume()
            return found

    bench.lane.paused = Resumed({"orders"})
    bench.put("order-1", T0)
    bench.tick(T0)

    assert bench.deliver(T0) == ["order-1"]
    assert bench.holds.targets == {}


def test_a_pause_wakes_nobody(bench: Bench) -> None:
    bench.paused.add("orders")
    bench.put("order-1", T0)

    assert _tick_until_idle(bench, T0) == NEVER - T0
