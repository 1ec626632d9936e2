"""Expected deliveries by destination and minute, and which minutes are peaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MINUTE_MS = 60_000
FEWEST = 10
"""A minute with fewer deliveries is no peak, however quiet the others are."""

DESTINATION = ("destination_broker", "destination")


def table(expected: DataFrame, since: int, until: int, peak: float) -> DataFrame:
    """The contract of the forecast: one row per destination and minute in which something is expected.

    `deliveries` include those that are `overdue`, which stand in the first minute; `bytes` are those of the bodies. A minute is a `peak` where it has at
    least `peak` times its destination's deliveries in an average minute from `since` to `until`, empty ones included, and at least `FEWEST`.
    """
    overdue = F.when(F.col("overdue"), F.col("deliveries")).otherwise(0)
    by_minute = expected.groupBy(*DESTINATION, minute(since).alias("minute_ms")).agg(
        F.sum("deliveries").alias("deliveries"), F.sum(overdue).alias("overdue"), F.sum("bytes").alias("bytes")
    )
    average = F.sum("deliveries").over(Window.partitionBy(*DESTINATION)) / ((until - since) / MINUTE_MS)
    is_peak = (F.col("deliveries") >= average * peak) & (F.col("deliveries") >= FEWEST)
    return by_minute.select(
        *DESTINATION,
        F.timestamp_millis("minute_ms").alias("minute"),
        "deliveries",
        "overdue",
        "bytes",
        is_peak.alias("peak"),
    )


def minute(since: int) -> Column:
    """The begin of the minute that an instant lies in; `since` is a full minute."""
    return F.col("at_ms") - F.pmod(F.col("at_ms") - since, F.lit(MINUTE_MS))
