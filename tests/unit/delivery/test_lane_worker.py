"""The thread of a lane at its end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from unit.delivery.lane_bench import T0, Bench, settings

from delaybridge.bridge.delivery import worker as module
from delaybridge.bridge.delivery.worker import LaneWorker
from delaybridge.bridge.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from delaybridge.adapters.base import Confirm, Outgoing

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
