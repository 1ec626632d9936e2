"""Moving house between a time index and level queues: what is where afterwards, what the ledger says, and what an interruption costs."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest
from contract.stores import HOUR, MINUTE, T0, adds_up, bodies, delivered, give, record, take
from msgspec.structs import replace
from unit.migration import at_once, back, configured, levels, messages, out, texts

from delaybridge.adapters import memory
from delaybridge.adapters.base import AdapterError, BackOff, NotConnected, Rejected
from delaybridge.bridge.config import Config
from delaybridge.bridge.level_queues.envelope import Envelope, pack, unpack
from delaybridge.bridge.migration import Place, into, place, to_level_queues, to_time_index
from delaybridge.bridge.migration.out import OUT
from delaybridge.core.fields import plain
from delaybridge.core.message import Message
from delaybridge.core.reasons import Reason
from delaybridge.core.store import Held, LedgerEvent, Put, Refuse, Settled, StoreFull, Withdraw
from delaybridge.core.time_index import TimeIndex, keys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from delaybridge.adapters.base import Batch, Confirm, Outgoing, Sink
    from delaybridge.core.store import Record


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return configured(tmp_path)


@pytest.fixture
def there(config: Config) -> Place:
    return place(config, "here", "levels")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once(monkeypatch)


def test_everything_goes_to_the_level_that_fits(index: TimeIndex, there: Place) -> None:
    give(index, record("a", T0 + 2 * HOUR), record("b", T0 + 5 * MINUTE), record("c", T0 + 900), record("d", T0 + 1_000), record("e", T0))
    moved = out(index, there)
    assert {name: texts(found) for name, found in levels(there).items()} == {"0": ["e", "c"], "1s": ["d"], "1m": ["b"], "1h": ["a"]}
    assert (moved.records, moved.dead_letters, moved.withdrawn) == (5, 0, 0)
    assert index.counts().pending == 0


def test_there_and_back_a_schedule_is_the_same_and_the_ledger_tells_of_it_once(index: TimeIndex, there: Place) -> None:
    given = [record("a", T0 + HOUR, chosen_id="order-7"), record("b", T0 + MINUTE, every=MINUTE), record("c", T0 + 5)]
    give(index, *given)
    (tick,) = take(index, T0 + 5)
    index.put_back([tick.key])
    before = {each.record.id: each.record for each in index.migration.waiting(10, "", T0)[0]}

    out(index, there)
    came = back(index, there)

    assert (came.records, came.again, came.left) == (3, 0, 0)
    assert {each.record.id: each.record for each in index.migration.waiting(10, "", T0)[0]} == before
    assert [row.event for row in index.unfiled.rows(100)] == ["scheduled"] * 3
    assert index.counts().pending == 3
    assert index.counts().by_address == {("rabbit", "orders"): 3}
    assert adds_up(index)
    delivered(index, take(index, T0 + HOUR), T0 + HOUR)
    assert adds_up(index)


@pytest.mark.parametrize(
    "error", [None, NotConnected("no broker"), AdapterError("not allowed")], ids=["done", "nobody answers", "not allowed"]
)
def test_what_has_come_is_deleted_where_the_broker_keeps_it(
    index: TimeIndex, there: Place, monkeypatch: pytest.MonkeyPatch, error: AdapterError | None
) -> None:
    left: list[list[int]] = []

    def trim(queues: memory.MemoryLevels) -> None:
        left.append(queues.depths())
        if error is not None:
            raise error

    monkeypatch.setattr(memory.MemoryLevels, "trim", trim, raising=False)
    give(index, record("a", T0 + HOUR))
    out(index, there)
    assert back(index, there).records == 1
    assert left == [[0, 0, 0, 0]]


def test_what_a_bridge_held_that_was_killed_is_waited_for_and_the_wait_is_told(
    index: TimeIndex, there: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(index, record("a", T0 + HOUR))
    out(index, there)
    receive, told = memory.MemorySource.receive, list[int]()

    def held(source: memory.MemorySource, limit: int, timeout: float) -> Batch | None:
        return receive(source, limit, timeout) if len(told) >= 2 else None

    monkeypatch.setattr(memory.MemorySource, "receive", held)
    monkeypatch.setattr(memory.MemoryLevels, "held_after_a_kill", 30.0)
    assert to_time_index(index, there, lambda: T0, told.append).records == 1
    assert told == [0, 0, 1]


def test_a_chosen_id_is_found_where_its_message_is(index: TimeIndex, there: Place) -> None:
    give(index, record("a", T0 + HOUR, chosen_id="order-7"))
    out(index, there)
    assert index.cancel("order-7", T0).outcome == "unknown"
    back(index, there)
    assert index.cancel("order-7", T0).outcome == "done"
    assert adds_up(index)


def test_of_messages_under_one_id_each_comes_back_once_although_they_are_due_together(index: TimeIndex, there: Place) -> None:
    """Where level queues cannot replace, an id that is sent again is a second message; a batch that was taken in twice is none."""
    first, second = (record(body, T0 + HOUR, chosen_id="order-7") for body in ("first", "second"))
    with there.outlet() as outlet:
        outlet.publish([there.places.enter(one, None, T0) for one in (first, replace(first, taken=T0 + 1), second)])

    came = back(index, there)

    assert (came.records, came.again) == (2, 1)
    assert bodies(take(index, T0 + HOUR)) == ["first", "second"]


def _leave(there: Place, *records: Record, orders: Sequence[int]) -> None:
    """As bridges left them at a level, that have told the ledger of each order once."""
    options = there.options
    assert isinstance(options, memory.Memory)
    for one, order in zip(records, orders, strict=True):
        memory.broker(options.name).put("levels.1h", pack(Envelope(one, T0, order=order)), options)


@pytest.mark.parametrize("orders", [(1, 2, 2), (1, 1, 2), (1, 2, 1), (1, 1, 1)])
def test_of_a_message_that_was_scheduled_twice_the_ledger_hears_what_became_of_both(
    index: TimeIndex, there: Place, orders: Sequence[int]
) -> None:
    """A bridge was killed before its source heard of it, and the next one took it in; a hop that a kill repeats is no second schedule."""
    message = replace(record("a", T0 + HOUR), id="a", taken=T0)
    series = replace(record("tick", T0 + HOUR, every=MINUTE), id="tick", taken=T0)
    _leave(there, *(replace(message, taken=T0 + order) for order in orders), orders=orders)
    _leave(there, *[series] * len(orders), orders=orders)
    index.tell([LedgerEvent("scheduled", T0, one) for one in (message, series) for _ in set(orders)], T0)

    back(index, there)

    assert index.counts().pending == 2
    assert adds_up(index)


def test_of_a_message_that_was_scheduled_twice_the_ledger_hears_once_if_the_way_back_is_killed_too(index: TimeIndex, there: Place) -> None:
    """Between the disk and the acknowledgement."""
    message = replace(record("a", T0 + HOUR), id="a")
    _leave(there, *(replace(message, taken=T0 + order) for order in (1, 2)), orders=(1, 2))
    index.tell([LedgerEvent("scheduled", T0, message)] * 2, T0)

    def killed(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        to_time_index(index, there, lambda: T0, killed)
    back(index, there)

    assert (index.counts().pending, index.counts().events["replaced"]) == (1, 1)
    assert adds_up(index)


class Picky:
    """A sink whose broker never takes what is large, and is full of what is wanted later."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._confirm: Confirm = lambda _: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def connect(self, confirm: Confirm) -> None:
        self._confirm = confirm
        self._sink.connect(confirm)

    def publish(self, messages: Sequence[Outgoing]) -> None:
        refusals = {b"large": Rejected(Reason.REJECTED_BY_BROKER, "too large"), b"full": BackOff(Reason.REFUSED_BY_BROKER, "full")}
        told = [(each.tag, refusals.get(unpack(each.message).record.message.body or b"")) for each in messages]
        self._sink.publish([each for each, (_, error) in zip(messages, told, strict=True) if error is None])
        self._confirm([(tag, error) for tag, error in told if error is not None])


