"""The daemon's threads when their broker goes away. Tests wait for conditions, never for time."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from brokers.common import wait_until
from structlog.testing import capture_logs
from unit.delivery.lane_bench import T0, Bench, bodies, settings

from delaybridge.adapters.base import NotConnected, Outgoing
from delaybridge.bridge import workers
from delaybridge.bridge.delivery import worker as lane_worker
from delaybridge.bridge.delivery.backoff import Backoff
from delaybridge.bridge.delivery.worker import LaneWorker
from delaybridge.bridge.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from delaybridge.adapters.base import Confirm

PATIENCE = 10.0


class Flaky:
    """A sink whose connections confirm the first message of the first batch, and break with the second; after some of them nobody answers."""

    def __init__(self, connections: int) -> None:
        self.connections = connections
        self.attempts = 0
        self.published = threading.Event()
        self.refused = threading.Event()
        self._unconfirmed: Sequence[Outgoing] = ()

    def connect(self, confirm: Confirm) -> None:
        self.attempts += 1
        if self.attempts > self.connections:
            self.refused.set()
            raise NotConnected("nobody answers")
        self._confirm = confirm

    def publish(self, messages: Sequence[Outgoing]) -> None:
        if self._unconfirmed:
            raise NotConnected(f"reset by {len(messages)} messages")
        self._unconfirmed = messages[1:]
        self._confirm([(messages[0].tag, None)])
        self.published.set()

    def close(self) -> None:
        unconfirmed, self._unconfirmed = self._unconfirmed, ()
        if unconfirmed:
            self._confirm([(sent.tag, NotConnected("closed")) for sent in unconfirmed])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "store", settings(settle_after=3_600_000))
    yield bench
    bench.store.close()


def _worker(bench: Bench, sink: Flaky, failures: list[BaseException]) -> LaneWorker:
    return LaneWorker(bench.lane, sink, lambda: T0, Metrics("test"), lambda _, error: failures.append(error), drain_for=0.1)


def test_while_a_broker_is_away_nothing_is_in_flight_and_what_it_confirmed_is_settled(bench: Bench) -> None:
    """It may be away for hours: a crash meanwhile must double nothing, and a cancellation must not be told to wait."""
    for name in ("confirmed", "unknown", "unknown too"):
        bench.put(name, T0)
    sink, failures = Flaky(connections=1), []  # type: tuple[Flaky, list[BaseException]]
    worker = _worker(bench, sink, failures)

    worker.start()
    try:
        assert sink.published.wait(PATIENCE)
        bench.put("later", T0)
        worker.poke()
        assert sink.refused.wait(PATIENCE)

        assert bench.store.counts().events["delivered"] == 1
        assert bench.store.cancel("unknown", T0).outcome == "done"
    finally:
        worker.stop()
        assert worker.join(PATIENCE)
    assert failures == []


def test_a_lane_hears_of_each_connection_before_it_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the time in which its broker was away counts as if its destinations had refused."""
    for name in ("confirmed", "unknown"):
        bench.put(name, T0)
    heard: list[int] = []
    monkeypatch.setattr(bench.lane, "connected", lambda _: heard.append(bench.lane.published))
    worker = _worker(bench, sink := Flaky(connections=2), [])
    worker.start()
    try:
        assert sink.published.wait(PATIENCE)
        bench.put("later", T0)
        worker.poke()
        wait_until(lambda: len(heard) == 2, "the second connection")
    finally:
        worker.stop()
        assert worker.join(PATIENCE)
    assert heard[0] == 0


def test_a_broker_that_was_never_reached_is_seen_as_not_connected(bench: Bench) -> None:
    """Else the alert for it cannot fire: it looks for a series with the value 0."""
    metrics, sink = Metrics("test"), Flaky(connections=0)
    worker = LaneWorker(bench.lane, sink, lambda: T0, metrics, lambda *_: None, drain_for=0.1)
    worker.start()
    assert sink.refused.wait(PATIENCE)
    assert _shown(metrics, bench) == "0.0"
    worker.stop()
    assert worker.join(PATIENCE)


def _shown(metrics: Metrics, bench: Bench) -> str:
    """What the metrics say of the connection to the lane's broker."""
    _, told = metrics.expose()[0].decode().split(f'delaybridge_broker_connected{{broker="{bench.lane.name}"}} ')
    return told.split("\n")[0]


def test_a_broker_is_seen_as_connected_from_then_on_until_it_is_lost(bench: Bench) -> None:
    metrics = Metrics("test")
    worker = LaneWorker(bench.lane, Flaky(connections=0), lambda: T0, metrics, lambda *_: None, drain_for=0.1)
    seen: list[tuple[bool, str]] = []

    def look() -> None:
        seen.append((worker.connected, _shown(metrics, bench)))

    def serve() -> None:
        look()
        worker.stop()
        raise NotConnected("reset")

    worker._serve(lambda: None, serve, look)

    assert seen == [(True, "1.0"), (False, "0.0"), (False, "0.0")]


