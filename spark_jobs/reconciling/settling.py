"""Compares the ledgers with themselves: every scheduled occurrence must end once, whichever bridge wrote which of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ..buckets import BUCKET, OCCURRENCE
from .counts import settlement_sign
from .findings import names, table
from .fingerprints import SUMS, suspects, with_sign
from .sightings import UNDECIDED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ..completeness.rule import Complete
    from ..question import Question


def signed(occurrences: DataFrame) -> DataFrame:
    """Rows with a sign: they add up to zero where all that was scheduled has ended once."""
    told = with_sign(occurrences, settlement_sign(), *OCCURRENCE)
    return told.select(*BUCKET, *OCCURRENCE, "bridge", "event", "due_ms", "event_ms", *SUMS, "part")


def unsettled(occurrences: DataFrame, parts: DataFrame, buckets: int, complete: Complete, question: Question) -> DataFrame:
    """The occurrences of `signed`, in these parts of so many buckets, that were not ended as often as they were scheduled: one row for each.

    By bucket: all rows of what was taken in once are in the same one, and the equation holds in each.

    `undecided`: how much of the difference cannot be judged yet. So many of the rows that are too many are so young that another ledger, or a later file, may
    have what they lack. What comes in after its due time is ended at once, perhaps by another bridge.
    """
    rows = suspects(occurrences, parts, buckets, BUCKET)
    opens, young = F.col("event") == "scheduled", complete.doubtful(question)
    scheduled = F.count_if(opens)
    by_occurrence = rows.groupBy(*BUCKET, *OCCURRENCE).agg(
        scheduled.alias("scheduled"),
        (F.count("*") - scheduled).alias("closed"),
        F.count_if(F.col("event") == "delivered").alias("delivered"),
        F.count_if(opens & young).alias("just_scheduled"),
        F.count_if(~opens & young).alias("just_closed"),
        names("bridge").alias("bridge"),
        F.max("due_ms").alias("due_ms"),
        F.max("event_ms").alias("event_ms"),
        F.array_join(F.array_sort(F.collect_list("event")), ", ").alias("detail"),
    )
    lacking = F.col("scheduled") - F.col("closed")
    undecided = F.when(lacking > 0, F.least(lacking, "just_scheduled")).otherwise(F.least(-lacking, "just_closed"))
    return by_occurrence.where("scheduled <> closed").select(
        *BUCKET, *OCCURRENCE, "bridge", "scheduled", "closed", "delivered", undecided.alias("undecided"), "due_ms", "event_ms", "detail"
    )


def discrepancies(unsettled_ones: DataFrame, judged: Column, question: Question) -> DataFrame:
    """The findings that follow, for hours that can be `judged`, and what is undecided. In other hours the missing rows may be on their way.

    Of a bridge that has ended every hour can be judged, also one that has not come: what waits for that is not missing.
    """
    finding = (
        F.when(F.col("scheduled") > F.col("closed"), "missing").when(F.col("scheduled") == 0, "never_scheduled").otherwise("duplicated")
    )
    undecided = F.col("undecided")
    parts = F.array(_part(finding, F.abs(F.col("scheduled") - F.col("closed")) - undecided), _part(F.lit(UNDECIDED), undecided))
    waits = (F.col("scheduled") > F.col("closed")) & (F.col("due_ms") > question.as_of)
    told = unsettled_ones.where(judged & ~waits).withColumn("part", F.explode(F.filter(parts, lambda part: part["count"] > 0)))
    named = told.withColumns({"finding": F.col("part.finding"), "count": F.col("part.count")})
    return table(named.withColumn("detail", F.concat(F.lit("the ledger says: "), "detail")))


def _part(finding: Column, count: Column) -> Column:
    return F.struct(finding.alias("finding"), count.cast("bigint").alias("count"))


def untimely(occurrences: DataFrame, question: Question) -> DataFrame:
    """Deliveries before their time, and beyond the SLA, by the bridge's clock."""
    lateness = F.col("lateness_ms")
    wrong = occurrences.where((lateness < 0) | (lateness > question.sla))
    told = wrong.withColumns(
        {"finding": F.when(lateness < 0, "early").otherwise("late"), "count": F.lit(1), "detail": F.lit("by the ledger")}
    )
    return table(told)
