"""The thread of a lane: when its connection is lost, and at its end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from unit.delivery.lane_bench import T0, Bench, settings

from delaybridge.adapters.base import NotConnected
from delaybridge.bridge.delivery import worker as module
from delaybridge.bridge.delivery.worker import LaneWorker
from delaybridge.bridge.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from delaybridge.adapters.base import Confirm, Outgoing
    from delaybridge.core.store import Answer

PATIENCE = 10.0


class Idle:
    """A sink for which nothing comes."""

    def connect(self, confirm: Confirm) -> None:
        """As good as any."""

    def publish(self, messages: Sequence[Outgoing]) -> None:
        assert not messages

    def close(self) -> None:
        """Nothing is unconfirmed."""


@pytest.mark.parametrize("tick", [1, 2])
def test_a_lane_that_is_stopped_just_as_it_begins_a_tick_does_not_sleep_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tick: int
) -> None:
    monkeypatch.setattr(module, "LONGEST_WAIT", 3_600.0)
    bench = Bench(tmp_path, settings())
    worker = LaneWorker(bench.lane, Idle(), lambda: T0, Metrics("test"), lambda *_: None, drain_for=0.0)
    cleared: list[int] = []

    class Stopping(threading.Event):
        def clear(self) -> None:
            cleared.append(1)
            if len(cleared) == tick:
                worker.stop()
            super().clear()

        def wait(self, timeout: float | None = None) -> bool:
            if len(cleared) < tick:
                self.set()
            return super().wait(timeout)

    worker._wake = Stopping()
    worker.start()

    assert worker.join(PATIENCE)
    bench.store.close()


class Leaving:
    """A sink whose broker confirms the first message and goes away. As it connects again, it notes what is settled, cancels the second one, and stops."""

    def __init__(self, bench: Bench) -> None:
        self.answers: list[Answer] = []
        self.settled = 0
        self._bench = bench
        self._sent: list[Outgoing] = []

    def drive(self) -> None:
        """Run the lane on this thread."""
        self._worker = LaneWorker(self._bench.lane, self, lambda: T0, Metrics("test"), lambda *_: None, drain_for=0.0)
        self._worker.run()

    def connect(self, confirm: Confirm) -> None:
        self._confirm = confirm
        if self._sent:
            self.settled = self._bench.store.counts().events["delivered"]
            self.answers.append(self._bench.store.cancel("second", T0))
            self._worker.stop()

    def publish(self, messages: Sequence[Outgoing]) -> None:
        if not messages:
            raise NotConnected("gone")
        self._sent += messages
        self._confirm([(messages[0].tag, None)])

    def close(self) -> None:
        unconfirmed, self._sent[1:] = self._sent[1:], []
        self._confirm([(sent.tag, NotConnected("gone")) for sent in unconfirmed])


def test_while_nobody_answers_what_was_confirmed_is_settled_and_what_was_not_can_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_WAIT", 0.0)
    bench = Bench(tmp_path, settings(settle_after=1_000))
    bench.put("first", T0)
    bench.put("second", T0)
    sink = Leaving(bench)

    sink.drive()

    assert sink.settled == 1
    assert [answer.outcome for answer in sink.answers] == ["done"]
    assert bench.store.counts().pending == 0
    bench.store.close()
