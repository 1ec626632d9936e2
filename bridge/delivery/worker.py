"""The thread of one lane."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from ...adapters.base import NotConnected, blocked
from ...adapters.clock import into_millisecond
from ..workers import LOOK, ClientWorker, Failed
from .holds import NEVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...adapters.base import Outcome, Outgoing, Sink
    from ...adapters.clock import Clock
    from ..metrics import Metrics
    from .lane import Lane

LONGEST_WAIT = 10.0
"""Seconds. The wall clock may be set while a thread waits for an instant of it: a longer wait is taken in pieces."""

TURN = 20
"""Milliseconds, at most, that due messages wait for the previous answer of a sink that works in turns: they would wait there."""


class LaneWorker(ClientWorker):
    """Drives one lane and its sink: connected, it ticks; what came in late or early wakes it. At its end it drains for up to `drain_for` seconds.

    A sink that takes messages `in_turns` starts on the next ones only after it has answered the previous ones: what falls due meanwhile then goes out together.
    """

    def __init__(
        self,
        lane: Lane,
        sink: Sink,
        clock: Clock,
        metrics: Metrics,
        failed: Failed,
        drain_for: float,
        *,
        in_turns: bool = False,
    ) -> None:
        super().__init__(f"lane {lane.name}", lane.name, metrics, failed)
        self.lane = lane
        self._sink = sink
        self._clock = clock
        self.drain_for = drain_for
        self._in_turns = in_turns
        self._wake = threading.Event()
        self._until = NEVER
        self._its_turn = True
        self._asked = float("-inf")

    @property
    def blocked(self) -> str:
        """See base.blocked."""
        return blocked(self._sink)

    def stop(self) -> None:
        """Ask the thread to end after what is in flight has been answered."""
        super().stop()
        self._wake.set()

    def wake(self, due: int) -> None:
        """Something is due at that time: do not sleep past it. Any thread, after the store has it."""
        if self._its_turn and due < self._until:
            self._wake.set()

    def poke(self) -> None:
        """Tick now. Any thread."""
        self._wake.set()

    def confirm(self, outcomes: Sequence[Outcome]) -> None:
        """The sink's `Confirm`. Any thread."""
        self.lane.confirm(outcomes)
        if not self._its_turn or self._clock() + self.lane.settings.settle_after < self._until:
            self._wake.set()

    def run(self) -> None:
        """Tick until stopped, then drain."""
        try:
            while self._connect(lambda: self._sink.connect(self.confirm)):
                self.lane.connected(self._clock())
                try:
                    self._tick()
                    self._drain()
                except NotConnected as error:
                    self._lost(error)
                    self._sink.close()
                    self.lane.drain(self._clock())  # what was confirmed is settled, and the rest can be cancelled, while nobody answers
                if self.stopping.is_set():
                    break
        finally:
            self._sink.close()
            self.connected = False
            self.lane.drain(self._clock())

    def _tick(self) -> None:
        self._wake.clear()
        while not self.stopping.is_set():
            self._until, self._its_turn = NEVER, True  # until the tick has looked at the store, everything new must wake it
            began, now = time.monotonic() - into_millisecond(), self._clock()
            wait = self.lane.tick(now, self._publish)
            if self._in_turns and self.lane.in_flight:
                wait, self._its_turn = TURN, False
            if wait > 0:
                self._until = now + wait
                self._wake.wait(min(max(0.0, wait / 1000 - (time.monotonic() - began)), LONGEST_WAIT))  # the tick itself took some of it
            if time.monotonic() - self._asked >= LONGEST_WAIT:
                self._publish(())  # raises where the connection died while there was nothing to do, or nothing that could go out
            self._wake.clear()  # before it is looked whether to stop: a stop wakes only once

    def _publish(self, messages: Sequence[Outgoing]) -> None:
        self._asked = time.monotonic()
        self._sink.publish(messages)

    def _drain(self) -> None:
        """Wait, for a while, for the answers to what is in flight. Raises NotConnected where none will come."""
        deadline = time.monotonic() + self.drain_for
        while not self.lane.drain(self._clock()) and (left := deadline - time.monotonic()) > 0:
            self._wake.clear()
            if not self._wake.wait(min(left, LOOK)):
                self._sink.publish(())
