"""What a report shows of each destination and hour: of all of them; or, where they are very many, of the destinations that matter most."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ...core.ledger import EVENTS
from ..buckets import PLACE
from ..frames import sent
from .findings import FINDINGS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

NUMBERS = ("scheduled", "due", *EVENTS[1:], "observed", "pending", "residue", *FINDINGS)
MOST = 20_000
"""Hours of destinations, each some 10 KB in this program's memory and 1 KB of the report."""

_HOUR = (*PLACE, "due_hour", "complete")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tallies:
    """The counts of the window, of each destination, and of each of its hours, as plain values; a sum is None where nothing of it is known.

    number, observed    how many destinations there are, and of how many what arrived was observed: in `rows` there may be fewer
    rows, hours         sorted by destination
    """

    totals: Row
    number: int
    observed: int
    rows: list[Row]
    hours: list[Row]


def tallies(summary: DataFrame, most: int = MOST) -> Tallies:
    """Read them from a summary that is kept: once, if it has at most `most` hours."""
    hours = summary.groupBy(*_HOUR).agg(*_sums(), F.max("max_ms").alias("max_ms"))
    found = hours.limit(most + 1).collect()
    if len(found) > most:
        return _of_the_worst(summary, hours, most)
    by_hour = _sorted(found)
    rows = _by_destination(by_hour)
    return Tallies(_together(rows), len(rows), sum(row["observed"] is not None for row in rows), rows, by_hour)


def _of_the_worst(summary: DataFrame, hours: DataFrame, most: int) -> Tallies:
    """The destinations with most discrepancies first, then the largest: as many as have `most` hours together, and one at least."""
    places = summary.groupBy(*PLACE).agg(*_sums(), F.countDistinct("due_hour", "complete").alias("hours"))
    observed = F.count("observed").alias("observed_places")
    totals = places.agg(*_sums(), F.count("*").alias("number"), observed, F.max("hours").alias("longest")).collect()[0].asDict()
    number, seen, longest = (totals.pop(name) for name in ("number", "observed_places", "longest"))
    wrong = sum((F.col(name) for name in FINDINGS), start=F.lit(0))
    worst = places.orderBy(wrong.desc(), F.desc("scheduled"), *PLACE).limit(max(1, most // longest)).select(*PLACE)
    by_hour = _sorted(hours.join(sent(worst, most), on=list(PLACE), how="left_semi").collect())
    return Tallies(totals, number, seen, _by_destination(by_hour), by_hour)


def _sums() -> list[Any]:
    return [F.sum(name).alias(name) for name in NUMBERS]


def _sorted(rows: Iterable[Any]) -> list[Row]:
    ordered = sorted((row.asDict() for row in rows), key=itemgetter(*_HOUR))
    return [{name: told(value) for name, value in row.items()} for row in ordered]


def _by_destination(hours: Iterable[Row]) -> list[Row]:
    grouped = groupby(hours, key=itemgetter(*PLACE))
    return [{**dict(zip(PLACE, place, strict=True), **_together(list(rows)))} for place, rows in grouped]


def _together(rows: list[Row]) -> Row:
    return {name: _added(row[name] for row in rows) for name in NUMBERS}


def _added(values: Iterable[int | None]) -> int | None:
    """The sum of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def told(value: Any) -> Any:
    """A value as JSON has it: instants as text."""
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z") if isinstance(value, datetime) else value
