"""The thread of one level."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..workers import ClientWorker, Failed
from .passage import HURRY, Passage

if TYPE_CHECKING:
    import threading

    from ..metrics import Metrics


HANDING_BACK = 3.0
"""Seconds at the end in which what is on its way to its next level may be confirmed there."""


class LevelWorker(ClientWorker):
    """Drives one passage, once the queues are there and `opened`."""

    def __init__(
        self,
        passage: Passage,
        broker: str,
        metrics: Metrics,
        failed: Failed,
        opened: threading.Event,
    ) -> None:
        super().__init__(f"level {passage.level.name}", broker, metrics, failed)
        self.passage = passage
        self._opened = opened

    def run(self) -> None:
        """Step until stopped."""
        if self._awaits(self._opened):
            self._serve(self.passage.connect, self._pass_on, self.passage.close)

    def _pass_on(self) -> None:
        while not self.stopping.is_set():
            if not self.passage.step():
                self.stopping.wait(HURRY)
        self.passage.hand_back(HANDING_BACK)
