"""Ledger rows about what has already happened at the broker: it cannot be undone where the disk is full, so they wait in memory until there is room."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog

from ...core.store import StoreFull

if TYPE_CHECKING:
    from ...adapters.clock import Clock
    from ...core.store import LedgerEvent
    from .journal import Rows

log = structlog.get_logger()


class LateRows:
    """Any thread."""

    def __init__(self, journal: Rows, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: list[LedgerEvent] = []

    def tell(self, event: LedgerEvent) -> None:
        """Write this row behind those that wait, now or when there is room."""
        with self._lock:
            self._waiting.append(event)
        self.write()

    def write(self) -> None:
        """Write what waits, if there is room."""
        with self._lock:
            try:
                if self._waiting:
                    self._journal.tell(self._waiting, self._clock())
                    self._waiting = []
            except StoreFull as error:
                log.error("store_full", worker="level queues", rows=len(self._waiting), error=str(error))  # noqa: TRY400 - a full disk needs no traceback
