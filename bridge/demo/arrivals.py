"""Reads a destination of the demo: counts what arrives, and writes it down as `delaybridge observe` does."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import msgspec

from ...adapters.clock import wall_clock
from ...adapters.memory import MemorySource, broker
from ...core.fields import plain
from ..http.convert import delivery
from ..ledger.observed import ObservedFiles

if TYPE_CHECKING:
    from pathlib import Path

    from ...adapters.base import Received
    from .faults import Faults

Occurrence = tuple[str, int]
"""Id and number."""


class Arrivals:
    """Reads a destination queue on its own thread.

    taken, taken_by_group    what the bridge put into the queue
    lateness                 milliseconds, by group, of what arrived from there: the same, unless there are `faults`
    """

    def __init__(self, queue: str, observed: Path, faults: Faults | None = None) -> None:
        self.taken: Counter[Occurrence] = Counter()
        self.taken_by_group: Counter[str] = Counter()
        self.lateness: defaultdict[str, list[int]] = defaultdict(list)
        self.latest: list[str] = []
        self._queue = queue
        self._faults = faults
        self._files = ObservedFiles(observed, "memory", queue, queue)
        self._source = MemorySource(broker("demo"), queue)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, name=f"arrivals {queue}", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._source.connect()
        self._thread.start()

    def stop(self) -> None:
        """Take what is there, write it down, and end."""
        self._stopping.set()
        self._thread.join()
        self._source.close()
        self._files.flush()

    @property
    def total(self) -> int:
        """How many messages arrived."""
        return sum(map(len, self.lateness.values()))

    @property
    def outstanding(self) -> bool:
        """Whether something is on its way from the queue to here."""
        return self._faults is not None and bool(self._faults.held)

    def _read(self) -> None:
        while (batch := self._source.receive(1000, 0.2)) is not None or not self._stopping.is_set():
            messages = batch.messages if batch else []
            for received in messages:
                self._take(received)
            now = wall_clock()
            for received in self._faults.through(messages, now) if self._faults else messages:
                self._arrive(received, now)
            if batch:
                batch.ack()

    def _take(self, received: Received) -> None:
        headers = plain(received.message.headers)
        occurrence = headers["x-delay-occurrence"]
        assert isinstance(occurrence, int)
        self.taken[str(headers["x-delay-id"]), occurrence] += 1
        self.taken_by_group[str(headers.get("demo-group"))] += 1

    def _arrive(self, received: Received, now: int) -> None:
        told = delivery(received, self._queue, now)
        assert told.lateness_ms is not None
        group = str(told.headers.get("demo-group"))
        self.lateness[group].append(told.lateness_ms)
        self.latest = [*self.latest[-4:], f"{group}: {told.body!r}, {told.lateness_ms} ms late"]
        self._files.add(msgspec.to_builtins(told))
