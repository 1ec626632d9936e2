"""What the time index promises beyond the store's contract: its ledger rows, its bounds, its threads."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from brokers.common import wait_until
from contract.stores import HOUR, MINUTE, T0, adds_up, bodies, delivered, give, record, take
from msgspec.structs import replace

from delaybridge.core.schedule import Schedule
from delaybridge.core.store import Answer, Change, Due, Held, Put, Query, Refuse, Settled, StoreError, Withdraw
from delaybridge.core.time_index import TimeIndex, keys
from delaybridge.core.time_index.numbers import Numbers

if TYPE_CHECKING:
    from collections.abc import Callable


def test_each_thing_that_happens_is_one_ledger_row_with_the_next_number(index: TimeIndex) -> None:
    give(index, replace(record("four", chosen_id="a", address="x"), dialect="x-delay", source_broker="kafka", source="in"), now=T0 - 10)
    index.settle([Settled(due.key, "delivered", T0 + 7, attempts=3) for due in take(index)], T0 + 7)
    give(index, record(chosen_id="b"), now=T0)
    index.cancel("b", T0 + 1)

    rows = index.unfiled.rows(10)
    assert [(row.event, row.id, row.sequence, row.bridge) for row in rows] == [
        ("scheduled", "a", 1, "b1"),
        ("delivered", "a", 2, "b1"),
        ("scheduled", "b", 3, "b1"),
        ("cancelled", "b", 4, "b1"),
    ]
    first, second = rows[:2]
    assert (first.event_time, first.due_time, first.lateness_ms, first.attempts, first.size_bytes) == (T0 - 10, T0, None, 0, 4)
    assert (first.dialect, first.route, first.source_broker, first.source) == ("x-delay", "orders", "kafka", "in")
    assert (first.destination_broker, first.destination, first.kind, first.occurrence) == ("rabbit", "x", "once", 1)
    assert (second.event_time, second.lateness_ms, second.attempts) == (T0 + 7, 7, 3)


def test_a_record_that_came_in_late_is_late_by_its_own_due_time(index: TimeIndex) -> None:
    give(index, record("a", T0 - 50), now=T0)
    delivered(index, take(index, T0), T0 + 1)

    assert index.unfiled.rows(10)[1].lateness_ms == 51


def test_a_refused_message_is_due_when_it_came_and_its_carrier_writes_no_rows(index: TimeIndex) -> None:
    index.put([Refuse(record("?", T0 + HOUR), "bad_delay", "no number", forward=record("?", T0, address="dead", kind="dead_letter"))], T0)
    delivered(index, take(index))

    assert [(row.event, row.due_time, row.kind, row.reason) for row in index.unfiled.rows(10)] == [
        ("scheduled", T0, "refused", ""),
        ("dead_lettered", T0, "refused", "bad_delay"),
    ]
    assert index.carriers() == 0


def test_rows_stay_in_the_outbox_until_they_are_forgotten_whatever_the_batches_were(open_index: Callable[[], TimeIndex]) -> None:
    index = open_index()
    give(index, *(record(str(number)) for number in range(5)))
    give(index, record("5"))

    index.unfiled.intend(1, 3)
    index = open_index()
    assert index.unfiled.intent() == (1, 3)
    assert [row.sequence for row in index.unfiled.rows(2)] == [1, 2]
    assert [row.sequence for row in index.unfiled.rows(2, 4)] == [4, 5]
    assert [row.sequence for row in index.unfiled.rows(2, 6)] == [6]
    assert index.unfiled.rows(2, 7) == []
    index.unfiled.forget(3)

    index = open_index()
    assert index.unfiled.intent() is None
    assert index.unfiled.count() == 3
    assert [row.sequence for row in index.unfiled.rows(10)] == [4, 5, 6]
    index.unfiled.forget(6)
    index = open_index()
    assert index.unfiled.first() == 7
    give(index, record("6"))
    assert [row.sequence for row in index.unfiled.rows(10)] == [7]


def test_only_a_delivery_was_late(index: TimeIndex) -> None:
    give(index, record("a"), record("b", chosen_id="b"))
    index.settle([Settled(due.key, "expired", T0 + 7, "past its end") for due in take(index)], T0 + 7)

    assert [(row.event, row.lateness_ms) for row in index.unfiled.rows(10)] == [("scheduled", None)] * 2 + [("expired", None)] * 2


def test_a_refused_message_without_an_id_gets_one_of_its_own_that_its_carrier_bears_as_well(index: TimeIndex) -> None:
    index.put([Refuse(record("?"), "bad_delay", "no number", forward=record("?", T0, address="dead", kind="dead_letter"))] * 2, T0)
    index.put([Refuse(record("?"), "bad_delay", "no number", forward=record("?", T0, address="dead", kind="dead_letter"))], T0)

    ids = {row.id for row in index.unfiled.rows(10)}
    assert len(ids) == 3
    assert ids == {due.record.id for due in take(index)}
    assert {index.find(one) for one in ids} == {Answer("too_late")}


def test_an_id_that_the_bridge_made_leaves_nothing_on_disk_when_its_record_was_moved(index: TimeIndex) -> None:
    give(index, record("a"))
    index.reschedule(index.list(Query(), 1).items[0].record.id, T0 + 5, T0)

    delivered(index, take(index, T0 + 5), T0 + 5)

    assert list(index._state.db.ids.keys()) == [keys.WRITE_KEY]


def test_what_was_remembered_of_an_id_leaves_nothing_on_disk(index: TimeIndex) -> None:
    for number in range(100):
        give(index, record(chosen_id=f"id-{number}"))
        index.put([Withdraw(f"never-{number}")], T0)
    delivered(index, take(index))
    later = T0 + HOUR + 1

    for number in range(10):
        give(index, record(chosen_id="still here"), now=later + number)

    assert [key for key, _ in index._state.db.ids.items() if isinstance(key, bytes) and b"still here" not in key] == [keys.WRITE_KEY]


def test_an_instant_beyond_the_keys_is_refused_and_changes_nothing(index: TimeIndex) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        give(index, record("ok"), record("year 10889", 1 << 48))

    assert index.counts().pending == 0
    assert index.unfiled.rows(10) == []


def test_the_counters_show_at_most_a_thousand_addresses_but_count_all(index: TimeIndex) -> None:
    give(index, *(record(address=f"a{number}") for number in range(1_010)))

    assert len(index.counts().by_address) == 1_000
    assert index.counts().pending == 1_010


def test_a_record_is_handed_out_only_after_it_is_safe_from_a_loss_of_power(index: TimeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """A put whose sync has not come back yet is seen by `due`; it must be synced before it goes out, or it could go out twice."""
    state, synced = index._state, list[int]()
    real = state.db.sync

    def sync() -> None:
        synced.append(state.numbers.arrival)
        real()

    monkeypatch.setattr(state.db, "sync", sync)
    with monkeypatch.context() as another_thread_is_still_syncing:
        another_thread_is_still_syncing.setattr(index._access, "sync", lambda: None)
        give(index, record("a"))
    assert synced == []

    assert bodies(take(index)) == ["a"]
    assert synced == [2]


def test_a_ledger_row_is_told_only_after_what_it_tells_is_safe_from_a_loss_of_power(index: TimeIndex) -> None:
    """Else a ledger file could tell of a delivery that the machine forgot, and that happens again."""
    give(index, record("a"))
    delivered(index, take(index))
    assert index._state.unsynced_row(2)

    assert [row.event for row in index.unfiled.rows(10)] == ["scheduled", "delivered"]

    assert not index._state.unsynced_row(2)


def test_a_failed_sync_is_healed_by_opening_again_and_nothing_acknowledged_is_lost(
    index: TimeIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(index, record("before"))
    monkeypatch.setattr(index._state.db, "sync", _fail)
    give(index, record("during"))

    assert bodies(take(index)) == ["before", "during"]
    assert index.counts().pending == 2
    assert [index.mended(), index.mended()] == ["IO error: fsync", ""], "told once"


def _fail() -> None:
    raise StoreError("IO error: fsync")


def test_a_store_whose_disk_lost_a_write_refuses_everything_from_then_on(index: TimeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index._state.db, "sync", _fail)
    monkeypatch.setattr(Numbers, "written", lambda _: 0)

    with pytest.raises(StoreError, match="did not take"):
        give(index, record("a"))
    with pytest.raises(StoreError, match="failed before"):
        take(index)


def test_a_closed_store_says_so(index: TimeIndex) -> None:
    index.close()
    index.close()

    with pytest.raises(StoreError, match="closed"):
        index.counts()


def test_intake_delivery_and_control_may_work_at_the_same_time(index: TimeIndex) -> None:  # noqa: C901 - three threads
    """Every record goes out exactly once or is cancelled, and the counters agree."""
    total, seen, cancelled, errors = 3_000, list[str](), list[str](), list[BaseException]()
    done = threading.Event()

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - the test tells of it
                errors.append(error)
            finally:
                done.set()

        return run

    def intake() -> None:
        for first in range(0, total, 50):
            give(
                index,
                *(record(f"{number}", T0 + number % 7, chosen_id=f"{number}" if number % 3 else "") for number in range(first, first + 50)),
            )

    def deliver() -> None:
        while not (done.is_set() and index.next_due("rabbit") is None):
            dues = take(index, T0 + MINUTE, limit=40)
            index.put_back([due.key for due in dues[30:]])
            delivered(index, dues[:30], T0 + MINUTE)
            seen.extend(bodies(dues[:30]))

    def control() -> None:
        while not done.is_set():
            for pending in index.list(Query(id_prefix="1"), 5).items:
                if index.cancel(pending.record.id, T0).outcome == "done":
                    cancelled.append(pending.record.id)

    threads = [threading.Thread(target=work) for work in (guarded(intake), guarded(deliver), guarded(control))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert errors == []
    assert sorted(seen + cancelled, key=int) == [str(number) for number in range(total)]
    assert adds_up(index)
    assert index.counts().pending == 0


def test_a_write_that_rocksdb_would_stall_is_tried_again(index: TimeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """rocksdict would keep Python's global lock during the stall, and with it every thread of the bridge."""
    give(index, record("first"))
    root, calls = index._db._root, []

    class Stalling:
        def write(self, *given: Any) -> None:
            calls.append(given)
            if len(calls) == 1:
                raise Exception("Result incomplete: Write stall")  # noqa: TRY002 - as rocksdict raises it
            root.write(*given)

        def flush_wal(self, sync: bool) -> None:
            root.flush_wal(sync)

    monkeypatch.setattr(index._db, "_root", Stalling())
    give(index, record("a"))
    monkeypatch.setattr(index._db, "_root", root)

    assert len(calls) == 2
    assert bodies(take(index)) == ["first", "a"]


