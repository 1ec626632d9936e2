"""Where something disagrees: asked of the counts in one go, so that what agrees is never read again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ..buckets import PLACE, Hours
from ..columns import UnusableInput
from .counts import unlike_buckets, unsettled_buckets, untimely

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column

Place = tuple[str, str]
"""Broker and address of a destination."""

SOUND = ("due", "elsewhen", "unrelated")
"""What stands in an observation and can be judged, see `counts.of_observed`."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """What was found at one destination, and how often.

    what    `unsettled`, `unlike`: so many buckets. `untimely`, `seen_untimely`: so many rows. What else was observed, see `counts.of_observed`.
    """

    place: Place
    what: str
    first: int | None
    last: int | None
    n: int


def table(counted: DataFrame, arrived: DataFrame | None) -> DataFrame:
    """The contract of `Disagreement`: one row for each destination and `what`. `arrived` is None where nobody observed."""
    parts = [
        _told(unsettled_buckets(counted), F.lit("unsettled"), F.lit(1)),
        _told(untimely(counted), F.lit("untimely"), F.col("n")),
    ]
    if arrived is not None:
        parts += [
            _told(unlike_buckets(counted, arrived), F.lit("unlike"), F.lit(1)),
            _told(untimely(arrived), F.lit("seen_untimely"), F.col("n")),
            _told(arrived, F.col("what"), F.col("n")),
        ]
    found = reduce(DataFrame.unionByName, parts).groupBy(*PLACE, "what")
    added = found.agg(F.min("due_hour").alias("first"), F.max("due_hour").alias("last"), F.sum("n").alias("n"))
    return added.select(*PLACE, "what", "first", "last", "n")


def _told(counts: DataFrame, what: Column, n: Column) -> DataFrame:
    return counts.select(*PLACE, "due_hour", what.alias("what"), n.cast("bigint").alias("n"))


def look(counted: DataFrame, arrived: DataFrame | None) -> list[Disagreement]:
    """The table, here."""
    return [
        Disagreement((broker, address), what, first, last, n) for broker, address, what, first, last, n in table(counted, arrived).collect()
    ]


def named(found: Iterable[Disagreement]) -> frozenset[Place]:
    """The destinations of which there is a sound observation."""
    return frozenset(one.place for one in found if one.what in SOUND)


def require_named(found: Iterable[Disagreement], ledger: DataFrame, watched: Iterable[Place]) -> None:
    """Raises UnusableInput for a watched destination whose broker is in no ledger by this name, while deliveries to such an address are there by another.

    Else nothing would be compared with what arrived there, and all of it be clean, or never have been scheduled.
    """
    elsewhere = [one.place for one in found if one.what == "unlike" and one.place not in watched]
    for broker, address in sorted(watched):
        others = sorted({other for other, there in elsewhere if there == address})
        if others and not ledger.where(F.col("destination_broker") == broker).head(1):
            raise UnusableInput(
                f"no ledger knows a broker {broker!r}, and {address} is a destination of {' and '.join(map(repr, others))} there:"
                f" name that broker (?broker=NAME, --watched NAME={address})"
            )


def number(found: Iterable[Disagreement], what: str) -> int:
    """How often, at all destinations."""
    return sum(one.n for one in found if one.what == what)


def hours(found: Iterable[Disagreement], what: str) -> Hours | None:
    """Between which hours; None where it is nowhere."""
    there = [one for one in found if one.what == what]
    if not there:
        return None
    return Hours(min(one.first for one in there if one.first is not None), max(one.last for one in there if one.last is not None))
