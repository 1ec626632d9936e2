"""What a report tells of each destination and hour, where these are few and where they are very many."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from delaybridge.spark_jobs.frames import keep
from delaybridge.spark_jobs.reconciling.findings import FINDINGS
from delaybridge.spark_jobs.reconciling.tallies import NUMBERS, Tallies, tallies

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLACES = {"quiet": (1, {}), "busy": (9, {}), "late": (2, {"late": 1}), "lost": (1, {"missing": 2}), "unwatched": (3, {})}
"""Of each destination: how much was scheduled in each of its two hours, and what was found."""


@pytest.fixture(scope="module")
def summary(spark: SparkSession) -> DataFrame:
    """As `summary.table` makes it, as far as it matters here."""
    rows = [
        (
            "kafka",
            place,
            datetime(2026, 11, 26, hour, tzinfo=UTC),
            True,
            kind,
            hour,
            *(_number(place, scheduled, found, name) for name in NUMBERS),
        )
        for place, (scheduled, found) in PLACES.items()
        for hour in (1, 2)
        for kind in ("once", "cron")
    ]
    names = ("destination_broker", "destination", "due_hour", "complete", "kind", "max_ms", *NUMBERS)
    types = ("string", "string", "timestamp", "boolean", "string", "bigint", *("bigint" for _ in NUMBERS))
    return keep(spark.createDataFrame(rows, ", ".join(map(" ".join, zip(names, types, strict=True)))))


def _number(place: str, scheduled: int, found: dict[str, int], name: str) -> int | None:
    if name == "observed":
        return None if place == "unwatched" else scheduled
    return {"scheduled": scheduled, **found}.get(name, 0)


@pytest.fixture(scope="module")
def whole(summary: DataFrame) -> Tallies:
    return tallies(summary)


def test_of_few_each_destination_is_told_and_each_of_its_hours(whole: Tallies) -> None:
    assert [row["destination"] for row in whole.rows] == sorted(PLACES)
    assert [(row["destination"], row["due_hour"][11:13], row["max_ms"]) for row in whole.hours] == [
        (place, f"0{hour}", hour) for place in sorted(PLACES) for hour in (1, 2)
    ]
    assert {row["destination"]: row["scheduled"] for row in whole.rows} == {name: 4 * each for name, (each, _) in PLACES.items()}
    assert (whole.totals["scheduled"], whole.totals["observed"], whole.totals["missing"]) == (64, 52, 8)
    assert (whole.number, whole.observed) == (5, 4)


def test_of_very_many_those_with_most_discrepancies_are_told_then_the_largest_and_the_totals_are_of_all(
    summary: DataFrame, whole: Tallies
) -> None:
    some = tallies(summary, most=7)

    assert [row["destination"] for row in some.rows] == ["busy", "late", "lost"]
    assert some.rows == [row for row in whole.rows if row["destination"] in {"busy", "late", "lost"}]
    assert some.hours == [row for row in whole.hours if row["destination"] in {"busy", "late", "lost"}]
    assert (some.totals, some.number, some.observed) == (whole.totals, whole.number, whole.observed)


def test_one_is_told_however_many_hours_it_has(summary: DataFrame) -> None:
    assert [row["destination"] for row in tallies(summary, most=1).rows] == ["lost"]


def test_where_nothing_was_due_nothing_is_told_but_that(summary: DataFrame) -> None:
    nothing = tallies(summary.where("false"))

    assert (nothing.rows, nothing.hours, nothing.number, nothing.observed) == ([], [], 0, 0)
    assert {name: nothing.totals[name] for name in FINDINGS} == dict.fromkeys(FINDINGS)
