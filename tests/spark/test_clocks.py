"""A bridge whose clock was ahead for a moment, and a watch whose clock was set back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from delaybridge.core.durations import HOUR_MS
from delaybridge.spark_jobs.watching.arguments import parse
from delaybridge.spark_jobs.watching.rounds import Rounds
from spark.ledgers import T0, Bridge
from spark.test_watch import Scene

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.parametrize("marked", [True, False])
def test_a_bridge_that_dies_after_its_clock_was_ahead_is_silent_and_what_it_owes_is_not_called_undelivered(
    spark: SparkSession, tmp_path: Path, *, marked: bool
) -> None:
    bridge, ledger, told = Bridge("north"), tmp_path / "ledger", tmp_path / "alerts"
    bridge.both("m", T0)
    bridge.row("scheduled", T0 + 24 * HOUR_MS, "ahead", T0 + 90 * HOUR_MS)
    bridge.scheduled("owed", T0 + 10_000)
    bridge.write(ledger)
    if marked:
        (ledger / "_reach").mkdir()
        (ledger / "_reach" / "north.json").write_text(json.dumps({"bridge": "north", "sequence": 4, "at_ms": T0 + 5}))
    asked = ["--ledger", str(ledger), "--checkpoint", str(tmp_path / "checkpoint"), "--alerts", str(told)]

    Rounds(spark, parse(asked, T0), lambda: T0 + HOUR_MS).run()

    assert [(line["kind"], line["bridge"]) for line in map(json.loads, told.read_text().splitlines())] == [("bridge_silent", "north")]


def test_a_watch_whose_clock_was_set_back_says_that_it_judges_nothing_until_it_is_right_again(spark: SparkSession, tmp_path: Path) -> None:
    scene = Scene(spark, tmp_path)
    for number in range(2):
        scene.one.scheduled(f"stuck {number}", T0 + 300_000 + number * 10_000)
    scene.flush(scene.one, T0 + 305_000)
    fine = scene.look(T0 + 305_000)
    scene.flush(scene.one, T0 + 320_000)
    told = [scene.look(T0 + 320_000 - back) for back in (120_100, 3_600_000, 3_500_000, 0)]

    assert [[(line["event"], line["kind"], line.get("id") or line["bridge"]) for line in lines] for lines in (fine, *told)] == [
        [("alert", "not_delivered", "stuck 0")],
        [],
        [("alert", "bridge_silent", "one")],
        [],
        [("resolved", "bridge_silent", "one"), ("alert", "not_delivered", "stuck 1")],
    ]
    assert told[1][0]["detail"] == "neither rows nor a mark of its ledger are from before now: do clocks differ?"
