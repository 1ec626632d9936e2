"""Receive, plan, store, acknowledge: in that order, and each message once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from delaybridge.adapters.base import Batch, Received
from delaybridge.bridge.intake.intake import Intake
from delaybridge.bridge.intake.planner import PlannedRoute, Planner
from delaybridge.bridge.metrics import Metrics
from delaybridge.core.message import message
from delaybridge.core.schedule import Limits
from delaybridge.core.store import SourceProgress, StoreFull
from delaybridge.core.time_index import TimeIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

T0 = 1_750_000_000_000


class Script:
    """A source that hands over prepared batches, and notes what is acknowledged."""

    def __init__(self) -> None:
        self.batches: list[list[Received]] = []
        self.acked = 0
        self.pending_when_acked: list[int] = []
        self.store: TimeIndex | None = None
        self.connected = False

    def connect(self) -> None:
        self.connected = True

    def receive(self, limit: int, timeout: float) -> Batch | None:  # noqa: ARG002 - the contract's arguments
        assert self.connected
        if not self.batches:
            return None
        return Batch(self.batches.pop(0), self._ack)

    def _ack(self) -> None:
        assert self.store is not None
        self.acked += 1
        self.pending_when_acked.append(self.store.counts().pending or 0)

    def close(self) -> None:
        pass


def _delayed(name: str, *, redelivered: bool = False) -> Received:
    return Received(message(name.encode(), {"x-delay": 5000}), "/queues/a", name.encode(), redelivered)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TimeIndex]:
    store = TimeIndex(tmp_path / "store", bridge="test", min_free_disk=0, reserve_bytes=0)
    yield store
    store.close()


def _intake(
    source: Script,
    store: TimeIndex,
    woken: list[tuple[str, int]] | None = None,
    dead_letter: str = "",
    *,
    exact: bool = False,
    clock: Callable[[], int] = lambda: T0,
) -> Intake:
    source.store = store
    planner = Planner(PlannedRoute(name="orders", source_broker="rabbit", source="in", lane="rabbit", dead_letter=dead_letter), Limits())
    told = woken if woken is not None else []
    intake = Intake(planner, source, store, clock, lambda lane, due: told.append((lane, due)), Metrics("test"), exact=exact)
    intake.connect()
    return intake


def _bodies(store: TimeIndex, now: int) -> Sequence[bytes | None]:
    return [due.record.message.body for due in store.due("rabbit", now, 100, 1 << 20)]


def test_a_batch_is_acknowledged_after_it_is_stored(store: TimeIndex) -> None:
    source = Script()
    source.batches = [[_delayed("a"), _delayed("b")]]

    assert _intake(source, store).step(0) == 2

    assert source.pending_when_acked == [2]


def test_what_the_store_cannot_take_is_not_acknowledged(store: TimeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreFull("no room")

    source = Script()
    source.batches = [[_delayed("a")]]
    intake = _intake(source, store)
    monkeypatch.setattr(store, "put", full)

    with pytest.raises(StoreFull):
        intake.step(0)

    assert source.acked == 0


def test_a_redelivery_of_what_is_stored_is_acknowledged_and_not_stored_twice(store: TimeIndex) -> None:
    """The bridge died between storing and acknowledging: the broker sends the batch again."""
    source = Script()
    source.batches = [[_delayed("a"), _delayed("b")]]
    _intake(source, store).step(0)
    source.batches = [[_delayed("a", redelivered=True), _delayed("b", redelivered=True), _delayed("c", redelivered=True)]]

    with capture_logs() as logs:
        _intake(source, store).step(0)

    assert _bodies(store, T0 + 5000) == [b"a", b"b", b"c"]
    assert source.acked == 2
    assert logs == [{"event": "redeliveries_suppressed", "log_level": "info", "route": "orders", "messages": 2}]


def test_the_same_message_sent_twice_is_two_messages(store: TimeIndex) -> None:
    source = Script()
    source.batches = [[_delayed("a")], [_delayed("a")]]
    intake = _intake(source, store)

    intake.step(0)
    intake.step(0)

    assert _bodies(store, T0 + 5000) == [b"a", b"a"]


def test_a_redelivery_is_recognised_behind_new_messages_too(store: TimeIndex) -> None:
    """A quorum queue whose broker was killed gives out new messages before those that it sends again."""
    source = Script()
    source.batches = [[_delayed("a")]]
    _intake(source, store).step(0)
    source.batches = [[_delayed("b"), _delayed("a", redelivered=True)]]

    _intake(source, store).step(0)

    assert _bodies(store, T0 + 5000) == [b"a", b"b"]


def test_messages_that_cannot_be_told_apart_are_never_taken_for_each_other(store: TimeIndex) -> None:
    """Two alike were stored and acknowledged; the third was on its way when the bridge died. Twice is better than never."""
    source = Script()
    source.batches = [[_delayed("ping"), _delayed("ping")]]
    _intake(source, store).step(0)
    source.batches = [[_delayed("ping", redelivered=True)]]

    _intake(source, store).step(0)

    assert _bodies(store, T0 + 5000) == [b"ping"] * 3


def _taken_after_a_kill(store: TimeIndex, stored: str, given_again: str, *, exact: bool) -> str:
    """What is taken in of a queue that gives these again; what was stored before was acknowledged, or a part of it was not. A letter is a message."""
    source = Script()
    source.batches = [[_delayed(name) for name in stored]]
    _intake(source, store, exact=exact).step(0)
    source.batches = [[_delayed(name, redelivered=True) for name in given_again]]
    _intake(source, store, exact=exact).step(0)
    return b"".join(body or b"" for body in _bodies(store, T0 + 5000)).decode()[len(stored) :]


@pytest.mark.parametrize(
    ("stored", "given_again", "taken"),
    [
        ("abcd", "cdef", "ef"),
        ("abcd", "efab", "efab"),
        ("abcd", "cdeab", "eab"),
        ("aabcd", "cdef", "cdef"),
    ],
    ids=["all different", "all stored were acknowledged", "two were not", "its producers are known for look-alikes"],
)
def test_behind_what_was_not_stored_and_after_look_alikes_nothing_is_taken_for_what_was(
    store: TimeIndex, stored: str, given_again: str, taken: str
) -> None:
    """A queue gives in its order what it gives again, and what was stored had come first."""
    assert _taken_after_a_kill(store, stored, given_again, exact=False) == taken


@pytest.mark.parametrize(("stored", "given_again", "taken"), [("abcd", "efab", "ef"), ("aabcd", "cdef", "ef")])
def test_what_names_one_message_is_recognised_wherever_it_comes(store: TimeIndex, stored: str, given_again: str, taken: str) -> None:
    assert _taken_after_a_kill(store, stored, given_again, exact=True) == taken


def test_a_new_message_that_looks_like_a_stored_one_is_a_message_of_its_own_after_a_restart_too(store: TimeIndex) -> None:
    source = Script()
    source.batches = [[_delayed("a")]]
    _intake(source, store).step(0)
    source.batches = [[_delayed("a")]]

    _intake(source, store).step(0)

    assert _bodies(store, T0 + 5000) == [b"a", b"a"]


def test_a_stored_message_accounts_for_one_redelivery_and_not_for_a_second_that_looks_like_it(store: TimeIndex) -> None:
    source = Script()
    source.batches = [[_delayed("a")]]
    _intake(source, store).step(0)
    source.batches = [[_delayed("a", redelivered=True)], [_delayed("a", redelivered=True)]]
    intake = _intake(source, store)

    intake.step(0)
    intake.step(0)

    assert _bodies(store, T0 + 5000) == [b"a", b"a"]


def test_the_search_for_redeliveries_ends(store: TimeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later look-alikes are messages of their own, for instance given back by another consumer."""
    monkeypatch.setattr("delaybridge.bridge.intake.redeliveries.SEARCH", 2)
    source = Script()
    source.batches = [[_delayed("a")]]
    _intake(source, store).step(0)
    source.batches = [[_delayed("b"), _delayed("c")], [_delayed("a", redelivered=True)]]
    intake = _intake(source, store)

    intake.step(0)
    intake.step(0)

    assert _bodies(store, T0 + 5000) == [b"a", b"b", b"c", b"a"]


