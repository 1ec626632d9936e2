"""Which due times the audit can judge: how far each bridge's ledger reaches, where it begins, and when nobody listened. See "Completeness" in docs/audit.md.

A bridge numbers its rows without holes, so a number that is missing tells of rows that are not in the input.

Reach
    A ledger reaches to the latest `event_time` before its first missing number. If none is missing, it reaches to its last row, or as far as the bridge's
    own mark says (`_reach/BRIDGE.json` in the ledger: all rows up to a number are in files, and nothing else happened until then). The ledger of a bridge
    that has `ended` reaches to the end of time, unless a number is missing. Due times are judged up to the earliest reach, less the SLA and the grace.

Clocks that were ahead
    Their rows tell of a time to come. A mark that covers all rows counts instead of what they say. Without one, no row counts that is later than now; nor
    does a mark that is later than now by more than the grace.

Observers
    An observer's mark says from when to when it has seen what arrived at a destination. Nothing is judged beyond that: what it has not seen yet is not
    lost, nor what arrived while nobody listened (a `Gap`), nor what a topic does not hold any more (see `retention`).

Young rows
    A backlog is delivered long after the hours in which it is due, which may be complete by then. What happened later than the earliest reach, less the
    grace, stands in one input and perhaps not yet in another: such deliveries and arrivals are not compared, nor deliveries that were made while nobody
    listened. So it is between ledgers, too: what one bridge takes in after its due time another one may deliver.

Beginning
    A ledger whose first number is not 1 has lost its oldest rows: old days were removed, or not copied. It begins a grace after the first event that is
    there. What was due before that is not judged; nor, of what was taken in before that, whether it was scheduled.

Seam
    Files hold hours of events, not ranges of numbers: around the beginning some numbers are there, and some between them are not. Up to the seam, the last
    number from before the beginning, a missing number is not taken for a hole. One that is missing right behind the seam is, if the row before it happened
    more than half a grace after the first row: none of the removed rows stands behind one that is so much younger.

Malformed rows
    Such a row is there, so it leaves no hole, but what it says is not known: the hour in which it is due is not judged. So it is with a malformed arrival
    that has an id and a due time.

Nothing at all can be said where a row stands twice, because then a file does; and where a bridge has a mark, so that it has written rows, and none is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ...core.durations import HOUR_MS
from .gaps import unseen

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column

    from ..question import Question
    from .gaps import Gap, Seen
    from .reach import Reach


@dataclass(frozen=True, slots=True)
class Complete:
    """The due times that can be judged: from `since` to before `until`, but for the hours that begin at one of `spoilt`, or in which `gaps` may matter.

    `spoilt` are those of malformed rows; None: no hour can be judged. In `gaps` nobody listened.
    """

    since: int
    until: int
    spoilt: frozenset[int] | None = frozenset()
    gaps: Sequence[Gap] = ()

    def hour(self, question: Question) -> Column:
        """Whether a row's `due_hour` (epoch ms), as far as it belongs to the window, can be judged."""
        if self.spoilt is None:
            return F.lit(False)
        begin = F.col("due_hour")
        whole = (F.greatest(begin, F.lit(question.since)) >= self.since) & (F.least(begin + HOUR_MS, F.lit(question.until)) <= self.until)
        for gap in self.gaps:  # by its ends: what nobody observed may be years
            hours = unseen(gap, question)
            whole &= (begin < hours.start) | (begin >= hours.stop)
        return whole & ~begin.isin(*self.spoilt) if self.spoilt else whole

    def happened(self, question: Question) -> int:
        """What happened before this instant stands in every input."""
        return self.until + question.sla

    def doubtful(self, question: Question) -> Column:
        """Whether a row or an arrival (`event_ms`) is so young that it need not stand in every input."""
        return F.col("event_ms") >= self.happened(question)

    def unheard(self, question: Question) -> Column:
        """Whether a delivery may have arrived while nobody listened: it was due before that ended, and made since it began or shortly before or after."""
        told = F.lit(False)
        for gap in self.gaps:
            here = (F.col("destination_broker") == gap.broker) & (F.col("destination") == gap.address)
            made = (F.col("event_ms") >= gap.since_ms - question.grace) & (F.col("event_ms") < gap.until_ms + question.grace)
            told |= here & made & (F.col("due_ms") < gap.until_ms + question.skew)
        return told


def complete_until(found: Iterable[Reach], question: Question, *, observing: bool, observers: Iterable[Seen] = ()) -> int:
    """Due times before this instant can be judged. An observer without a mark is taken to be done when the inputs are read, see `Question.as_of`."""
    ends = [*(reach.reaches_ms for reach in found), *(one.at_ms for one in observers)]
    if not ends:
        return -1
    if observing and "*" not in question.ended:
        ends.append(question.as_of)
    return min(ends) - question.sla - question.grace


def begins(found: Iterable[Reach]) -> int:
    """From when on every ledger tells all; -1 where each has its first row."""
    return max((reach.begins_ms for reach in found), default=-1)