def test_what_the_broker_never_takes_stays_and_is_named_and_nothing_beside_it_is_doubled(index: TimeIndex, there: Place) -> None:
    give(index, *(record(body, T0 + HOUR, chosen_id=body) for body in ("a", "large", "b")))
    picky = there._replace(sink=Picky(there.sink))

    moved = [out(index, picky) for _ in range(2)]

    assert [(each.records, each.refused) for each in moved] == [
        (2, ["large: rejected_by_broker: too large"]),
        (0, ["large: rejected_by_broker: too large"]),
    ]
    assert index.counts().pending == 1
    assert sorted(unpack(each).record.id for each in messages(there, "1h")) == ["a", "b"]


def test_what_moved_beside_a_message_that_is_refused_for_now_does_not_move_again(index: TimeIndex, there: Place) -> None:
    give(index, *(record(body, T0 + HOUR, chosen_id=body) for body in ("a", "full", "b")))
    picky = there._replace(sink=Picky(there.sink))

    for _ in range(2):
        with pytest.raises(AdapterError, match=r"did not take 1 messages: .*full"):
            out(index, picky)

    out(index, there)
    assert sorted(unpack(each).record.id for each in messages(there, "1h")) == ["a", "b", "full"]


def test_an_id_of_the_bridges_own_is_found_after_the_way_back(index: TimeIndex, there: Place) -> None:
    give(index, record("a", T0 + HOUR))
    name = index.migration.waiting(1, "", T0)[0][0].record.id
    out(index, there)
    give(index, record("other", T0 + HOUR))
    back(index, there)
    assert index.cancel(name, T0).outcome == "done"
    assert bodies(take(index, T0 + HOUR)) == ["other"]


