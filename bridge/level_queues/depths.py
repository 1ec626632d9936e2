"""Asks the broker now and then how many messages wait at each level, and has it delete what is finished, where it keeps that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from ...adapters.base import AdapterError, LoginRefused, NotConnected
from ...adapters.levelled import Trimmable
from ..workers import Failed, Worker

if TYPE_CHECKING:
    from ...adapters.levelled import LevelDeclaration

log = structlog.get_logger()

EVERY = 10.0
"""Seconds between two questions."""

AFTER_REFUSAL = 60.0
"""Seconds after a login that was refused: see workers.ClientWorker."""

TRIM_EVERY = 6
"""After so many questions what is finished is deleted.

That is once a minute: so much takes little room on a disk, little of it could come again, and the broker is not kept busy.
"""


class DepthWorker(Worker):
    """`depths` is what the broker said last, level 0 first; None while it says nothing."""

    def __init__(self, queues: LevelDeclaration, failed: Failed) -> None:
        super().__init__("level depths", failed)
        self._queues = queues
        self._kept = queues if isinstance(queues, Trimmable) else None
        self._trimmed = True
        self._asked = self._told = False
        self.depths: list[int] | None = None

    def pending(self, taken: int) -> int | None:
        """How many messages wait at all levels, `taken` of them in this bridge's memory; None while the broker does not say. Any thread."""
        depths = self.depths
        if depths is None:
            return None
        at_levels = sum(depths)
        return max(taken, at_levels) if self._queues.counts_taken else taken + at_levels

    def run(self) -> None:
        """Ask until stopped."""
        asked = 0
        while not self.stopping.is_set():
            wait = self._ask()
            asked += 1
            if asked % TRIM_EVERY == 0:
                self._trim()
            self.stopping.wait(wait)

    def _ask(self) -> float:
        """In how many seconds to ask again."""
        try:
            self.depths = self._queues.depths()
        except AdapterError as error:
            if self._asked and not self._told:  # the first question may come before the queues are made
                self._told = True
                log.warning("level_depths_unknown", error=str(error))
            self.depths, self._asked = None, True
            return AFTER_REFUSAL if isinstance(error, LoginRefused) else EVERY
        if self._told:
            log.info("level_depths_known")
        self._asked, self._told = True, False
        return EVERY

    def _trim(self) -> None:
        """Nothing depends on it: what was not deleted now is deleted later, or by another bridge."""
        if self._kept is None:
            return
        try:
            self._kept.trim()
        except AdapterError as error:
            if self._trimmed or not isinstance(error, NotConnected):
                log.warning("levels_not_trimmed", error=str(error))
            self._trimmed = False
            if not isinstance(error, NotConnected):
                self._kept = None
        else:
            self._trimmed = True