def test_a_schedule_far_in_the_future_keeps_its_place(index: TimeIndex) -> None:
    far = Schedule(due=(1 << 48) - 1)
    index.put([Put(replace(record("far"), schedule=far))], T0)

    assert index.next_due("rabbit") == (1 << 48) - 1
    assert take(index, T0 + HOUR) == []


class Beside:
    """Another thread that asks the store for something while the first of many steps is being made; `order` tells how it went."""

    def __init__(self, index: TimeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
        self.order: list[str] = []
        self.thread = threading.Thread(target=index.next_due, args=("rabbit",))
        self._index = index
        monkeypatch.setattr(index._delivery, "next_due", self._answer)

    def _answer(self, _: object) -> None:
        self.order.append("other")

    def step(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any) -> Any:
            if not self.order:
                self.thread.start()
                wait_until(lambda: self._index._state.memory_lock.wanted, "the other thread to wait")
            self.order.append("step")
            return make(*arguments)

        return made


def test_who_hands_out_many_gives_way_to_another_thread(index: TimeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    give(index, *(record(str(number)) for number in range(200)))
    beside = Beside(index, monkeypatch)
    monkeypatch.setattr(index._state, "decoded", beside.step(index._state.decoded))

    assert bodies(index.due("rabbit", T0, 200, 1 << 20)) == [str(number) for number in range(200)]
    beside.thread.join()

    assert beside.order.index("other") == 10


def test_who_settles_many_gives_way_to_another_thread(index: TimeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    give(index, *(record(str(number)) for number in range(200)))
    handed_out = index.due("rabbit", T0, 200, 1 << 20)
    beside = Beside(index, monkeypatch)
    monkeypatch.setattr(index._state.db, "write", beside.step(index._state.db.write))

    delivered(index, handed_out)
    beside.thread.join()

    assert beside.order == ["step", "other", "step", "step", "step"]
    assert adds_up(index)


def test_what_must_wait_behind_its_address_is_set_aside_in_portions_between_which_other_lanes_have_their_turn(index: TimeIndex) -> None:
    give(index, *(record(str(number), address="x") for number in range(500)))
    index.hold([Held(index.due("rabbit", T0, 1, 1 << 20)[0].key, 1, "full")], T0)
    grown = []

    while index.next_due("rabbit") is not None:
        before = index.counts().held
        assert index.due("rabbit", T0, 1000, 1 << 20) == []
        grown.append(index.counts().held - before)

    assert sum(grown) == 499
    assert 0 < max(grown) <= 100


@pytest.mark.parametrize("limit", [1, 7, 40])
def test_no_more_is_set_aside_than_half_of_what_may_go_out(index: TimeIndex, limit: int) -> None:
    """What catches up gets at least as much again: so it does catch up, in the midst of a burst."""
    give(index, *(record(str(number), address="x") for number in range(100)))
    index.hold([Held(index.due("rabbit", T0, 1, 1 << 20)[0].key, 1, "full")], T0)

    assert index.due("rabbit", T0, limit, 1 << 20) == []

    assert index.counts().held - 1 == (limit + 1) // 2


def test_what_is_held_is_handed_out_without_waiting_for_the_disk(index: TimeIndex) -> None:
    """Whoever writes has the lock of the log while an fsync lasts."""
    give(index, record("a", address="x"))
    index.hold([Held(due.key, 1, "full") for due in take(index)], T0)

    found: list[Due] = []
    thread = threading.Thread(target=lambda: found.extend(index.due_held("rabbit", "x", T0, 10, 1 << 20)), daemon=True)

    with index._state.write_lock:
        thread.start()
        thread.join(10)
        assert bodies(found) == ["a"]


@pytest.mark.parametrize("again", ["withdrawn", "replaced"])
def test_a_held_record_that_was_withdrawn_in_flight_does_not_go_out_after_a_crash(open_index: Callable[[], TimeIndex], again: str) -> None:
    """It was out for another try when its end was asked for, and the bridge died before the answer."""
    index = open_index()
    give(index, record("a", chosen_id="a", address="x"), record("b", chosen_id="b", address="x"))
    index.hold([Held(due.key, 1, "full") for due in take(index)], T0)
    assert bodies(index.due_held("rabbit", "x", T0, 1, 1 << 20)) == ["a"]
    end: Change = Withdraw("a") if again == "withdrawn" else Put(record("a", T0 + HOUR, chosen_id="a", address="y"))
    index.put([end], T0)

    index = open_index()

    assert bodies(index.due_held("rabbit", "x", T0, 10, 1 << 20)) == ["b"]
    assert index.counts().held == 1
    assert adds_up(index)
