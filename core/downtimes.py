"""When the bridge did not run. An occurrence that fell due then is *missed*, and its misfire rule decides what becomes of it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import itemgetter

MOST = 100
"""How many are kept apart: if there are more, the earliest are merged into one."""


@dataclass(frozen=True, slots=True)
class Downtimes:
    """Spans, each from its begin to before its end (epoch milliseconds), in order, none touching the next. Without any the bridge always ran."""

    spans: tuple[tuple[int, int], ...] = ()

    @property
    def last(self) -> int:
        """When the last one ended: nothing that is due then or later was missed."""
        return self.spans[-1][1] if self.spans else 0

    def end_of(self, instant: int) -> int | None:
        """The end of the downtime that holds this instant; None where the bridge ran then."""
        place = bisect_right(self.spans, instant, key=itemgetter(0)) - 1
        return self.spans[place][1] if place >= 0 and instant < self.spans[place][1] else None

    def until(self, now: int) -> Downtimes:
        """Those parts that lie before this instant: after the clock was set back, nothing that falls due from now on is missed."""
        if self.last <= now:
            return self
        return Downtimes(tuple((begin, min(end, now)) for begin, end in self.spans if begin < now))

    def then(self, begin: int, end: int) -> Downtimes:
        """With one more downtime, the latest, merged with those that it overlaps or touches; nothing is added unless it ends after it begins."""
        before = self.until(end)
        if begin >= end:
            return before
        apart = [span for span in before.spans if span[1] < begin]
        reached = before.spans[len(apart) :]
        spans = [*apart, (min(begin, reached[0][0]) if reached else begin, end)]
        first = max(0, len(spans) - MOST)
        return Downtimes(((spans[0][0], spans[first][1]), *spans[first + 1 :]))


NONE = Downtimes()
