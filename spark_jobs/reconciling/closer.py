"""The second look, at ids: only in the hours, and of these in the parts of buckets, in which the counts disagree."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ..buckets import ARRIVAL, BUCKET, OCCURRENCE, OCCURRENCE_AT, during, occurrences
from ..frames import keep, none_of, together
from . import counts, disagreements, histories, settling, sightings
from .disagreements import hours
from .fingerprints import unequal_parts
from .histories import MESSAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..buckets import Hours
    from ..completeness.rule import Complete
    from ..question import Question
    from ..reading.inputs import Input
    from .disagreements import Disagreement, Place


LOOKED = ("unsettled", "untimely", "unlike", "seen_untimely")
"""Of what is found in the counts, that which asks for a closer look."""


@dataclass(frozen=True, slots=True)
class Side:
    """The ledgers, or what was observed: the sound rows, those of them that are due (see `buckets`), and their counts."""

    sound: Input
    due: DataFrame
    counted: DataFrame


@dataclass(frozen=True, slots=True)
class Closer:
    """What the closer look found: the occurrences that were not ended as often as they were scheduled, and two of the audit's tables.

    surplus     the discrepancies, and what cannot be compared yet: among these is all that was seen and is not what was delivered
    unjudged    how many would be called never scheduled, but were taken in before the ledgers begin
    undecided   how many rows and arrivals cannot be compared yet
    """

    unsettled: DataFrame
    discrepancies: DataFrame
    histories: DataFrame
    surplus: DataFrame
    unjudged: int = 0
    undecided: int = 0


@dataclass(frozen=True, slots=True)
class _Suspects:
    """Occurrences with which something may be wrong. The histories of all of them are read, but for those that are only `unsettled`.

    unsettled    not ended as often as they were scheduled, by the ledgers
    settled      what that means, where it can be judged: findings, and what cannot be compared yet
    untimely     findings, too: delivered early or late, by the ledgers
    differing    not seen as often as they were delivered, see `sightings.differences`; None where nobody observed
    wrong        seen early or late, see `sightings.untimely`; None where nobody observed
    """

    unsettled: DataFrame
    settled: DataFrame
    untimely: DataFrame
    differing: DataFrame | None = None
    wrong: DataFrame | None = None

    def asked(self) -> DataFrame:
        """The messages of which the histories are read."""
        frames = [self.settled, self.untimely, self.differing, self.wrong]
        return reduce(DataFrame.unionByName, [frame.select(*MESSAGE) for frame in frames if frame is not None])


def look(
    ledgers: Side, seen: Side | None, watched: frozenset[Place], found: Sequence[Disagreement], complete: Complete, question: Question
) -> Closer:
    """Find the ids, then read once all that is known of these, then say what it means. `found` says where; where it is nowhere nothing is read."""
    suspects = _suspects(ledgers, seen, watched, found, complete, question)
    asked = suspects.asked()
    hashes = histories.hashes(asked) if any(hours(found, what) for what in LOOKED) else []
    number = asked.count() if hashes is None else len(hashes)
    known = histories.rows(asked, number, hashes, ledgers.sound.placed, None if seen is None else seen.sound.placed)
    known = together(keep(known), number) if number else none_of(known)
    every = keep(_discrepancies(suspects, known, number, hours(found, "seen_untimely"), question))
    surplus, unjudged = (every, 0) if complete.since < 0 else _taken_since(complete.since, every, known)
    discrepancies, undecided = _decided(surplus) if hours(found, "unsettled") or hours(found, "unlike") else (surplus, 0)
    return Closer(suspects.unsettled, discrepancies, histories.table(discrepancies, number, known), surplus, unjudged, undecided)


def _decided(found: DataFrame) -> tuple[DataFrame, int]:
    """The findings less what cannot be compared yet, and how much that is.

    Where both the ledgers and the observations leave an occurrence open, it is one and the same.
    """
    undecided, seen = F.col("finding") == sightings.UNDECIDED, F.col("surplus") != 0
    times = F.greatest(F.sum(F.when(seen, F.col("count"))), F.sum(F.when(~seen, F.col("count"))))
    open_ones = found.where(undecided).groupBy(*OCCURRENCE_AT).agg(times.alias("count"))
    return found.where(~undecided), open_ones.agg(F.coalesce(F.sum("count"), F.lit(0))).collect()[0][0]


def _taken_since(begin: int, found: DataFrame, known: DataFrame) -> tuple[DataFrame, int]:
    """The findings less those called never scheduled that were taken in before `begin`, whose scheduled row may be gone; and how many these are."""
    older = histories.of_ledgers(known).where(F.unix_millis("taken_time") < begin)
    names = older.select(*OCCURRENCE, F.lit("never_scheduled").alias("finding"))
    left = keep(found.join(names, on=["finding", *OCCURRENCE], how="left_anti").select(*found.columns))
    return left, found.count() - left.count()


def _suspects(
    ledgers: Side, seen: Side | None, watched: frozenset[Place], found: Sequence[Disagreement], complete: Complete, question: Question
) -> _Suspects:
    """Early and late are told of every hour, all else of those that can be judged."""
    when = {what: hours(found, what) for what in LOOKED}
    unsettled = _unsettled(ledgers, when["unsettled"], disagreements.number(found, "unsettled"), complete, question)
    settled = settling.discrepancies(unsettled, complete.hour(question), question)
    untimely = _kept(settling.untimely(during(ledgers.due, when["untimely"]), question), when["untimely"])
    if seen is None:
        return _Suspects(unsettled, settled, untimely)
    differing = _differing(ledgers, seen, watched, found, complete, question)
    wrong = _kept(sightings.untimely(during(seen.due, when["seen_untimely"]), question), when["seen_untimely"])
    return _Suspects(unsettled, settled, untimely, differing, wrong)


def _unsettled(ledgers: Side, when: Hours | None, number: int, complete: Complete, question: Question) -> DataFrame:
    rows = settling.signed(during(ledgers.due, when))
    parts = _kept(unequal_parts(rows, counts.unsettled_buckets(ledgers.counted), number, BUCKET), when)
    return _kept(settling.unsettled(rows, parts, number, complete, question), when)


def _differing(
    ledgers: Side, seen: Side, watched: frozenset[Place], found: Sequence[Disagreement], complete: Complete, question: Question
) -> DataFrame:
    when, number = hours(found, "unlike"), disagreements.number(found, "unlike")
    at_watched = sightings.at(watched)
    rows = sightings.signed(during(ledgers.due.where(at_watched), when), during(seen.due, when))
    buckets = counts.unlike_buckets(ledgers.counted.where(at_watched), seen.counted)
    parts = _kept(unequal_parts(rows, buckets, number, ARRIVAL), when)
    return _kept(sightings.differences(rows, parts, number, complete, question), when)


def _kept(frame: DataFrame, when: Hours | None) -> DataFrame:
    return frame if when is None else keep(frame)


def _discrepancies(suspects: _Suspects, known: DataFrame, number: int, when: Hours | None, question: Question) -> DataFrame:
    """All findings. `known` holds what is known of the suspects; each frame has at most `number` rows. `when` arrivals were early or late."""
    if suspects.differing is None or suspects.wrong is None:
        return suspects.settled.unionByName(suspects.untimely)
    of_ledgers = histories.of_ledgers(known)
    sighted = sightings.discrepancies(suspects.differing, of_ledgers, number)
    settled = sightings.not_seen_either(suspects.settled, sighted, number)
    told = during(occurrences(of_ledgers, question), when)
    untimely = sightings.untimely_discrepancies(suspects.wrong, told, suspects.untimely, number)
    return settled.unionByName(sighted).unionByName(suspects.untimely).unionByName(untimely)
