"""The table of counts: one row per bucket."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ...core.ledger import CLOSING, EVENTS
from ..buckets import ARRIVAL, BUCKET
from .findings import FINDINGS
from .sightings import at

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame

    from ..completeness.rule import Complete
    from ..question import Question
    from .closer import Closer

NUMBERS = (*EVENTS, "due", "observed", "pending", *FINDINGS)
QUANTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}


def table(
    counts: DataFrame,
    arrived: DataFrame | None,
    closely: Closer,
    watched: Iterable[tuple[str, str]],
    complete: Complete,
    question: Question,
) -> DataFrame:
    """The contract of the summary: counts by bucket, what is wrong by finding, lateness, and the equation's residue (zero, or the ledger does not add up).

    `observed` is null at destinations that nobody watched.
    """
    parts = [of_counts(counts), of_pending(closely.unsettled), of_findings(closely.discrepancies)]
    if arrived is not None:
        parts.append(of_observed(counts, closely.surplus, arrived, at(watched) & complete.hour(question)))
    filled = by_bucket(parts)
    residue = F.col("scheduled") - sum((F.col(name) for name in CLOSING), start=F.lit(0)) - F.col("pending")
    return filled.select(
        *(name for name in BUCKET if name != "due_hour"),
        F.timestamp_millis("due_hour").alias("due_hour"),
        complete.hour(question).alias("complete"),
        "scheduled",
        "due",
        "delivered",
        F.when(at(watched), F.col("observed")).alias("observed"),
        *CLOSING[1:],
        "pending",
        residue.alias("residue"),
        *FINDINGS,
        *QUANTILES,
        "max_ms",
    )


def by_bucket(parts: Iterable[DataFrame]) -> DataFrame:
    """Adds all parts up by bucket, in one addition: nothing is joined, so that no count can be doubled."""
    rows = reduce(lambda all_, part: all_.unionByName(part, allowMissingColumns=True), parts)
    added = rows.groupBy(*BUCKET).agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in NUMBERS),
        F.percentile("lateness", list(QUANTILES.values()), F.col("n")).alias("quantiles"),
        F.max("worst_ms").alias("max_ms"),
    )
    there = added.where(" or ".join(f"{name} <> 0" for name in NUMBERS))
    return there.select(*BUCKET, *NUMBERS, *_each(QUANTILES), "max_ms")


def _each(names: Iterable[str]) -> list[Column]:
    return [F.col("quantiles")[index].cast("bigint").alias(name) for index, name in enumerate(names)]


def of_counts(counts: DataFrame) -> DataFrame:
    """Events in their columns, and lateness. `observed` comes from other parts."""
    nothing = F.lit(None).cast("bigint")
    events = (F.when(F.col("event") == event, F.col("n")).alias(event) for event in EVENTS)
    return counts.select(
        *BUCKET,
        *events,
        F.when(F.col("event") == "scheduled", F.col("due")).alias("due"),
        "lateness",
        "n",
        "worst_ms",
        nothing.alias("observed"),
    )


def of_pending(unsettled: DataFrame) -> DataFrame:
    """What has not ended, counted by id: the equation's other side."""
    return unsettled.where("scheduled > closed").select(*BUCKET, (F.col("scheduled") - F.col("closed")).alias("pending"))


def of_findings(found: DataFrame) -> DataFrame:
    """The discrepancies in their columns."""
    return found.select(*_by(), *(F.when(F.col("finding") == name, F.col("count")).alias(name) for name in FINDINGS))


def of_observed(counts: DataFrame, found: DataFrame, arrived: DataFrame, judged: Column) -> DataFrame:
    """What was seen. A destination sees neither kind, dialect nor level: these are empty in a bucket of what the ledgers do not tell.

    That is a dead letter, a stranger, and all of an hour that is not `judged`.
    """
    delivered = counts.where("event = 'delivered'").select(*BUCKET, F.col("n").alias("observed"))
    surplus = found.select(*_by(), F.col("surplus").alias("observed"))
    known = delivered.unionByName(surplus).where(judged)
    rest = arrived.where("what = 'due'").select(*ARRIVAL, F.col("n").alias("observed")).unionByName(
        known.select(*ARRIVAL, (-F.col("observed")).alias("observed"))
    )  # fmt: skip
    nameless = rest.withColumns({name: F.lit("") for name in BUCKET if name not in ARRIVAL})
    return known.unionByName(nameless)


def _by() -> list[Column]:
    return [F.unix_millis("due_hour").alias("due_hour") if name == "due_hour" else F.col(name) for name in BUCKET]
