"""The thread that writes ledger files and gives the store's drained space back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

from ..views import LedgerStatus
from ..workers import Failed, Reasons, Worker
from .files import LedgerFiles

if TYPE_CHECKING:
    from ...adapters.clock import Clock
    from ...core.time_index import TimeIndex
    from ..config import Config

log = structlog.get_logger()

REST = 0.002
"""Seconds between two portions of a flush: without them the threads that deliver would wait for their turn all through it."""


MAINTAIN = 10.0
"""Seconds between rounds at most, however rarely files are written: a full store waits for space."""


class LedgerWorker(Worker):
    """Writes files every `ledger.flush_interval`, and once more at the end; meanwhile it gives space back.

    If the files cannot be written, that is logged and tried again: the rows wait in the store. That the disk failed the store, which mended it, is logged, too.
    """

    def __init__(self, store: TimeIndex, config: Config, clock: Clock, failed: Failed) -> None:
        super().__init__("ledger", failed)
        self.files = LedgerFiles(config.ledger_path, store.unfiled, config.bridge, rest=lambda: self.stopping.wait(REST))
        self._store = store
        self._interval = config.ledger.flush_interval / 1000
        self._clock = clock
        self._error = ""
        self._reasons = Reasons()

    def run(self) -> None:
        """Flush until stopped."""
        import pyarrow.parquet  # noqa: F401, PLC0415 - a tenth of a second that must not fall into a moment when messages are due

        flush_at = time.monotonic() + self._interval
        while not self.stopping.wait(min(MAINTAIN, max(0.0, flush_at - time.monotonic()))):
            if time.monotonic() >= flush_at:
                self._flush()
                flush_at = time.monotonic() + self._interval
            self._store.maintain(self._clock())
            if why := self._store.mended():
                log.warning("store_mended", error=why, action="what the disk did not sync was written to new files; nothing is lost")
        self._flush()

    def status(self) -> LedgerStatus:
        """From any thread."""
        return LedgerStatus(self._store.unfiled.count(), self._error)

    def _flush(self) -> None:
        at = self._clock()
        try:
            self.files.flush_all()
            self.files.mark(at)
            self._error = ""
            self._reasons.over()
        except OSError as error:
            self._tell(str(error))

    def _tell(self, error: str) -> None:
        self._error = error
        if self._reasons.untold(error, time.monotonic()):
            log.error("ledger_not_written", path=str(self.files.root), error=error, action="rows stay in the store until it works")