def test_what_is_held_back_moves_as_well(index: TimeIndex, there: Place) -> None:
    give(index, record("a"), record("b", address="bills"))
    index.hold([Held(due.key, 1, "refused") for due in take(index)], T0)
    out(index, there, T0 + 1)
    assert sorted(texts(levels(there)["0"])) == ["a", "b"]
    assert (index.counts().pending, index.counts().held, index.held("rabbit")) == (0, 0, {})


def test_a_message_that_was_withdrawn_on_the_wire_before_a_crash_does_not_move(index: TimeIndex, there: Place, tmp_path: Path) -> None:
    give(index, record("a", chosen_id="order-7"))
    assert take(index)
    index.put([Withdraw("order-7")], T0)
    index.close()
    again = TimeIndex(tmp_path, bridge="b1", min_free_disk=0, reserve_bytes=0)
    assert out(again, there).records == 0
    assert [row.event for row in again.unfiled.rows(10)] == ["scheduled", "cancelled"]
    assert adds_up(again)
    again.close()


def test_dead_letters_go_to_their_queue_with_their_reasons(index: TimeIndex, there: Place) -> None:
    give(index, record("a"), record("on its way"))
    first, second = take(index)
    carried = replace(second.record, address="dead", kind="refused")
    index.settle(
        [
            Settled(first.key, "dead_lettered", T0, "too_large", "9 MB"),
            Settled(second.key, "dead_lettered", T0, "too_large", forward=carried),
        ],
        T0,
    )
    index.put([Refuse(record("b", kind="refused"), "bad_number", "x")], T0)

    moved = out(index, there)

    assert [(each.body, plain(each.headers)["x-delay-reason"]) for each in messages(there, "dead-letters")] == [
        (b"a", "too_large"),
        (b"b", "bad_number"),
    ]
    assert texts(levels(there)["0"]) == ["on its way"]
    assert (moved.records, moved.dead_letters) == (1, 2)
    assert (index.counts().shelved, index.carriers()) == (0, 0)
    assert adds_up(index)
    back(index, there)
    assert (index.counts().pending, index.carriers()) == (0, 1)
    assert adds_up(index)


def test_cancellations_that_wait_for_their_schedules_are_counted(index: TimeIndex, there: Place) -> None:
    index.put([Withdraw("one"), Withdraw("two"), Put(record("a", chosen_id="three"))], T0)
    index.put([Withdraw("three")], T0)
    assert out(index, there).withdrawn == 2


def test_many_batches_move_each_message_once(index: TimeIndex, there: Place) -> None:
    count = 2 * OUT + 7
    give(index, *(record(str(number), T0 + HOUR + number % 10) for number in range(count)))
    told: list[int] = []
    to_level_queues(index, there, lambda: T0, told.append)
    assert told == [OUT, 2 * OUT, count]
    found = levels(there)["1h"]
    assert [each.schedule.due for each in found] == sorted(each.schedule.due for each in found)
    assert sorted(map(int, texts(found))) == list(range(count))
    assert back(index, there).records == count


