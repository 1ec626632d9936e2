"""Runs that write their tables into one folder, after each other and at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from delaybridge.spark_jobs.hadoop import Folder
from delaybridge.spark_jobs.runs import Run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def _begun(spark: SparkSession, folder: Path, name: str) -> Run:
    """A run that has written a table."""
    run = Run(Folder(spark, str(folder)), "report.json", "tables-", name)
    (folder / f"tables-{name}" / "summary").mkdir(parents=True)
    return run


def _told(run: Run) -> dict[str, Any]:
    return {"tables": {"summary": run.at("summary")}}


def _tables(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("tables-*"))


def test_a_run_takes_the_place_of_the_one_before_and_its_tables_go(spark: SparkSession, tmp_path: Path) -> None:
    first = _begun(spark, tmp_path, "20251120T100000Z-1")
    first.hold(_told(first))
    second = _begun(spark, tmp_path, "20251120T100001Z-2")
    before = _tables(tmp_path)
    second.hold(_told(second))

    assert before == ["tables-20251120T100000Z-1", "tables-20251120T100001Z-2"]
    assert _tables(tmp_path) == ["tables-20251120T100001Z-2"]


def test_two_runs_at_once_leave_each_others_tables_alone_and_those_of_the_later_one_hold(spark: SparkSession, tmp_path: Path) -> None:
    earlier = _begun(spark, tmp_path, "20251119T100000Z-0")
    earlier.hold(_told(earlier))
    one, other = (_begun(spark, tmp_path, name) for name in ("20251120T100000Z-1", "20251120T100000Z-2"))

    other.hold(_told(other))
    meanwhile = _tables(tmp_path)
    one.hold(_told(one))

    assert meanwhile == ["tables-20251120T100000Z-1", "tables-20251120T100000Z-2"]
    assert _tables(tmp_path) == ["tables-20251120T100000Z-1"]


def test_what_a_dead_run_left_goes_after_a_day_and_so_does_what_an_earlier_version_left(spark: SparkSession, tmp_path: Path) -> None:
    for dead in ("20251119T100000Z-yesterday", "20251119T100002Z-later", "1f0c9a2b"):
        _begun(spark, tmp_path, dead)
    (tmp_path / "report.json").write_text("[]")

    run = _begun(spark, tmp_path, "20251120T100001Z-1")
    run.hold(_told(run))

    assert _tables(tmp_path) == ["tables-20251119T100002Z-later", "tables-20251120T100001Z-1"]


def test_a_run_that_fails_takes_its_tables_away_and_leaves_what_holds(spark: SparkSession, tmp_path: Path) -> None:
    """On a full disk each further attempt would leave more of them."""
    held = _begun(spark, tmp_path, "20251120T100000Z-1")
    held.hold(_told(held))
    before = (tmp_path / "report.json").read_text()
    failed = _begun(spark, tmp_path, "20251120T100001Z-2")

    with pytest.raises(OSError, match="No space left"), failed.writing():
        raise OSError("No space left on device")

    assert _tables(tmp_path) == ["tables-20251120T100000Z-1"]
    assert (tmp_path / "report.json").read_text() == before
