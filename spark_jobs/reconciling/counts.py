"""The first look: how many of what, in which bucket, how late, with which fingerprint. One pass over each input; the result is small."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ...core.ledger import EVENTS
from ..buckets import ARRIVAL, BUCKET, LEVEL_NAMES, OCCURRENCE, PLACE, due_hour, lateness, rung, timed, within
from ..codes import code, first, word
from .fingerprints import CHAIN, HALVES, SUMS, chained, hashed, unbroken, unequal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from ..question import Question

WHAT = ("malformed", "unrelated", "due", "elsewhen")
"""What a row is: set aside, no bridge's, due in the window, due at another time."""

TIMINGS = ("early", "late", "on_time")


def rounded(lateness: Column) -> Column:
    """Three significant digits are kept: enough for percentiles, and few different values."""
    size = F.abs(lateness)
    unit = F.when(size < 1000, F.lit(1)).otherwise(F.pow(F.lit(10), F.floor(F.log10(size)) - 2)).cast("bigint")
    return (F.floor(lateness / unit) * unit).cast("bigint")


def timing(lateness: Column, earliest: int, latest: int) -> Column:
    """A place in TIMINGS (see `codes`); null where there is no lateness."""
    return first([lateness < earliest, lateness > latest, lateness.isNotNull()])


def settlement_sign() -> Column:
    """A scheduled row opens, every other row closes."""
    return F.when(F.col("event") == "scheduled", 1).otherwise(-1)


def of_ledger(ledger: DataFrame, question: Question) -> DataFrame:
    """Rows of the ledger, with `problem`: what is `due` by bucket, bridge, event, timing and lateness, each group with the fingerprint of its occurrences.

    The others are due at another time (`elsewhen`) or `malformed`: of these only the bridge is known, no fingerprint, and of all their numbers (`of_numbers`).
    """
    told = timed(ledger.withColumn("what", _what(question))).withColumn("late", _if_due(lateness()))
    by = (_if_due(column).alias(name) for name, column in _ledger_key(question).items())
    counted = chained(hashed(told, *OCCURRENCE), "sequence").groupBy("bridge", "what", *by).agg(
        F.count("*").alias("n"),
        F.count_if(F.col("due_ms") <= question.as_of).alias("due"),
        F.max("late").alias("worst_ms"),
        F.min("sequence").alias("first"),
        F.max("sequence").alias("last"),
        F.max(F.when(F.col("event_ms") <= question.now, F.col("event_ms"))).alias("latest_ms"),
        # only of what is due, some days: the halves of all that a ledger holds would outgrow a bigint after four billion rows. Those of `CHAIN` cancel out
        *(F.sum(_if_due(F.col(name))).alias(name) for name in HALVES),
        *(F.sum(name).alias(name) for name in CHAIN),
    )  # fmt: skip
    return _spelled(counted, level=LEVEL_NAMES, what=WHAT, event=EVENTS, timing=TIMINGS).select(
        *BUCKET, "bridge", "what", "event", "timing", "lateness", "n", "due", "worst_ms", *HALVES, "first", "last", "latest_ms", *CHAIN
    )


def _ledger_key(question: Question) -> dict[str, Column]:
    """By what is counted of what is due. Of words of which all are known, the places."""
    return {
        **{name: F.col(name) for name in (*PLACE, "kind", "dialect")},
        "level": rung(F.col("wait")),
        "due_hour": due_hour(F.col("due_ms")),
        "event": code(F.col("event"), EVENTS),
        "timing": timing(F.col("late"), 0, question.sla),
        "lateness": rounded(F.col("late")),
    }


def of_observed(observed: DataFrame, question: Question) -> DataFrame:
    """What was observed, with `problem`: as above what is `due` in the window, and how much is something else.

    The others are due at another time (`elsewhen`), no bridge's (`unrelated`), or `malformed`: these have no hour.
    """
    due_ms = F.unix_millis("due_time")
    late = F.unix_millis("event_time") - due_ms
    told = hashed(observed.withColumn("what", _what(question)), *OCCURRENCE)
    by = {"due_hour": due_hour(due_ms), "timing": timing(late, -question.skew, question.sla + question.skew)}
    counted = told.groupBy(*PLACE, "what", *(_if_due(column).alias(name) for name, column in by.items())).agg(
        F.count("*").alias("n"), *(F.sum(_if_due(F.col(name))).alias(name) for name in HALVES)
    )
    return _spelled(counted, what=WHAT, timing=TIMINGS).select(*ARRIVAL, "what", "timing", "n", *HALVES)


def _what(question: Question) -> Column:
    """A place in WHAT. In a ledger a row without id is malformed."""
    return first([F.col("problem").isNotNull(), F.col("id").isNull(), within(F.col("due_time"), question), F.lit(True)])


def _if_due(column: Column) -> Column:
    return F.when(F.col("what") == WHAT.index("due"), column)


def _spelled(counted: DataFrame, **names: Sequence[str]) -> DataFrame:
    """With words instead of their places."""
    return counted.withColumns({name: word(F.col(name), words) for name, words in names.items()})


def of_numbers(counted: DataFrame) -> DataFrame:
    """From `of_ledger`, by bridge: how many rows, their extremes, and whether they are `whole`: each number there once. `malformed` rows apart."""
    by = ("bridge", (F.col("what") == "malformed").alias("malformed"))
    added = counted.groupBy(*by).agg(
        F.sum("n").alias("rows"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.coalesce(F.max("latest_ms"), F.lit(-1)).alias("latest_ms"),
        *(F.sum(name).alias(name) for name in CHAIN),
    )
    whole = unbroken(F.col("first"), F.col("last")) & (F.col("rows") == F.col("last") - F.col("first") + 1)
    return added.select("bridge", "malformed", "rows", "first", "last", "latest_ms", whole.alias("whole"))


def untimely(counts: DataFrame) -> DataFrame:
    """Where anything came early or late: asked of the small table, so that the large one is read again only there."""
    return counts.where("timing <> 'on_time'")


def unsettled_buckets(counts: DataFrame) -> DataFrame:
    """Buckets in which what the bridges together scheduled is not what they ended."""
    return unequal(_signed(counts, settlement_sign()), BUCKET)


def unlike_buckets(counts: DataFrame, arrived: DataFrame) -> DataFrame:
    """Destinations and hours at which what was delivered is not what was seen."""
    delivered, seen = _signed(counts.where("event = 'delivered'"), F.lit(1)), _signed(arrived.where("what = 'due'"), F.lit(-1))
    return unequal(delivered.select(*ARRIVAL, *SUMS).unionByName(seen.select(*ARRIVAL, *SUMS)), ARRIVAL)


def _signed(counts: DataFrame, sign: Column) -> DataFrame:
    return counts.withColumns({"rows": sign * F.col("n"), **{name: sign * F.col(name) for name in HALVES}})