def test_a_move_out_that_was_killed_doubles_one_batch_at_most_and_the_way_back_finds_it(
    index: TimeIndex, there: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 3 * OUT
    give(index, *(record(str(number), T0 + HOUR) for number in range(count)))
    move, calls = index.migration.out, []

    def killed(keys: Sequence[bytes]) -> None:
        calls.append(len(keys))
        if len(calls) == 2:
            raise KeyboardInterrupt
        move(keys)

    monkeypatch.setattr(index.migration, "out", killed)
    with pytest.raises(KeyboardInterrupt):
        out(index, there)
    monkeypatch.undo()
    out(index, there)

    found = [(each.id, each.schedule.occurrence) for each in levels(there)["1h"]]
    assert (len(found), len(set(found))) == (count + OUT, count)
    came = back(index, there)
    assert (came.records, came.again) == (count, OUT)
    assert index.counts().pending == count


def test_a_broker_that_refuses_stops_the_move_and_nothing_is_forgotten(config: Config, index: TimeIndex) -> None:
    strict = config.model_copy(update={"brokers": Config.model_validate(
        {"brokers": {"here": {"type": "memory", "name": secrets.token_hex(4), "create_queues": False}}, "routes": [
            {"name": "jobs", "from": {"broker": "here", "queue": "in"}, "to": {"broker": "here"}}]}).brokers})  # fmt: skip
    give(index, record("a", T0 + HOUR))
    with pytest.raises(AdapterError, match="did not take 1 messages: unroutable"):
        out(index, place(strict, "here", "levels"))
    assert index.counts().pending == 1


def test_a_way_back_that_was_killed_keeps_each_message_once(index: TimeIndex, there: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    give(index, *(record(str(number), T0 + HOUR) for number in range(50)))
    out(index, there)
    monkeypatch.setattr(into, "IN", 20)
    take_in: Callable[[Sequence[Record], int], list[Record | None]] = index.migration.take_in

    def killed(records: Sequence[Record], now: int) -> list[Record | None]:
        take_in(records, now)
        raise NotConnected("killed between the disk and the acknowledgement")

    monkeypatch.setattr(index.migration, "take_in", killed)
    with pytest.raises(NotConnected):
        back(index, there)
    monkeypatch.setattr(index.migration, "take_in", take_in)
    came = back(index, there)

    assert (came.records, came.again) == (30, 20)
    assert index.counts().pending == 50
    assert sorted(map(int, bodies(take(index, T0 + HOUR)))) == list(range(50))


def test_two_occurrences_of_one_schedule_both_come_back(index: TimeIndex, there: Place) -> None:
    """As a bridge leaves them that died between publishing the next one and forgetting this one."""
    options = there.options
    assert isinstance(options, memory.Memory)
    one = replace(record("tick", T0 + MINUTE, every=MINUTE), id="tick")
    later = replace(one, schedule=replace(one.schedule, due=T0 + 2 * MINUTE, occurrence=2))
    for each in (one, later, later):
        memory.broker(options.name).put("levels.1m", pack(Envelope(each, T0)), options)
    came = back(index, there)
    assert (came.records, came.again) == (2, 1)
    assert [due.record.schedule.occurrence for due in take(index, T0 + HOUR)] == [1, 2]


def test_what_no_bridge_put_into_a_level_is_shelved(index: TimeIndex, there: Place) -> None:
    options = there.options
    assert isinstance(options, memory.Memory)
    memory.broker(options.name).put("levels.1m", Message(b"hello"), options)
    assert back(index, there).strange == 1
    (letter,) = index.dead_letters(10)
    assert (letter.record.message.body, letter.record.kind, letter.reason) == (b"hello", "refused", "rejected_by_broker")
    assert adds_up(index)


def test_a_disk_that_is_full_leaves_everything_on_the_broker(tmp_path: Path, index: TimeIndex, there: Place) -> None:
    give(index, record("a", T0 + HOUR))
    out(index, there)
    full = TimeIndex(tmp_path / "full", bridge="test", min_free_disk=100, reserve_bytes=0, free_bytes=lambda: 50)
    with pytest.raises(StoreFull):
        back(full, there)
    full.close()
    assert texts(levels(there)["1h"]) == ["a"]


def test_what_has_moved_out_leaves_nothing_of_its_id(index: TimeIndex, there: Place) -> None:
    give(index, record("a", T0 + HOUR, chosen_id="a"))

    out(index, there)

    assert list(index._state.db.ids.keys()) == [keys.WRITE_KEY]