def test_the_search_goes_on_where_any_message_may_be_a_redelivery(store: TimeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka gives one partition's backlog before another partition's redeliveries."""
    monkeypatch.setattr("delaybridge.bridge.intake.redeliveries.SEARCH", 2)
    source = Script()
    source.batches = [[_delayed("a")]]
    _intake(source, store).step(0)
    source.batches = [[_delayed("b", redelivered=True), _delayed("c", redelivered=True)], [_delayed("a", redelivered=True)]]
    intake = _intake(source, store, exact=True)

    intake.step(0)
    intake.step(0)

    assert _bodies(store, T0 + 5000) == [b"a", b"b", b"c"]


def _of_log(log: str, *positions: int) -> list[Received]:
    return [
        Received(message(name, {"x-delay": 5000}), "/queues/a", name, True, log=log.encode())
        for name in (f"{log}{position:03}".encode() for position in positions)
    ]


def test_of_a_log_nothing_is_taken_twice_however_much_came_of_another_one_meanwhile(store: TimeIndex) -> None:
    """Kafka gives one partition's backlog before another partition's redeliveries, and a bridge that is killed again and again gets no further."""
    source = Script()
    source.batches = [_of_log("a", 1, 2), *(_of_log("b", number) for number in range(20))]
    intake = _intake(source, store, exact=True)
    while source.batches:
        intake.step(0)
    before = len(_bodies(store, T0 + 5000))
    source.batches = [[*_of_log("b", 20), *_of_log("a", 1, 2, 3)]]

    _intake(source, store, exact=True).step(0)

    assert (before, _bodies(store, T0 + 5000)) == (22, [b"b020", b"a003"])
    assert store.came("orders") == SourceProgress("orders", [], {b"a": b"a003", b"b": b"b020"})


def test_what_comes_again_of_a_log_is_recognised_without_a_new_connection(store: TimeIndex) -> None:
    source = Script()
    source.batches = [_of_log("a", 1, 2), _of_log("a", 2, 3)]
    intake = _intake(source, store, exact=True)

    intake.step(0)
    intake.step(0)

    assert _bodies(store, T0 + 5000) == [b"a001", b"a002", b"a003"]


def test_what_a_source_gives_twice_in_one_batch_is_taken_once(store: TimeIndex) -> None:
    """As where a consumer is put back while what it has fetched still waits to be received."""
    source = Script()
    source.batches = [_of_log("a", 1, 2, 1), [*_of_log("a", 2, 3), *_of_log("b", 1), *_of_log("a", 1, 2)], _of_log("a", 3, 4)]
    intake = _intake(source, store, exact=True)
    for _ in range(3):
        intake.step(0)

    assert _bodies(store, T0 + 5000) == [b"a001", b"a002", b"a003", b"b001", b"a004"]
    assert store.came("orders").reached == {b"a": b"a004", b"b": b"b001"}


def test_the_first_message_of_a_log_that_is_new_is_taken_beside_what_comes_again_of_others(store: TimeIndex) -> None:
    source = Script()
    source.batches = [_of_log("a", 1)]
    _intake(source, store, exact=True).step(0)
    first = Received(message(b"first", {"x-delay": 5000}), "/queues/a", bytes(12), redelivered=True, log=b"b")
    source.batches = [[*_of_log("a", 1), first]]

    _intake(source, store, exact=True).step(0)

    assert _bodies(store, T0 + 5000) == [b"a001", b"first"]


def test_what_is_in_no_log_is_recognised_among_what_is(store: TimeIndex) -> None:
    """A batch that cannot be read has no position that can be trusted."""
    source = Script()
    source.batches = [[*_of_log("a", 1), _delayed("damaged"), *_of_log("a", 2)]]
    _intake(source, store, exact=True).step(0)
    source.batches = [[*_of_log("a", 1), _delayed("damaged", redelivered=True), *_of_log("a", 2, 3)]]

    _intake(source, store, exact=True).step(0)

    assert _bodies(store, T0 + 5000) == [b"a001", b"damaged", b"a002", b"a003"]


def test_lanes_are_told_the_earliest_due_time_of_the_batch(store: TimeIndex) -> None:
    source, woken = Script(), []  # type: tuple[Script, list[tuple[str, int]]]
    source.batches = [[_delayed("a"), Received(message(b"b", {"x-delay": 1000}), "/queues/a", b"b"), _delayed("c")]]

    _intake(source, store, woken).step(0)

    assert woken == [("rabbit", T0 + 1000)]


@pytest.mark.parametrize(("dead_letter", "told"), [("dead", [("rabbit", T0)]), ("", [])])
def test_a_lane_is_told_of_a_refused_message_that_it_takes_to_a_dead_letter_address(
    store: TimeIndex, dead_letter: str, told: list[tuple[str, int]]
) -> None:
    source, woken = Script(), []  # type: tuple[Script, list[tuple[str, int]]]
    cancel = Received(message(b"", {"x-delay-cancel": "order-1"}), "/queues/a", b"b")
    source.batches = [[Received(message(b"a", {"x-delay": "soon"}), "/queues/a", b"a"), cancel]]

    assert _intake(source, store, woken, dead_letter).step(0) == 2

    assert woken == told
    assert source.acked == 1


def test_what_came_and_how_far_ahead_it_is_due_is_told_and_what_was_refused_or_came_again(store: TimeIndex) -> None:
    intake = _intake(source := Script(), store)
    refused = Received(message(b"b", {"x-delay": "soon"}), "/queues/a", b"b")
    with capture_logs() as lines:
        for batch in ([_delayed("a"), refused], [_delayed("a", redelivered=True)]):
            source.batches = [batch]
            intake.connect()
            intake.step(0)
    assert {(line["event"], line.get("reason")) for line in lines} >= {("refused", "bad_duration"), ("redeliveries_suppressed", None)}
    assert {
        'delaybridge_messages_received_total{broker="rabbit",route="orders"} 3.0',
        'delaybridge_dead_letters_total{reason="bad_duration"} 1.0',
        "delaybridge_duplicates_suppressed_total 1.0",
        "delaybridge_delay_requested_seconds_count 1.0",
        "delaybridge_delay_requested_seconds_sum 5.0",
        "delaybridge_intake_batch_size_sum 3.0",
        "delaybridge_store_put_seconds_count 1.0",
    } <= set(intake._metrics.expose()[0].decode().splitlines())
    assert intake.received == 3


def test_without_messages_nothing_happens(store: TimeIndex) -> None:
    source = Script()

    assert _intake(source, store).step(0) == 0
    assert source.acked == 0


class Gatherer(Script):
    """A source that fetches."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[bool] = []

    def gather(self, *, calm: bool) -> None:
        self.told.append(calm)


@pytest.mark.parametrize(
    ("headers", "calm"),
    [
        ({"x-delay": 500}, True),
        ({"x-delay": 5000, "x-delay-id": "a"}, False),
        ({"x-delay": 499}, False),
        ({}, False),
        ({"x-delay-cancel": "a"}, False),
        ({"x-delay": "soon"}, False),
    ],
)
def test_a_source_may_gather_once_nothing_in_a_hurry_has_come_for_two_seconds(
    store: TimeIndex, headers: dict[str, Any], calm: bool
) -> None:
    """What is due within half a second, what passes through, what cancels or may replace something, and what is refused: its sender may wait for it."""
    source, clock = Gatherer(), [T0]
    intake = _intake(source, store, clock=lambda: clock[0])
    slow, other = Received(message(b"", {"x-delay": 5000}), "/queues/a", b""), Received(message(b"", headers), "/queues/a", b"")
    for at, batch in ((1_999, [slow]), (2_000, [slow, other]), (3_999, [slow]), (4_000, [slow])):
        clock[0] = T0 + at
        source.batches = [batch]
        intake.step(0)
    assert source.told == [False, calm, calm, True]
