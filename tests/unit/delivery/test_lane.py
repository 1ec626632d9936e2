"""Delivery from a real store to a sink that does what each test says."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from unit.delivery.lane_bench import T0, Bench, bodies, settings

from delaybridge.adapters.base import BackOff, NotConnected, Rejected
from delaybridge.bridge.delivery.holds import NEVER
from delaybridge.core.fields import plain
from delaybridge.core.reasons import Reason
from delaybridge.core.schedule import Recurrence
from delaybridge.core.store import Held, Pending, Settled, StoreFull

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "store", settings(window=10, share=4, batch=5))
    yield bench
    bench.store.close()


def test_nothing_is_published_before_its_due_time(bench: Bench) -> None:
    bench.put("later", T0 + 1000)

    assert bench.tick(T0 + 999) == 1
    assert bench.wire == []
    bench.tick(T0 + 1000)
    assert bodies(bench.wire) == ["later"]


def test_the_tick_returns_the_wait_until_the_next_due_time(bench: Bench) -> None:
    bench.put("first", T0 + 250)
    bench.put("second", T0 + 9000)

    assert bench.tick(T0) == 250


def test_an_empty_lane_waits_until_it_is_woken(bench: Bench) -> None:
    assert bench.tick(T0) == NEVER - T0


def test_messages_go_out_by_due_time_and_then_by_arrival(bench: Bench) -> None:
    for name, due in (("c", 20), ("a", 10), ("d", 20), ("b", 10)):
        bench.put(name, T0 + due)

    assert bench.deliver(T0 + 50) == ["a", "b", "c", "d"]


def test_a_delivery_bears_its_id_occurrence_and_due_time(bench: Bench) -> None:
    bench.put("order-1", T0 + 5)
    bench.tick(T0 + 5)

    headers = plain(bench.wire[0].message.headers)

    assert headers == {"x-delay-id": "order-1", "x-delay-occurrence": 1, "x-delay-due": T0 + 5}


def test_no_more_than_the_window_is_unconfirmed(bench: Bench) -> None:
    for number in range(30):
        bench.put(str(number), T0, address=f"a{number}")

    bench.tick(T0)
    assert len(bench.wire) == 10
    bench.answer()
    bench.tick(T0)
    assert len(bench.wire) == 10


def test_what_was_confirmed_takes_no_room_any_more(bench: Bench) -> None:
    bench.lane.settings = settings(window=10, share=4, batch=5, window_bytes=150)
    for number in range(3):
        bench.put(f"{number:0100}", T0, address=f"a{number}")

    assert len(bench.deliver(T0)) == 3
    assert not bench.lane._flights.to, "a producer may name ever new destinations"


def test_an_unconfirmed_message_is_delivered_again_after_a_restart_with_the_same_id_and_occurrence(bench: Bench, tmp_path: Path) -> None:
    bench.put("order-1", T0)
    bench.tick(T0)
    before = plain(bench.wire[0].message.headers)
    bench.store.close()

    again = Bench(tmp_path / "store", settings())
    again.tick(T0 + 100)

    assert plain(again.wire[0].message.headers) == before
    again.store.close()


def test_a_confirmed_and_settled_message_is_gone(bench: Bench) -> None:
    bench.put("order-1", T0)
    bench.deliver(T0)

    assert bench.store.counts().pending == 0
    assert bench.store.counts().events["delivered"] == 1


def test_what_was_settled_is_told_to_whoever_makes_it_durable(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(bench.lane._closing, "_on_settle", lambda: told.append(bench.store.counts().events["delivered"]))
    bench.put("order-1", T0)

    bench.deliver(T0)

    assert told == [1]


def test_a_lost_connection_makes_everything_unconfirmed_due_again(bench: Bench) -> None:
    bench.put("order-1", T0)
    bench.tick(T0)

    bench.answer(NotConnected("reset"))
    bench.tick(T0 + 1)

    assert bodies(bench.wire) == ["order-1"]


def test_a_refusing_destination_delays_no_message_for_another(bench: Bench) -> None:
    for number in range(20):
        bench.put(f"bad {number}", T0, address="refusing")
        bench.put(f"good {number}", T0, address="fine")
    delivered = []
    for _ in range(30):
        bench.tick(T0)
        delivered += [
            body
            for body in bench.answer(lambda out: BackOff(Reason.REFUSED_BY_BROKER, "no room") if out.address == "refusing" else None)
            if "good" in body
        ]

    assert delivered == [f"good {number}" for number in range(20)]
    assert bench.store.counts().held == 20


def test_a_held_destination_gets_everything_in_order_once_it_works_again(bench: Bench) -> None:
    for number in range(12):
        bench.put(f"{number:02}", T0 + number, address="refusing")
    bench.tick(T0 + 12)
    bench.answer(BackOff(Reason.REFUSED_BY_BROKER, "no room"))
    bench.tick(T0 + 12)

    delivered: list[str] = []
    for later in range(20):
        delivered += bench.deliver(T0 + 5000 + later)

    assert delivered == [f"{number:02}" for number in range(12)]
    assert bench.holds.targets == {}


def test_a_later_message_does_not_overtake_a_held_one(bench: Bench) -> None:
    bench.put("first", T0, address="refusing")
    bench.tick(T0)
    bench.answer(BackOff(Reason.REFUSED_BY_BROKER, "no room"))
    bench.tick(T0)

    bench.put("second", T0 + 1, address="refusing")
    bench.tick(T0 + 1)

    assert bench.wire == []
    delivered = bench.deliver(T0 + 5000) + bench.deliver(T0 + 5001) + bench.deliver(T0 + 5002)
    assert delivered == ["first", "second"]


def test_attempts_and_the_last_error_can_be_seen(bench: Bench) -> None:
    bench.put("order-1", T0)
    bench.tick(T0)
    bench.answer(BackOff(Reason.REFUSED_BY_BROKER, "no room"))
    bench.tick(T0)

    found = bench.store.find("order-1")

    assert isinstance(found, Pending)
    assert (found.state, found.attempts, found.error) == ("held", 1, "refused_by_broker: no room")


def test_what_was_held_stays_held_over_a_restart(bench: Bench, tmp_path: Path) -> None:
    bench.put("order-1", T0)
    bench.tick(T0)
    bench.answer(BackOff(Reason.REFUSED_BY_BROKER, "no room"))
    bench.tick(T0)
    bench.store.close()

    again = Bench(tmp_path / "store", settings())

    assert list(again.holds.targets) == ["a"]
    assert again.deliver(T0 + 5000) == ["order-1"]
    again.store.close()


def test_a_message_that_the_broker_will_never_take_goes_to_the_shelf_with_the_reason(bench: Bench) -> None:
    bench.put("huge", T0)
    bench.tick(T0)
    bench.answer(Rejected(Reason.TOO_LARGE, "16 MiB at most"))
    bench.tick(T0 + 10)
    bench.tick(T0 + 20)

    (dead,) = bench.store.dead_letters(10)

    assert (dead.reason, dead.detail, dead.record.message.body) == ("too_large", "16 MiB at most", b"huge")


def test_a_dead_letter_travels_to_the_routes_dead_letter_address(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store", settings(), dead_letter="dead")
    bench.put("huge", T0)
    bench.tick(T0)
    bench.answer(Rejected(Reason.TOO_LARGE, "16 MiB at most"))
    bench.tick(T0 + 10)
    bench.tick(T0 + 20)
    bench.tick(T0 + 20)

    assert [(out.address, plain(out.message.headers)["x-delay-reason"]) for out in bench.wire] == [("dead", "too_large")]
    bench.answer()
    bench.tick(T0 + 30)
    bench.tick(T0 + 40)
    assert bench.store.counts().shelved == 0
    bench.store.close()


def test_a_dead_letter_that_nobody_takes_ends_on_the_shelf(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store", settings(), dead_letter="dead")
    bench.put("huge", T0)
    for later in range(0, 60, 10):
        bench.tick(T0 + later)
        bench.answer(Rejected(Reason.TOO_LARGE, "16 MiB at most"))
    assert bench.store.counts().shelved == 1
    bench.store.close()


def test_a_paused_route_publishes_nothing_and_loses_nothing(bench: Bench) -> None:
    bench.paused.add("orders")
    bench.put("order-1", T0)
    bench.put("order-2", T0)
    bench.tick(T0 + 100)
    assert bench.wire == []

    bench.paused.clear()
    bench.holds.resume()

    assert bench.deliver(T0 + 200) == ["order-1", "order-2"]


def test_where_another_route_is_resumed_each_paused_address_is_looked_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.paused.add("orders")
    for number in range(500):
        bench.put(str(number), T0, address=f"a {number % 2}")
    while bench.tick(T0) == 0:
        pass
    bench.lane.settings = settings(window=100, batch=5)
    held: list[int] = []
    hold = bench.store.hold

    def note(failed: Sequence[Held], now: int) -> None:
        held.append(len(failed))
        hold(failed, now)

    monkeypatch.setattr(bench.store, "hold", note)

    bench.holds.resume()
    bench.tick(T0 + 1)

    assert held == [5] * 2


def test_what_a_full_store_did_not_settle_is_settled_when_there_is_room(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it is delivered again after a restart."""
    bench.put("order-1", T0)
    bench.tick(T0)
    bench.answer()

    def full(*_: object, **__: object) -> bool:
        raise StoreFull("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(bench.store, "settle", full)
        with pytest.raises(StoreFull):
            bench.lane.drain(T0)

    assert bench.lane.drain(T0)
    assert bench.store.counts().events["delivered"] == 1


def test_a_repeat_comes_again_from_its_start_without_drift(bench: Bench) -> None:
    bench.put("beat", T0 + 1000, recurrence=Recurrence(start=T0, delay=1000, period=1000, repeat=2))

    late = [T0 + 1007, T0 + 2004, T0 + 3050]
    dues = []
    for now in late:
        bench.tick(now)
        dues += [plain(out.message.headers)["x-delay-due"] for out in bench.wire]
        bench.deliver(now)

    assert dues == [T0 + 1000, T0 + 2000, T0 + 3000]
    assert bench.store.counts().pending == 0


def test_after_downtime_a_missed_repeat_fires_once_and_goes_on(bench: Bench) -> None:
    bench.put("beat", T0 + 1000, recurrence=Recurrence(start=T0, delay=1000, period=1000, repeat=99))
    bench.lane = bench.new_lane(started=T0 + 10_500)

    bench.deliver(T0 + 10_500)

    assert bench.store.next_due("rabbit") == T0 + 11_000


def test_after_downtime_a_message_that_wants_no_late_delivery_expires(bench: Bench) -> None:
    bench.put("late", T0 + 1000, misfire="skip")
    bench.lane = bench.new_lane(started=T0 + 10_500)

    assert bench.deliver(T0 + 10_500) == []
    assert bench.store.counts().events["expired"] == 1


def test_a_message_before_its_end_is_delivered(bench: Bench) -> None:
    bench.put("offer", T0 + 1000, ends=T0 + 5000)

    assert bench.deliver(T0 + 4999) == ["offer"]


def test_a_message_past_its_end_is_not_delivered(bench: Bench) -> None:
    bench.put("offer", T0 + 1000, ends=T0 + 5000)

    assert bench.deliver(T0 + 5001) == []
    assert bench.store.counts().events["expired"] == 1


def test_one_tick_takes_a_bounded_number_of_records_whatever_becomes_of_them(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or outcomes would wait, and memory grow, while a million missed messages expire."""
    for number in range(100):
        bench.put(f"missed {number}", T0, ends=T0 + 10)
    sizes: list[int] = []
    settle = bench.store.settle

    def note(settled: Sequence[Settled], now: int, *, wait: bool) -> bool:
        sizes.append(len(settled))
        return settle(settled, now, wait=wait)

    monkeypatch.setattr(bench.store, "settle", note)

    assert bench.tick(T0 + 1000) == 0
    while bench.tick(T0 + 1000) == 0:
        pass
    bench.tick(T0 + 1000 + bench.settings.settle_after)

    assert bench.store.counts().events["expired"] == 100
    assert max(sizes) <= bench.settings.window + bench.settings.batch


def test_while_the_disk_is_busy_what_falls_due_goes_out_and_what_was_confirmed_is_settled_a_little_later(bench: Bench) -> None:
    bench.put("confirmed", T0)
    assert bench.deliver(T0) == ["confirmed"]
    bench.put("due meanwhile", T0 + 10)
    busy = threading.Event()
    done = threading.Event()

    def sync() -> None:
        with bench.store._state.write_lock:
            busy.set()
            done.wait(10)

    disk = threading.Thread(target=sync)
    disk.start()
    assert busy.wait(10)
    try:
        assert bench.deliver(T0 + 10) == ["due meanwhile"]
        assert bench.store.counts().events["delivered"] == 1
    finally:
        done.set()
        disk.join()
    bench.tick(T0 + 100)
    assert bench.store.counts().events["delivered"] == 2


def test_a_destination_whose_confirms_do_not_come_leaves_room_for_the_others(bench: Bench) -> None:
    """Slow is not failing: nothing is refused, but one destination must not fill the window alone."""
    for number in range(20):
        bench.put(f"slow {number}", T0, address="slow")
    bench.tick(T0)
    assert len(bench.wire) == 10
    bench.lane.confirm([(out.tag, None) for out in bench.wire[5:]])
    bench.put("quick", T0 + 1500, address="quick")

    for later in range(1500, 1600, 10):
        bench.tick(T0 + later)

    assert "quick" in bodies(bench.wire)
