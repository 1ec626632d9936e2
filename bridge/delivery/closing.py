"""How a lane's messages come to their end: delivered, expired or dead-lettered, and what follows. Collected, so that many share one write of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from msgspec.structs import replace

from ...core.dead_letters import carried, carrier
from ...core.recurrence import decision, following
from ...core.store import Settled
from .holds import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...core.store import Due, Record, Store
    from ..downtimes import DowntimeFile
    from ..metrics import Metrics

log = structlog.get_logger()

AGAIN = 2
"""Milliseconds after which settling is tried again if the disk was busy."""


class Closing:
    """Collects what became of messages, and settles many at once. One thread; only `settle` touches the disk.

    It settles when `batch` messages are there, or `after` milliseconds after the first of them: `by` is when. `dead_letters` gives the dead-letter address of
    each route, empty for the shelf. `on_settle` is called when something was settled that should soon be made durable.
    """

    def __init__(
        self,
        store: Store,
        dead_letters: Mapping[str, str],
        down: DowntimeFile,
        metrics: Metrics,
        on_settle: Callable[[], None],
        *,
        batch: int,
        after: int,
    ) -> None:
        self.by = NEVER
        self._store = store
        self._dead_letters = dead_letters
        self._down = down
        self._metrics = metrics
        self._on_settle = on_settle
        self._batch = batch
        self._after = after
        self._closed: list[Settled] = []

    def delivered(self, due: Due, now: int) -> int:
        """The destination has confirmed it; returns how many milliseconds late."""
        at = max(now, due.record.schedule.due)  # the clock may have been set back since it was published
        self._close(Settled(due.key, "delivered", at, "", "", due.attempts + 1, self._next(due, now)), now)
        return at - due.record.schedule.due

    def expired(self, due: Due, now: int) -> bool:
        """Close it if its end has passed, or if it was missed while the bridge was down and is to be skipped; whether that is so."""
        schedule = due.record.schedule
        if schedule.ends is None and (schedule.misfire != "skip" or schedule.due >= self._down.known.last):
            return False  # as `decision` says, without asking it each time
        reason = decision(schedule, self._down.known, now)
        if reason == "deliver":
            return False
        self._close(Settled(due.key, "expired", now, reason, attempts=due.attempts, next=self._next(due, now)), now)
        return True

    def dead_letter(self, due: Due, now: int, reason: str, detail: str, attempts: int) -> None:
        """Send it to its route's dead-letter destination; if it is already on its way there, put it on the shelf, and keep the first reason."""
        record, said = due.record, detail
        if record.is_carrier:
            reason, why = carried(record)
            address, detail = "", f"{why} (and as a dead letter to {record.address!r}: {detail})"
        else:
            address = self._dead_letters.get(record.route, "")
            self._metrics.dead_letter(reason, 1)
        forward = carrier(record, address, now, reason, detail) if address else None
        # `said` by the broker: the rest may hold a header's value.
        log.warning("dead_lettered", route=record.route, id=record.id, address=record.address, reason=reason, detail=said)
        self._close(Settled(due.key, "dead_lettered", now, reason, detail, attempts, next=self._next(due, now), forward=forward), now)

    def _next(self, due: Due, now: int) -> Record | None:
        schedule = due.record.schedule
        if schedule.recurrence is None:
            return None
        upcoming = following(schedule, now, self._down.known)
        return None if upcoming is None else replace(due.record, schedule=upcoming)

    def _close(self, settled: Settled, now: int) -> None:
        self._closed.append(settled)
        self.by = min(self.by, now + self._after)

    def tick(self, now: int) -> None:
        """Settle what has waited long enough; while the disk is busy, only where a batch is full, because meanwhile others fall due."""
        if len(self._closed) >= self._batch:
            self.settle(now)
        elif now >= self.by:
            self.settle(now, wait=False)

    def settle(self, now: int, *, wait: bool = True) -> None:
        """Settle all that was collected. Raises StoreFull: then it is settled by the next call, by the lane's `drain` at the latest."""
        if self._closed:
            if not self._store.settle(self._closed, now, wait=wait):
                self.by = now + AGAIN
                return
            self._closed = []
            self._on_settle()
        self.by = NEVER

    def set_back(self, now: int) -> None:
        """The wall clock was set back, to this."""
        self.by = min(self.by, now)
