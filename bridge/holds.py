"""Which addresses of a lane are held back, and when each is tried again. Plain bookkeeping: no store, no clock.

One thread drives a lane and its holds; `resume` may come from another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .backoff import Backoff

NEVER = 1 << 62


@dataclass(slots=True)
class Hold:
    """One held address. `since` is when it began to fail; `probing` while one record is out to see whether it works again."""

    attempts: int
    error: str
    since: int
    retry_at: int
    in_flight: int = 0

    @property
    def probing(self) -> bool:
        """True until a delivery succeeded: then one record at a time goes out."""
        return self.attempts > 0

    def open(self, now: int) -> bool:
        """Whether what falls due may follow what was held, once all of that is on its way."""
        return not self.attempts and self.retry_at <= now


@dataclass(slots=True)
class Holds:
    """All held addresses of one lane. While one is held, later records for it queue up behind it, so that nothing overtakes."""

    backoff: Backoff
    addresses: dict[str, Hold] = field(default_factory=dict)
    _resumed: bool = False

    def fail(self, address: str, error: str, now: int) -> Hold:
        """A delivery there failed: hold it, or hold it for longer."""
        hold = self.addresses.get(address)
        if hold is None:
            hold = self.addresses[address] = Hold(0, error, now, now)
        elif hold.attempts == 0:
            hold.since = now
        if now >= hold.retry_at:  # failures of records that were already on the wire tell nothing new
            hold.attempts += 1
            hold.retry_at = now + max(1, round(self.backoff.seconds(hold.attempts) * 1000))
        hold.error = error
        return hold

    def pause(self, address: str) -> None:
        """Hold an address that did not fail, for a paused route, until `resume`."""
        hold = self.addresses.setdefault(address, Hold(0, "paused", 0, NEVER))
        hold.attempts, hold.retry_at = 0, NEVER

    def slow(self, address: str, until: int) -> None:
        """Hold an address that did not fail, for a while: its confirms do not come."""
        self.addresses.setdefault(address, Hold(0, "slow", until, until)).retry_at = until

    def turn(self, address: str) -> None:
        """Let the other addresses go before this one the next time."""
        self.addresses[address] = self.addresses.pop(address)

    def set_back(self, by: int) -> None:
        """The clock was set back by so many milliseconds."""
        for hold in self.addresses.values():
            hold.since -= by
            if hold.retry_at != NEVER:
                hold.retry_at -= by

    def works(self, address: str, now: int) -> None:
        """A delivery there succeeded: the rest may follow."""
        hold = self.addresses.get(address)
        if hold is not None and hold.retry_at != NEVER:
            hold.attempts = 0
            hold.retry_at = now

    def resume(self) -> None:
        """End every pause with the next `ready`: what waited goes out first. Any thread; a pause that is just being noted ends as well."""
        self._resumed = True

    def ready(self, now: int) -> list[tuple[str, Hold]]:
        """The addresses to try now: a probing one only while nothing of it is in flight."""
        if self._resumed:
            self._resumed = False
            for hold in self.addresses.values():
                if hold.retry_at == NEVER:
                    hold.retry_at = now
        return [(name, hold) for name, hold in self.addresses.items() if hold.retry_at <= now and not (hold.probing and hold.in_flight)]

    def next_retry(self) -> int:
        """When `ready` will next have something to say, as far as time alone decides."""
        return min((hold.retry_at for hold in self.addresses.values() if not hold.in_flight), default=NEVER)
