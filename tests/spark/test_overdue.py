"""What was taken in after its due time, shortly before the ledgers end: it is due in an hour that is complete, and rows of it may be on their way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from delaybridge.spark_jobs.reading import inputs
from delaybridge.spark_jobs.reconciling import verdict
from delaybridge.spark_jobs.reconciling.audit import audit
from spark.ledgers import QUESTION, T0, Bridge, Observer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

END = QUESTION.until + 100 * 60_000
"""When the ledgers end."""

YOUNG = END - QUESTION.grace
"""What happened from then on need not stand in every ledger."""

DUE = T0 + 1


def _told(spark: SparkSession, folder: Path, *bridges: Bridge, seen: Observer | None = None, end: int = END) -> dict[str, Any]:
    for bridge in bridges:
        bridge.quiet(end)
    ledger = inputs.ledger(spark, [bridge.write(folder / f"{end}" / bridge.name) for bridge in bridges])
    observed = None if seen is None else inputs.observed(spark, [seen.write(folder / f"{end}" / "seen")], T0, {}, {})
    found = audit(ledger, observed, {}, QUESTION)
    told = verdict.report(found, {})
    assert all(row["complete"] for row in told["hours"])
    counts = {(row["id"], row["finding"]): row["count"] for row in found.discrepancies.where("finding <> 'late'").collect()}
    return told | {"found": counts, "undecided": found.undecided}


def _taken_in(bridge: Bridge, id_: str, at: int) -> None:
    bridge.row("scheduled", at, id_, DUE, taken=at)


def _delivered(bridge: Bridge, id_: str, at: int) -> None:
    bridge.row("delivered", at, id_, DUE, taken=at)


def test_what_another_bridge_has_just_delivered_is_not_called_never_scheduled_before_all_ledgers_reach_beyond(
    spark: SparkSession, tmp_path: Path
) -> None:
    def two() -> tuple[Bridge, Bridge]:
        north, south = Bridge("north"), Bridge("south")
        _delivered(south, "handed on", YOUNG)
        _delivered(south, "a stranger", YOUNG - 1)
        return north, south

    early = _told(spark, tmp_path, *two())
    north, south = two()
    _taken_in(north, "handed on", YOUNG)
    later = _told(spark, tmp_path, north, south, end=END + 1)
    never = _told(spark, tmp_path, *two(), end=END + 2)

    assert (early["found"], early["undecided"]) == ({("a stranger", "never_scheduled"): 1}, 1)
    assert early["cannot_say"] == [
        "1 were taken in, ended or seen after 2025-06-15T18:39:00Z: not every input tells of that, so that they cannot be compared yet"
    ]
    assert (later["found"], later["cannot_say"]) == ({("a stranger", "never_scheduled"): 1}, [])
    assert (never["found"], never["cannot_say"]) == ({(id_, "never_scheduled"): 1 for id_ in ("a stranger", "handed on")}, [])


def test_what_was_just_taken_in_overdue_is_not_missing_yet_and_what_waits_for_long_is(spark: SparkSession, tmp_path: Path) -> None:
    def one() -> Bridge:
        bridge = Bridge()
        bridge.scheduled("waits for long", DUE)
        _taken_in(bridge, "just taken in", YOUNG)
        _taken_in(bridge, "alike", YOUNG - 1)
        _taken_in(bridge, "alike", YOUNG)
        return bridge

    early = _told(spark, tmp_path, one())
    later = _told(spark, tmp_path, one(), end=END + 1)

    assert (early["found"], early["undecided"]) == ({("waits for long", "missing"): 1, ("alike", "missing"): 1}, 2)
    assert (early["totals"]["pending"], early["totals"]["residue"]) == (4, 0)
    assert later["found"] == {("waits for long", "missing"): 1, ("just taken in", "missing"): 1, ("alike", "missing"): 2}
    assert later["cannot_say"] == []


def test_what_has_just_ended_once_more_is_no_duplicate_yet_for_one_like_it_may_just_have_been_taken_in(
    spark: SparkSession, tmp_path: Path
) -> None:
    bridge = Bridge()
    bridge.both("m", DUE, taken=DUE)
    bridge.row("delivered", YOUNG, "m", DUE, taken=DUE)
    bridge.both("long ago", DUE, taken=DUE)
    bridge.row("delivered", YOUNG - 1, "long ago", DUE, taken=DUE)

    told = _told(spark, tmp_path, bridge)

    assert (told["found"], told["undecided"]) == ({("long ago", "duplicated"): 1}, 1)


def test_what_is_open_by_the_ledgers_and_by_what_was_seen_is_counted_once(spark: SparkSession, tmp_path: Path) -> None:
    bridge, seen = Bridge(), Observer()
    _taken_in(bridge, "seen, and not recorded yet", YOUNG)
    seen.saw("seen, and not recorded yet", DUE, YOUNG + 5 - DUE)
    _delivered(bridge, "taken in elsewhere, and not seen yet", YOUNG)

    told = _told(spark, tmp_path, bridge, seen=seen)

    assert (told["found"], told["undecided"]) == ({}, 2)
    assert (told["totals"]["delivered"], told["totals"]["observed"], told["totals"]["pending"]) == (1, 1, 1)
