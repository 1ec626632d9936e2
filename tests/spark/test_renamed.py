"""A bridge that got another name: its ledger goes on in the files of that name, and the marks say where one ends and the other begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

pytest.importorskip("pyspark")

from delaybridge.bridge.ledger.parquet import write_mark
from delaybridge.core.durations import HOUR_MS
from delaybridge.spark_jobs import inputs, marks, verdict
from delaybridge.spark_jobs.audit import audit
from delaybridge.spark_jobs.completeness import FOREVER, Mark
from spark.ledgers import QUESTION, QUIET, T0, Bridge, write_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

MINUTE = 60_000


def _told(spark: SparkSession, folder: Path, old: slice = slice(4), new: slice = slice(4, None)) -> dict[str, Any]:
    """Rows 1 to 4 are those of `old`, which took in what `new` delivers: in the same hour, in which neither began nor ended."""
    bridge = Bridge("old")
    bridge.scheduled("before", T0 + 5 * MINUTE)
    bridge.scheduled("across", T0 + 70 * MINUTE, taken=T0)
    bridge.delivered("before", T0 + 5 * MINUTE)
    bridge.both("after", T0 + 75 * MINUTE)
    bridge.delivered("across", T0 + 70 * MINUTE, taken=T0)
    bridge.quiet()
    for name, rows in (("old", bridge.rows[old]), ("new", bridge.rows[new])):
        if rows:
            write_ledger(folder, name, [msgspec.structs.replace(row, bridge=name) for row in rows])
    write_mark(folder, "old", {"bridge": "old", "first": 1, "before": None, "sequence": 3, "at_ms": T0 + 6 * MINUTE})
    write_mark(folder, "new", {"bridge": "new", "first": 5, "before": "old", "sequence": 7, "at_ms": QUIET})
    said = marks.read(spark, [str(folder)])
    return verdict.report(audit(inputs.ledger(spark, [str(folder)]), None, said, QUESTION), {})


def test_hours_before_a_bridge_got_another_name_can_be_judged_and_the_old_one_need_not_be_named_as_ended(
    spark: SparkSession, tmp_path: Path
) -> None:
    told = _told(spark, tmp_path)

    assert (told["exit_code"], told["cannot_say"], told["totals"]["delivered"]) == (0, [], 3)
    assert [(one["bridge"], one["begins"], one["hole"]) for one in told["bridges"]] == [("new", None, None), ("old", None, None)]


def test_rows_that_are_missing_where_one_name_ends_and_the_other_begins_are_a_hole(spark: SparkSession, tmp_path: Path) -> None:
    told = _told(spark, tmp_path / "end", old=slice(3))
    assert (told["exit_code"], [one["hole"] for one in told["bridges"]]) == (2, [None, 4])

    told = _told(spark, tmp_path / "begin", new=slice(5, None))
    assert (told["exit_code"], [one["begins"] is None for one in told["bridges"]]) == (2, [False, True])


def test_where_the_ledger_of_the_old_name_is_not_there_that_of_the_new_one_has_lost_its_beginning(
    spark: SparkSession, tmp_path: Path
) -> None:
    told = _told(spark, tmp_path, old=slice(0))

    assert told["exit_code"] == 2
    assert told["bridges"][0]["begins"] is not None
    assert told["totals"]["never_scheduled"] == 0


@pytest.mark.parametrize(("wrote", "ends"), [(3, Mark(4, FOREVER)), (5, Mark(5, T0))])
def test_a_name_that_is_in_use_again_is_not_taken_to_have_ended(spark: SparkSession, tmp_path: Path, wrote: int, ends: Mark) -> None:
    write_mark(tmp_path, "old", {"bridge": "old", "first": 1, "before": None, "sequence": wrote, "at_ms": T0})
    write_mark(tmp_path, "new", {"bridge": "new", "first": 5, "before": "old", "sequence": 7, "at_ms": T0 + HOUR_MS})

    assert marks.read(spark, [str(tmp_path)])["old"] == ends
