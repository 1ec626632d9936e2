"""The table of counts: one row per bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ..core.ledger import CLOSING, EVENTS
from .buckets import BUCKET
from .findings import FINDINGS, due_before
from .sightings import at

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame

    from .question import Question

NUMBERS = (*EVENTS, "due", "pending", *FINDINGS, "surplus")
QUANTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}


def table(
    counts: DataFrame, pending: DataFrame, found: DataFrame, watched: Iterable[tuple[str, str]], complete_until: int, question: Question
) -> DataFrame:
    """The contract of the summary: counts by bucket, what is wrong by finding, lateness, and the equation's residue (zero, or the ledger does not add up).

    `pending` holds the unsettled occurrences, `found` the discrepancies. `observed` is null at destinations that nobody watched.
    """
    filled = by_bucket(counts, pending, found)
    residue = F.col("scheduled") - sum((F.col(name) for name in CLOSING), start=F.lit(0)) - F.col("pending")
    return filled.select(
        *(name for name in BUCKET if name != "due_hour"),
        F.timestamp_millis("due_hour").alias("due_hour"),
        due_before(complete_until, question.until).alias("complete"),
        "scheduled",
        "due",
        "delivered",
        F.when(at(watched), F.col("delivered") + F.col("surplus")).alias("observed"),
        *CLOSING[1:],
        "pending",
        residue.alias("residue"),
        *FINDINGS,
        *QUANTILES,
        "max_ms",
    )


def by_bucket(counts: DataFrame, pending: DataFrame, found: DataFrame) -> DataFrame:
    """All three by bucket, in one addition: nothing is joined, so that no count can be doubled."""
    rows = (
        of_counts(counts)
        .unionByName(of_pending(pending), allowMissingColumns=True)
        .unionByName(of_findings(found), allowMissingColumns=True)
    )
    added = rows.groupBy(*BUCKET).agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in NUMBERS),
        F.percentile("lateness", list(QUANTILES.values()), F.col("n")).alias("quantiles"),
        F.max("worst_ms").alias("max_ms"),
    )
    return added.select(*BUCKET, *NUMBERS, *_each(QUANTILES), "max_ms")


def _each(names: Iterable[str]) -> list[Column]:
    return [F.col("quantiles")[index].cast("bigint").alias(name) for index, name in enumerate(names)]


def of_counts(counts: DataFrame) -> DataFrame:
    """Events in their columns, and lateness."""
    events = (F.when(F.col("event") == event, F.col("n")).alias(event) for event in EVENTS)
    return counts.select(*BUCKET, *events, F.when(F.col("event") == "scheduled", F.col("due")).alias("due"), "lateness", "n", "worst_ms")


def of_pending(unsettled: DataFrame) -> DataFrame:
    """What has not ended, counted by id: the equation's other side."""
    return unsettled.where("scheduled > closed").select(*BUCKET, (F.col("scheduled") - F.col("closed")).alias("pending"))


def of_findings(found: DataFrame) -> DataFrame:
    """The discrepancies in their columns."""
    by = [F.unix_millis("due_hour").alias("due_hour") if name == "due_hour" else name for name in BUCKET]
    return found.select(*by, *(F.when(F.col("finding") == name, F.col("count")).alias(name) for name in FINDINGS), "surplus")
