"""The thread of the replica of the log of ids: it reads the log, and writes what is to be written."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import structlog

from ....adapters.base import NotConnected
from ...workers import ClientWorker, Failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...metrics import Metrics
    from .replica import Replica

log = structlog.get_logger()

SWEEP = 600.0
"""Seconds between two looks for lines that nobody needs."""


class ReplicaWorker(ClientWorker):
    """Drives a replica, once the log is `declared`.

    `caught_up`: all has been read that stood there at the first look. `opened` is set then, or where the log cannot be read: from then on this bridge takes
    messages. What it took before would wait here for long, where it has much to read, while another bridge could have delivered it.

    `missing` is called where it cannot connect: the log may have been deleted, and is made again then.
    """

    def __init__(
        self,
        replica: Replica,
        broker: str,
        metrics: Metrics,
        failed: Failed,
        declared: threading.Event,
        missing: Callable[[], None],
    ) -> None:
        super().__init__("level ids", broker, metrics, failed)
        self.replica = replica
        self.caught_up = False
        self.opened = threading.Event()
        self._declared = declared
        self._missing = missing
        self._swept = time.monotonic()

    def run(self) -> None:
        """Look until stopped."""
        if self._awaits(self._declared):
            self._serve(self._connect_anew, self._look_on, self._close)

    def _connect_anew(self) -> None:
        try:
            self.replica.connect()
        except NotConnected:
            self.opened.set()
            self._missing()
            raise

    def _close(self) -> None:
        self.opened.set()
        self.replica.close()

    def _look_on(self) -> None:
        while not self.stopping.is_set():
            self.replica.look(self.stopping.is_set)
            self._tell()
            if time.monotonic() - self._swept > SWEEP:
                self._swept = time.monotonic()
                self.replica.sweep()
        self.replica.write()

    def _tell(self) -> None:
        read, end = self.replica.known
        if not self.caught_up and read >= end:
            self.caught_up = True
            self.opened.set()
            log.info("level_ids_read", lines=read, ids=self.replica.size)
