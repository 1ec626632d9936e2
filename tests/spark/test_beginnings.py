"""Ledgers that have lost their beginning: at the seam numbers may be missing, and behind it none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from delaybridge.core.durations import HOUR_MS
from delaybridge.spark_jobs import reconcile
from delaybridge.spark_jobs.arguments import parse
from delaybridge.spark_jobs.columns import UnusableInput
from delaybridge.spark_jobs.completeness.reach import Mark
from delaybridge.spark_jobs.reading import inputs
from delaybridge.spark_jobs.reconciling import verdict
from delaybridge.spark_jobs.reconciling.audit import audit
from spark.ledgers import QUESTION, QUIET, T0, Bridge, write_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delaybridge.spark_jobs.question import Question

DAY_BEFORE = T0 - 20 * HOUR_MS
"""When the first row happened that is there."""


def _told(spark: SparkSession, folder: Path, bridge: Bridge, question: Question = QUESTION) -> dict[str, Any]:
    return verdict.report(audit(inputs.ledger(spark, [bridge.write(folder)]), None, {}, question), {})


def _lost_behind(*seam: int) -> Bridge:
    """Rows that happened so long after the first one, a lost file with three scheduled rows, and one with their deliveries. Row 1 was removed."""
    bridge = Bridge()
    for number, after in enumerate((-1, *seam)):
        bridge.row("scheduled", DAY_BEFORE + after, f"seam-{number}", T0 + 100 * HOUR_MS)
    for number in range(3):
        bridge.scheduled(f"m-{number}", T0 + number)
    for number in range(3):
        bridge.delivered(f"m-{number}", T0 + number)
    bridge.quiet()
    bridge.rows = bridge.rows[1 : len(seam) + 1] + bridge.rows[len(seam) + 4 :]
    return bridge


def test_a_file_that_is_lost_right_behind_the_seam_of_a_ledger_is_a_hole(spark: SparkSession, tmp_path: Path) -> None:
    told = _told(spark, tmp_path, _lost_behind(0, 20_000, QUESTION.grace // 2 + 1))

    assert (told["bridges"][0]["hole"], told["exit_code"], told["totals"]["never_scheduled"]) == (5, 2, 0)


def test_what_is_missing_right_behind_rows_that_happened_when_a_ledger_begins_may_have_been_removed(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert _told(spark, tmp_path, _lost_behind(0, 20_000, QUESTION.grace // 2))["bridges"][0]["hole"] is None


def test_a_lost_beginning_is_recognised_also_where_no_grace_is_given(spark: SparkSession, tmp_path: Path) -> None:
    bridge = Bridge()
    for number in range(5):
        bridge.scheduled(f"m-{number}", T0 + number)
    for number in range(5):
        bridge.delivered(f"m-{number}", T0 + number)
    bridge.quiet()
    bridge.rows = bridge.rows[5:]

    told = _told(spark, tmp_path, bridge, replace(QUESTION, grace=0))

    assert (told["exit_code"], told["totals"]["never_scheduled"], told["bridges"][0]["begins"]) == (2, 0, "2025-06-15T15:00:00.004Z")


def test_a_file_that_was_copied_at_the_seam_of_a_ledger_stands_twice(spark: SparkSession, tmp_path: Path) -> None:
    bridge = _lost_behind(0, 20_000, QUESTION.grace // 2)
    bridge.write(tmp_path)
    write_ledger(tmp_path, "copy", bridge.rows[:3])

    with pytest.raises(UnusableInput, match="3 rows from number 2 to 4 stand twice"):
        audit(inputs.ledger(spark, [str(tmp_path)]), None, {}, QUESTION)


def test_where_all_files_of_a_bridge_are_gone_and_its_mark_is_there_nothing_can_be_said(spark: SparkSession, tmp_path: Path) -> None:
    north = Bridge("north")
    north.both("m", T0)
    north.quiet()
    marks = {"north": Mark(3, QUIET), "south": Mark(5_000, QUIET)}

    told = verdict.report(audit(inputs.ledger(spark, [north.write(tmp_path)]), None, marks, QUESTION), {})

    assert (told["exit_code"], [one["bridge"] for one in told["bridges"]]) == (2, ["north", "south"])
    assert any("bridge 'south' has no row left of 5000" in reason for reason in told["cannot_say"])
    assert not any("'north'" in reason for reason in told["cannot_say"])


@pytest.mark.parametrize(("ended", "code", "said"), [([], 2, "has no row left of 5000"), (["--ended", "south"], 0, "")])
def test_a_ledger_of_which_only_the_mark_is_left_is_read_and_clean_where_its_bridge_is_named_as_ended(
    spark: SparkSession, tmp_path: Path, ended: list[str], code: int, said: str
) -> None:
    (tmp_path / "south" / "_reach").mkdir(parents=True)
    (tmp_path / "south" / "_reach" / "south.json").write_text(f'{{"bridge": "south", "sequence": 5000, "at_ms": {QUIET}}}')
    words = ["--ledger", str(tmp_path / "south"), "--out", str(tmp_path / "out"), *ended]

    told = reconcile.reconcile(spark, parse(words, now=QUIET), lambda _: None)

    assert (told["exit_code"], said in " ".join(told["cannot_say"])) == (code, True)
