"""How many messages wait at each level: asked of the broker now and then, because nobody else knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from ...adapters.base import AdapterError
from ..workers import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...adapters.base import LevelQueues

log = structlog.get_logger()

EVERY = 10.0
"""Seconds between two questions."""


class DepthWorker(Worker):
    """`depths` is what the broker said last, level 0 first; None while it says nothing."""

    def __init__(self, queues: LevelQueues, failed: Callable[[str, BaseException], None]) -> None:
        super().__init__("level depths", failed)
        self._queues = queues
        self.depths: list[int] | None = None

    def pending(self, taken: int) -> int:
        """How many messages wait at all levels, as far as the broker has said, when this bridge has taken so many. Any thread."""
        at_levels = sum(self.depths or ())
        return max(taken, at_levels) if self._queues.counts_taken else taken + at_levels

    def run(self) -> None:
        """Ask until stopped."""
        while not self.stopping.is_set():
            try:
                self.depths = self._queues.depths()
            except AdapterError as error:
                if self.depths is not None:
                    log.warning("level_depths_unknown", error=str(error))
                self.depths = None
            self.stopping.wait(EVERY)
