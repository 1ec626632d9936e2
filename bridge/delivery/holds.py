"""Which targets of a lane are held back, and when each is tried again. Plain bookkeeping: no store, no clock.

One thread drives a lane and its holds; `resume` may come from another.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...core.by_target import ByTarget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...core.targets import Target
    from .backoff import Backoff

NEVER = 1 << 62
ANSWERED = 60_000
"""Milliseconds within which a try is answered, as a rule. Of the time between a try and a later answer, the rest does not count as refusing."""


@dataclass(slots=True)
class Hold:
    """One held target.

    attempts      failures in a row; 0 if it is held for another reason, or works again
    error         why it is held
    since, last   its first and its last refusal
    retry_at      when it is tried again
    in_flight     how many of the records held there are in flight
    told          its refusal was logged
    """

    attempts: int
    error: str
    since: int
    retry_at: int
    in_flight: int = 0
    last: int = 0
    told: bool = False

    @property
    def refused_for(self) -> int:
        """For how long it has refused (ms). Time in which it was not asked counts only between two refusals."""
        return self.last - self.since if self.probing else 0

    @property
    def probing(self) -> bool:
        """True after a failure until a delivery succeeds; meanwhile one record at a time goes out."""
        return self.attempts > 0

    def open(self, now: int) -> bool:
        """Whether the target works again: what falls due may follow what was held, once all of that is on its way."""
        return not self.attempts and self.retry_at <= now


@dataclass(slots=True)
class Holds:
    """All held targets of one lane. While one is held, later records for it queue up behind it, so that nothing overtakes.

    A target waits in a heap, ordered by its next try, or, once that time has come, in `_open`: so the cost of `ready` does not grow with
    the waiting ones. An entry of the heap is void if its hold has another time by now, or is gone.
    """

    backoff: Backoff
    targets: ByTarget[Hold] = field(default_factory=ByTarget)
    _waiting: list[tuple[int, int, Target]] = field(default_factory=list)
    _open: dict[Target, Hold] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _resumed: bool = False

    def _plan(self, target: Target, hold: Hold, at: int) -> None:
        """Try a held target again at that time (epoch ms)."""
        hold.retry_at = at
        self._open.pop(target, None)
        if at != NEVER:
            heapq.heappush(self._waiting, (at, next(self._numbers), target))

    def restore(self, target: Target, attempts: int, error: str, now: int) -> None:
        """Hold a target that failed before the bridge was started; it is tried at once."""
        hold = self.targets[target] = Hold(max(1, attempts), error, now, now, last=now)
        self._plan(target, hold, now)

    def fail(self, target: Target, error: str, now: int) -> Hold:
        """A delivery there failed: hold it, or hold it for longer."""
        hold = self.targets.get(target)
        if hold is None:
            hold = self.targets[target] = Hold(0, error, now, now)
        elif hold.attempts == 0:
            hold.since = now
        else:  # a clock that was set forward, and a machine that slept, are no refusal
            hold.since += max(0, now - max(hold.retry_at, hold.last) - ANSWERED)
        hold.last = now
        if now >= hold.retry_at:  # failures of records that were already in flight tell nothing new
            hold.attempts += 1
            self._plan(target, hold, now + max(1, round(self.backoff.seconds(hold.attempts) * 1000)))
        hold.error = error
        return hold

    def pause(self, target: Target) -> None:
        """Hold a target that did not fail, for a paused route, until `resume`."""
        hold = self._held(target, "paused", NEVER)
        hold.attempts = 0
        self._plan(target, hold, NEVER)

    def slow(self, target: Target, until: int) -> None:
        """Hold a target for a while for another reason than a refusal, as that its confirms do not come. If it is held already, it is tried then."""
        self._plan(target, self._held(target, "slow", until), until)

    def _held(self, target: Target, why: str, until: int) -> Hold:
        """The hold there, or a new one that is no refusal."""
        if target not in self.targets:
            self.targets[target] = Hold(0, why, 0, until)
        return self.targets[target]

    def turn(self, target: Target) -> None:
        """Put this target behind the others for the next time."""
        if (hold := self._open.pop(target, None)) is not None:
            self._open[target] = hold

    def free(self, target: Target) -> None:
        """Hold it no more."""
        del self.targets[target]
        self._open.pop(target, None)

    def set_back(self, by: int) -> None:
        """The clock was set back by so many milliseconds."""
        for target, hold in self.targets.items():
            hold.since -= by
            hold.last -= by
            if hold.retry_at != NEVER:
                self._plan(target, hold, hold.retry_at - by)

    def connected(self, now: int) -> None:
        """The broker can be reached again: the outage does not count as refusing. Targets that failed are tried at once."""
        for target, hold in self.targets.items():
            if hold.probing:
                hold.since = hold.last = now
                self._plan(target, hold, now)

    def works(self, target: Target, now: int) -> None:
        """A delivery there succeeded: the rest may follow."""
        hold = self.targets.get(target)
        if hold is not None and hold.retry_at != NEVER:
            hold.attempts = 0
            if hold.retry_at > now:
                self._plan(target, hold, now)

    def resume(self) -> None:
        """End every pause with the next `ready`: what waited goes out first. Any thread; a pause that is just being noted ends as well."""
        self._resumed = True

    def ready(self, now: int) -> list[tuple[Target, Hold]]:
        """The targets to try now: a probing one only while nothing of it is in flight."""
        if self._resumed:
            self._resumed = False
            for target, paused in self.targets.items():
                if paused.retry_at == NEVER:
                    self._plan(target, paused, now)
        while self._waiting and self._waiting[0][0] <= now:
            at, _, target = heapq.heappop(self._waiting)
            hold = self.targets.get(target)
            if hold is not None and hold.retry_at == at:
                self._open[target] = hold
        return [(name, hold) for name, hold in self._open.items() if not (hold.probing and hold.in_flight)]

    def next_retry(self) -> int:
        """When `ready` may next return something, as far as time alone decides; never later than that."""
        waiting = self._waiting[0][0] if self._waiting else NEVER
        return min((hold.retry_at for hold in self._open.values() if not hold.in_flight), default=waiting)
