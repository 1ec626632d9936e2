"""What a forecast means: plain values, ready for JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ..reconciling.tallies import told
from ..reconciling.verdict import instant
from .minutes import DESTINATION, FEWEST, MINUTE_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from .pending import Export

SLOTS = 48
"""A destination's profile has so many values: half hours of a day."""

PEAKS = 10
"""So many peaks of each destination stand in the report, the highest; the table has all of them."""


@dataclass(frozen=True, slots=True)
class Span:
    """What is forecast: from one full minute (epoch ms) to before another, and by how much a peak must exceed the average minute."""

    since: int
    until: int
    peak: float = 3.0

    @property
    def minutes(self) -> int:
        """How many."""
        return (self.until - self.since) // MINUTE_MS

    @property
    def slot_minutes(self) -> int:
        """How many minutes one value of a profile covers."""
        return -(-self.minutes // SLOTS)


def report(minutes: DataFrame, exports: Sequence[Export], span: Span) -> dict[str, Any]:
    """Everything that people and machines are told, but for the table."""
    profiles, peaks = _profiles(minutes, span), _peaks(minutes)
    destinations = [_destination(row.asDict(), profiles, span) for row in _totals(minutes).collect()]
    return {
        "from": instant(span.since),
        "until": instant(span.until),
        "exports": [{"bridge": one.bridge, "exported": instant(one.exported), "pending": one.pending} for one in exports],
        "peak": {"times_average": span.peak, "at_least": FEWEST},
        "totals": {name: sum(row[name] for row in destinations) for name in ("deliveries", "overdue", "bytes")},
        "slot_minutes": span.slot_minutes,
        "destinations": destinations,
        "peaks": [_peak(row.asDict(), span) for row in peaks],
    }


def _totals(minutes: DataFrame) -> DataFrame:
    """One row per destination, the one with the busiest minute first."""
    busiest = F.struct("deliveries", -F.unix_millis("minute"))
    by_destination = minutes.groupBy(*DESTINATION).agg(
        F.sum("deliveries").alias("deliveries"),
        F.sum("overdue").alias("overdue"),
        F.sum("bytes").alias("bytes"),
        F.max("deliveries").alias("highest"),
        F.max_by("minute", busiest).alias("busiest_minute"),
        F.count_if("peak").alias("peaks"),
    )
    return by_destination.orderBy(F.desc("highest"), *DESTINATION)


def _destination(row: dict[str, Any], profiles: dict[tuple[str, str], list[int]], span: Span) -> dict[str, Any]:
    busiest = {"minute": told(row.pop("busiest_minute")), "deliveries": row.pop("highest")}
    average = round(row["deliveries"] / span.minutes, 3)
    profile = profiles[row["destination_broker"], row["destination"]]
    return {**row, "average_per_minute": average, "busiest": busiest, "profile": profile}


def _profiles(minutes: DataFrame, span: Span) -> dict[tuple[str, str], list[int]]:
    """The busiest minute of each slot, by destination."""
    slot = F.expr(f"(unix_millis(minute) - {span.since}) div {span.slot_minutes * MINUTE_MS}").cast("int").alias("slot")
    rows = minutes.groupBy(*DESTINATION, slot).agg(F.max("deliveries")).collect()
    profiles: dict[tuple[str, str], list[int]] = {}
    for broker, destination, index, highest in rows:
        profiles.setdefault((broker, destination), [0] * -(-span.minutes // span.slot_minutes))[index] = highest
    return profiles


def _peaks(minutes: DataFrame) -> list[Any]:
    rank = F.row_number().over(Window.partitionBy(*DESTINATION).orderBy(F.desc("deliveries"), "minute"))
    total = F.sum("deliveries").over(Window.partitionBy(*DESTINATION))
    ranked = minutes.withColumns({"total": total, "rank": F.when(F.col("peak"), rank)}).where(F.col("rank") <= PEAKS)
    return (
        ranked.orderBy(F.desc("deliveries"), "minute", *DESTINATION)
        .select(*DESTINATION, "minute", "deliveries", "overdue", "total")
        .collect()
    )


def _peak(row: dict[str, Any], span: Span) -> dict[str, Any]:
    times = round(row["deliveries"] * span.minutes / row.pop("total"), 1)
    return {name: told(value) for name, value in row.items()} | {"times_average": times}
