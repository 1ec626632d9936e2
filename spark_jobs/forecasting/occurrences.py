"""Expands what is pending into the deliveries that are to be expected: a pending message stands for its next delivery only, and what recurs has more.

The rules are those of `core/recurrence.py`, applied to sets instead of step by step. What is still to come lies after the instant `after`: when the pending
occurrence is due, or was due before it was rescheduled by hand, whichever is later; but if missed ones are dropped, not before the bridge ran again
(`resumes`). Of later occurrences, those that another downtime let be missed count as overdue all the same. Instants are epoch milliseconds.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from .crons import with_matches
from .minutes import MINUTE_MS

if TYPE_CHECKING:
    from pyspark.sql import Column

_COMMON = ("bridge", "lane", "address", "exported", "ends")
_CRON = (*_COMMON, "cron", "zone", "delay", "period", "repeat", "start", "after", "left_at_after")


def expected(pending: DataFrame, since: int, until: int) -> DataFrame:
    """The contract: what is delivered from `since` to before `until`, and what is `overdue`; how many deliveries at that instant, and their bytes.

    Of a repeat that comes several times a minute, those of a minute stand at one instant of it.
    Overdue is what was due, and still pending, when it was exported. What is due between then and `since` is taken to be delivered on time. What
    would be handed out after its end expires, and is no delivery.
    """
    prepared = _prepared(pending)
    every = reduce(DataFrame.unionByName, (_next(prepared), _periods(prepared, since, until), _crons(prepared, until)))
    overdue = F.col("at_ms") < F.col("exported")
    lives = F.col("ends").isNull() | (F.greatest("at_ms", "exported") <= F.col("ends"))
    return every.where((F.col("at_ms") < until) & (overdue | (F.col("at_ms") >= since)) & lives).select(
        F.col("lane").alias("destination_broker"),
        F.col("address").alias("destination"),
        F.when(overdue, F.lit(since)).otherwise(F.col("at_ms")).alias("at_ms"),
        overdue.alias("overdue"),
        "deliveries",
        "bytes",
    )


def _prepared(pending: DataFrame) -> DataFrame:
    """Adds `after`; see above."""
    return pending.withColumn("after", F.greatest("due", "moved_from", F.col("resumes") - 1))  # greatest() steps over null


def _next(prepared: DataFrame) -> DataFrame:
    """The deliveries that the pending rows themselves stand for: all but those that the misfire rule skips."""
    return prepared.where("not (missed and misfire = 'skip')").select(
        *_COMMON, F.col("due").alias("at_ms"), F.lit(1).cast("bigint").alias("deliveries"), F.col("size").alias("bytes")
    )


def _periods(prepared: DataFrame, since: int, until: int) -> DataFrame:
    """Occurrence n of a repeat is due at begin + (n - 1) * period, up to repeat + 1. Counted, where they are many, and not made."""
    every = F.expr("nullif(period, 0)")  # Spark may divide by it before it asks whether it is above 0
    repeats = prepared.where("cron = '' and period > 0").withColumns({"begin": F.expr("start + delay"), "period": every}).withColumns(
        {
            "first": F.expr("greatest(occurrence + 1, (after - begin) div period + 2)"),
            "last": F.expr(f"least(repeat + 1, {_last_before(str(until))}, {_last_before('ends + 1')})"),  # least() steps over null
        }
    )  # fmt: skip
    # What is overdue counts as one, at its first instant; none of it counts where it would be handed out after its end.
    owed = repeats.withColumn("number", F.expr(f"least(last, {_last_before('exported')}) - first + 1")).where("number > 0")
    ahead = repeats.withColumn("first", F.expr(f"greatest(first, {_last_before(f'greatest(exported, {since})')} + 1)")).where(
        "first <= last"
    )
    return _in_minutes(ahead, since).unionByName(_delivered(owed, F.expr("begin + (first - 1) * period"), F.col("number")))


def _last_before(instant: str) -> str:
    """The number of the last occurrence that is due before an instant; 0 or less where none is."""
    return f"cast(floor(({instant} - 1 - begin) / period) + 1 as bigint)"


def _in_minutes(repeats: DataFrame, since: int) -> DataFrame:
    """Occurrences `first` to `last`: an instant for each, or where several fall into one minute, an instant of that, and how many."""
    minute = f"{since} + (begin + ({{}} - 1) * period - {since}) div {MINUTE_MS} * {MINUTE_MS}"
    minutes = f"sequence({minute.format('first')}, {minute.format('last')}, {MINUTE_MS}L)"
    instants = "sequence(begin + (first - 1) * period, begin + (last - 1) * period, period)"
    some = repeats.withColumn("at", F.explode(F.expr(f"if(period < {MINUTE_MS}, {minutes}, {instants})")))
    in_minute = f"least(last, {_last_before(f'at + {MINUTE_MS}')}) - greatest(first, {_last_before('at')} + 1) + 1"
    number = F.expr(f"if(period < {MINUTE_MS}, {in_minute}, 1)").cast("bigint")
    return _delivered(some, F.expr("greatest(at, begin + (first - 1) * period)"), number)


def _delivered(repeats: DataFrame, at: Column, number: Column) -> DataFrame:
    return repeats.select(*_COMMON, at.alias("at_ms"), number.alias("deliveries"), (number * F.col("size")).alias("bytes"))


def _crons(prepared: DataFrame, until: int) -> DataFrame:
    """Every match after `start` begins a series: a message `delay` after it, then `repeat` more, a `period` apart."""
    alike = _alike(prepared.where("cron <> ''"))
    asked = alike.withColumns(
        {
            "from_ms": F.greatest("start", F.expr("after - delay - period * repeat - 1")),
            "to_ms": F.expr(f"{until} - delay"),
        }
    )
    return with_matches(asked).select(*_COMMON, F.explode(_series()).alias("at_ms"), "deliveries", "bytes")


def _alike(crons: DataFrame) -> DataFrame:
    """Messages that will be delivered together, as one row: a herd on one cron is expanded once.

    `left_at_after`: how many earlier ones were due at `after`, if the pending occurrence itself is due there, else null; see `_series`. Without a series the
    start says no more than `after` does.
    """
    single = F.expr("period * repeat = 0")
    same_place = F.col("after") == F.coalesce("moved_from", "due")
    shaped = crons.withColumns(
        {
            "start": F.when(single, F.lit(0)).otherwise(F.col("start")),
            "repeat": F.when(single, F.lit(0)).otherwise(F.col("repeat")),
            "left_at_after": F.when(~single & same_place, F.col("tie")),
        }
    )
    return shaped.groupBy(*_CRON).agg(F.count("*").alias("deliveries"), F.sum("size").alias("bytes")).select(*_CRON, "deliveries", "bytes")


def _series() -> Column:
    """The instants after `after`; and those at `after` itself that are left: series that overlap may have several messages at one instant."""
    begun = F.filter("matches", lambda match: match > F.col("start"))
    series = F.transform(
        begun,
        lambda match: F.transform(
            F.sequence(F.lit(0).cast("bigint"), F.col("repeat")), lambda turn: match + F.col("delay") + turn * F.col("period")
        ),
    )
    every = F.flatten(series)
    later = F.filter(every, lambda instant: instant > F.col("after"))
    there = F.filter(every, lambda instant: instant == F.col("after"))
    left = F.greatest(F.size(there) - F.col("left_at_after") - 1, F.lit(0))
    return F.concat(F.slice(there, 1, F.coalesce(left, F.lit(0)).cast("int")), later)
