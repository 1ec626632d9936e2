"""The thread of one intake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from ..workers import RECEIVE_TIMEOUT, ClientWorker, Failed

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from ..metrics import Metrics
    from .intake import Intake

log = structlog.get_logger()

SMALL_BATCH, PACE = 100, 0.005
"""After a batch of fewer messages the intake waits for so many seconds: what comes meanwhile shares one durable write. A first message never waits."""


class IntakeWorker(ClientWorker):
    """Drives one intake. `room` says whether the disk has room for more; without it the source is simply not read.

    `opened`: the store takes messages only once it is set.
    """

    def __init__(
        self,
        intake: Intake,
        close: Callable[[], None],
        room: Callable[[], bool],
        metrics: Metrics,
        failed: Failed,
        opened: threading.Event | None = None,
    ) -> None:
        super().__init__(f"intake {intake.name}", intake.planner.route.source_broker, metrics, failed)
        self.intake = intake
        self._close = close
        self._room = room
        self._opened = opened
        self._in_order = False

    def run(self) -> None:
        """Receive until stopped."""
        if self._opened is not None:
            self.error = "the store does not take messages yet"
            if not self._awaits(self._opened):
                return
        self._serve(self.intake.connect, self._receive, self._close)
        if self._in_order:
            self.intake.finish()

    def _receive(self) -> None:
        self._in_order = False
        while not self.stopping.is_set():
            if self._room():
                if 0 < self.intake.step(RECEIVE_TIMEOUT) < SMALL_BATCH:
                    self.stopping.wait(PACE)
            else:
                log.error("disk_low", worker=self.name, action="intake waits until there is room; delivery goes on")
                self._wait_for_room()
        self._in_order = True

    def _wait_for_room(self) -> None:
        while not self.stopping.wait(1.0):
            if self._room():
                log.info("disk_has_room", worker=self.name)
                return
