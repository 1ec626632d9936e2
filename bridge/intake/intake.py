"""From one source into the store: receive a batch, plan it, put it in one durable write, acknowledge it."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING

import structlog

from ...adapters.base import Gathering, parted
from ...core.store import Change, Put, Refuse, SourceProgress, Store, StoreFull
from .redeliveries import Redeliveries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...adapters.base import Batch, Received, Source
    from ...adapters.clock import Clock
    from ..metrics import Metrics
    from ..workers import Wake
    from .planner import Planner

log = structlog.get_logger()

SOON, CALM = 500, 2_000
"""Milliseconds: a message that is due sooner is in a hurry; and once none in a hurry has come for so long, a source may gather."""


class Intake:
    """Takes in what one source gives. `step` is called by one thread, in a loop. `exact`: see `base.Traits`."""

    def __init__(
        self,
        planner: Planner,
        source: Source,
        store: Store,
        clock: Clock,
        wake: Wake,
        metrics: Metrics,
        batch: int = 500,
        *,
        exact: bool = False,
    ) -> None:
        self.planner = planner
        self.received = 0
        self._source = source
        self._store = store
        self._clock = clock
        self._wake = wake
        self._metrics = metrics
        self._batch = batch
        self._redeliveries = Redeliveries(exact=exact)
        self._gathering = source if isinstance(source, Gathering) else None
        self._hurried = clock()

    @property
    def name(self) -> str:
        """The name under which the store remembers this source's latest messages."""
        return self.planner.route.name

    def connect(self) -> None:
        """Connect the source. From here on a redelivery of what is already stored is recognised. Raises NotConnected."""
        self._redeliveries.begin(self._store.came(self.name))
        self._source.connect()

    def finish(self) -> None:
        """The source was closed in order: all that it gave is acknowledged, and it gives none of that again. What looks like it is another message then.

        Unless it was closed before it gave again what was stored and not acknowledged when it connected, as after a kill, or its broker did not answer: that is
        still to come.
        """
        if self._redeliveries.over and not self._redeliveries.exact and parted(self._source):
            with contextlib.suppress(StoreFull):  # then it is compared after the next start, as after a kill
                self._store.forget(self.name)

    def step(self, timeout: float) -> int:
        """Take in one batch; how many messages came. Raises NotConnected from the source, and what the store raises: then nothing is acknowledged."""
        batch = self._source.receive(self._batch, timeout)
        if batch is None:
            self._redeliveries.over = True
            return 0
        self._take(batch)
        return len(batch.messages)

    def _take(self, batch: Batch) -> None:
        now = self._clock()
        fresh, changes = self._fresh(batch.messages, now)
        if changes:
            came = SourceProgress(self.name, [received.token for received in fresh], self._redeliveries.reached(fresh))
            began = time.perf_counter()
            self._store.put(changes, now, came)
            self._metrics.put(time.perf_counter() - began)
            self._redeliveries.stored(came.reached)
        batch.ack()
        self._tell(changes, len(batch.messages), now)
        if self._gathering is not None:
            self._gather(self._gathering, changes, now)

    def _fresh(self, messages: Sequence[Received], now: int) -> tuple[Sequence[Received], list[Change]]:
        """What is to be stored of a batch, and as what: what is not stored yet, and of the rest what the store wants to see again."""
        plan, fresh = self.planner.plan, self._redeliveries.fresh(messages)
        if len(fresh) == len(messages):
            return fresh, [plan(received, now) for received in fresh]
        new, wants = set(map(id, fresh)), self._store.wants_again
        planned = [(received, plan(received, now)) for received in messages]
        kept = [(received, change) for received, change in planned if id(received) in new or wants(self.name, change)]
        suppressed = len(messages) - len(kept)
        self._metrics.suppressed_duplicates(suppressed)
        if suppressed:
            log.info("redeliveries_suppressed", route=self.name, messages=suppressed)
        return [received for received, _ in kept], [change for _, change in kept]

    def _tell(self, changes: Sequence[Change], received: int, now: int) -> None:
        """Count what came, and wake the lanes that have something to do earlier than they knew."""
        self.received += received
        self._metrics.received(self.name, self.planner.route.source_broker, received)
        self._metrics.intake_batch(received)
        earliest: dict[str, int] = {}
        delays = []
        refused: Counter[str] = Counter()
        for change in changes:
            if type(change) is Put:
                record = change.record
                due = record.schedule.due
                delays.append(max(0, due - now))
                if due < earliest.get(record.lane, due + 1):
                    earliest[record.lane] = due
            elif type(change) is Refuse:
                self._metrics.dead_letter(change.reason, 1)
                refused[str(change.reason)] += 1
                if change.forward is not None:
                    earliest[change.forward.lane] = now
        self._metrics.requested_delay(delays)
        for reason, count in refused.items():
            log.warning("refused", route=self.name, reason=reason, messages=count)
        for lane, due in earliest.items():
            self._wake(lane, due)

    def _gather(self, source: Gathering, changes: Sequence[Change], now: int) -> None:
        """Let the source wait for larger batches while nothing that comes is in a hurry."""
        if any(_in_a_hurry(change, now) for change in changes):
            self._hurried = now
        source.gather(calm=now - self._hurried >= CALM)


def _in_a_hurry(change: Change, now: int) -> bool:
    """Whether somebody may be waiting for it: it is due soon, is a cancel, may replace something, or was refused."""
    return type(change) is not Put or change.record.schedule.due - now < SOON or bool(change.record.id)