def test_a_broker_that_stays_away_is_tried_again_after_growing_waits_of_seconds_at_most(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, tries, waits = _worker(bench, Flaky(connections=0), []), 60, []  # type: tuple[LaneWorker, int, list[float]]

    def wait(timeout: float) -> None:
        waits.append(timeout)

    monkeypatch.setattr(worker.stopping, "wait", wait)

    def connect() -> None:
        if len(waits) < tries:
            raise NotConnected("nobody answers")

    assert worker._connect(connect)

    assert len(waits) == tries
    assert waits[0] <= 0.2
    assert 1.0 < sum(waits[10:]) / (tries - 10) < 4.0, "they are at random, between 0 and 5 s"


def test_what_nobody_foresaw_of_a_connection_ends_the_thread(bench: Bench) -> None:
    """Else it would be tried for ever, and nobody would hear of it."""
    worker = _worker(bench, Flaky(connections=0), [])

    def connect() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        worker._connect(connect)


def test_a_broker_that_stays_away_is_told_once_a_minute_and_where_the_reason_is_another_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With level queues twenty threads try every few seconds: an hour's outage wrote thirty thousand lines."""
    now, reasons = 0.0, ["refused", "refused", "refused", "refused", "no route", "refused"]
    worker = _worker(bench, Flaky(connections=0), [])
    monkeypatch.setattr(workers, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(worker.stopping, "wait", lambda **_: None)

    def connect() -> None:
        nonlocal now
        now += workers.TOLD_AGAIN / 3
        if reasons:
            raise NotConnected(reasons.pop(0))

    with capture_logs() as logs:
        assert worker._connect(connect)

    told = [(line["attempt"], line["error"]) for line in logs if line["event"] == "broker_unreachable"]
    assert told == [(1, "refused"), (4, "refused"), (5, "no route"), (6, "refused")]


def test_a_broker_that_drops_every_connection_is_told_once_a_minute_and_where_the_reason_is_another_one_or_one_has_lasted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, short = 0.0, workers.LASTING - 1
    connections = [(short, "no rights")] * 9 + [(short, "reset"), (workers.LASTING, "reset"), (short, "reset")]
    worker = _worker(bench, Flaky(connections=0), [])
    monkeypatch.setattr(workers, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(worker.stopping, "wait", lambda *_: None)

    def serve() -> None:
        nonlocal now
        if not connections:
            worker.stop()
            return
        seconds, reason = connections.pop(0)
        now += seconds
        raise NotConnected(reason)

    with capture_logs() as logs:
        worker._serve(lambda: None, serve, lambda: None)

    assert [line.get("error", "there") for line in logs] == [
        "there", "no rights", "there", "no rights", "there", "reset", "there", "reset", "there",
    ]  # fmt: skip


def test_a_lane_stops_in_time_though_the_wall_clock_stands_still(bench: Bench) -> None:
    """As it seems to while it is being set back."""
    bench.put("confirmed", T0)
    bench.put("never confirmed", T0)
    sink, failures = Flaky(connections=1), []  # type: tuple[Flaky, list[BaseException]]
    worker = _worker(bench, sink, failures)
    worker.start()
    assert sink.published.wait(PATIENCE)

    worker.stop()

    assert worker.join(PATIENCE)
    assert failures == []
    assert bench.store.counts().events["delivered"] == 1


def test_a_broker_that_drops_every_connection_is_not_stormed(bench: Bench) -> None:
    bench.put("order-1", T0)
    waits: list[int] = []

    class Recorder(Backoff):
        def seconds(self, attempt: int) -> float:
            waits.append(attempt)
            return 0.0

    class Dropping(Flaky):
        def publish(self, messages: Sequence[Outgoing]) -> None:
            raise NotConnected(f"reset by {len(messages)} messages")

    sink, failures = Dropping(connections=5), []  # type: tuple[Flaky, list[BaseException]]
    worker = _worker(bench, sink, failures)
    worker.backoff = Recorder(first=0.2, cap=5.0)
    worker.start()
    try:
        assert sink.refused.wait(PATIENCE)
    finally:
        worker.stop()
        assert worker.join(PATIENCE)

    assert waits == [2, 3, 4, 5]
    assert failures == []


class Silent(Flaky):
    """A sink that confirms nothing, and when it is asked again after some calls says that nothing will come."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(connections=1)
        self._clock = clock
        self._first = 0
        self._sent: list[Outgoing] = []

    def publish(self, messages: Sequence[Outgoing]) -> None:
        if self._sent and self._clock() - self._first > 1_000:
            raise NotConnected("messages were left without an answer")
        self._first = self._first or self._clock()
        self._sent += messages

    def close(self) -> None:
        sent, self._sent = self._sent, []
        self._confirm([(each.tag, NotConnected("closed")) for each in sent])


@pytest.mark.parametrize("behind", [0, 500])
def test_a_sink_that_will_never_answer_is_found_out_though_nothing_more_can_go_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, behind: int
) -> None:
    """As where a burst for one destination fills the window, and is all that there is."""
    monkeypatch.setattr(lane_worker, "LONGEST_WAIT", 0.05)
    began = time.monotonic()

    def clock() -> int:
        """Ten times as fast as the wall's."""
        return T0 + int((time.monotonic() - began) * 10_000)

    bench.lane.settings = settings(window=500, slow_after=200)
    for number in range(500 + behind):
        bench.put(f"order-{number}", T0)
    sink, failures = Silent(clock), []  # type: tuple[Silent, list[BaseException]]
    worker = LaneWorker(bench.lane, sink, clock, Metrics("test"), lambda _, error: failures.append(error), drain_for=0.1)

    worker.start()
    try:
        assert sink.refused.wait(PATIENCE), "it was not asked again"
    finally:
        worker.stop()
        assert worker.join(PATIENCE)
    assert failures == []


class InTurns(Flaky):
    """A sink that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__(connections=1)
        self.batches: list[list[Outgoing]] = []

    def publish(self, messages: Sequence[Outgoing]) -> None:
        if messages:
            self.batches.append(list(messages))

    def answer(self) -> None:
        self._confirm([(each.tag, None) for each in self.batches[-1]])


def test_what_falls_due_while_a_sink_that_takes_turns_is_busy_goes_out_together_when_it_has_answered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait there, and each message would have cost the lane a turn of its own."""
    monkeypatch.setattr(lane_worker, "TURN", 3_600_000)
    monkeypatch.setattr(lane_worker, "LONGEST_WAIT", 3_600.0)
    bench.put("first", T0)
    sink = InTurns()
    worker = LaneWorker(bench.lane, sink, lambda: T0, Metrics("test"), lambda *_: None, drain_for=0.1, in_turns=True)
    worker.start()
    try:
        wait_until(lambda: len(sink.batches) == 1 and not worker._its_turn, "the first message on its way")
        for name in ("second", "third"):
            bench.put(name, T0)
            worker.wake(T0)
        assert not worker._wake.is_set()
        sink.answer()
        wait_until(lambda: len(sink.batches) == 2, "the others")
        assert bodies(sink.batches[1]) == ["second", "third"]
        sink.answer()
        wait_until(lambda: not bench.lane.in_flight and worker._its_turn, "the end of the last turn")
        bench.put("fourth", T0)
        worker.wake(T0)
        wait_until(lambda: len(sink.batches) == 3, "what comes when nothing is on its way")
    finally:
        worker.stop()
        assert worker.join(PATIENCE)


def test_a_lane_that_sleeps_is_woken_only_by_what_is_due_before_it_would_wake_by_itself(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each tick reads the store, and messages for tomorrow come in at any rate."""
    monkeypatch.setattr(lane_worker, "LONGEST_WAIT", 3_600.0)
    bench.put("first", T0 + 3_600_000)
    worker = _worker(bench, InTurns(), [])
    worker.start()
    try:
        wait_until(lambda: worker._until == T0 + 3_600_000, "it to sleep")
        worker.wake(T0 + 3_600_000)
        assert not worker._wake.is_set()
        bench.put("earlier", T0 + 1_800_000)
        worker.wake(T0 + 1_800_000)
        wait_until(lambda: worker._until == T0 + 1_800_000, "it to sleep for less")
    finally:
        worker.stop()
        assert worker.join(PATIENCE)


def test_a_lane_that_sleeps_for_longer_than_an_answer_may_wait_is_woken_by_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was confirmed has to be settled by then."""
    monkeypatch.setattr(lane_worker, "LONGEST_WAIT", 3_600.0)
    bench.put("now", T0)
    bench.put("later", T0 + 7_200_000)
    worker = _worker(bench, sink := InTurns(), [])
    worker.start()
    try:
        wait_until(lambda: len(sink.batches) == 1 and worker._until == T0 + 7_200_000, "it to sleep")
        sink.answer()
        wait_until(lambda: not bench.lane.in_flight, "it to look at the answer")
    finally:
        worker.stop()
        assert worker.join(PATIENCE)
