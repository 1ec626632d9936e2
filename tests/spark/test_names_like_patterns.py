"""A folder that is there is read by its very name, also where Spark would take that for a pattern and read others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from delaybridge.core.durations import HOUR_MS
from delaybridge.core.schedule import Schedule
from delaybridge.spark_jobs import arguments, forecast, reconcile
from delaybridge.spark_jobs.columns import LEDGER
from delaybridge.spark_jobs.reading import inputs
from delaybridge.spark_jobs.watching.arguments import Arguments
from delaybridge.spark_jobs.watching.rounds import Rounds
from spark.exports import NOW, Exported
from spark.ledgers import QUIET, T0, Bridge, Observer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

NAMES = {"a?b": "axb", "a*b": "a-b", "[x]": "x", "{a,b}": "b", "a\\b": "ab"}
"""Each with a name that it matches."""

each_name = pytest.mark.parametrize("name", NAMES)


def _ledger(root: Path, *ids: str) -> str:
    bridge = Bridge()
    for id_ in ids:
        bridge.both(id_, T0)
    bridge.quiet()
    bridge.write(root)
    (root / "_reach").mkdir()
    (root / "_reach" / "b.json").write_text(json.dumps({"bridge": "b", "sequence": len(bridge.rows), "at_ms": QUIET}))
    return str(root)


@each_name
def test_a_ledger_is_read_by_its_very_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    given, _ = _ledger(tmp_path / name, "this"), _ledger(tmp_path / NAMES[name], "other")

    inputs.door(spark, given, LEDGER, "ledger")
    rows = inputs.ledger(spark, [given]).rows.where("event = 'delivered'").collect()

    assert [row["id"] for row in rows] == ["this"]


def test_a_pattern_that_is_no_folders_name_is_still_one(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("north", "south"):
        bridge = Bridge(name)
        bridge.both(name, T0)
        bridge.write(tmp_path / name)

    rows = inputs.ledger(spark, [f"{tmp_path}/{{north,south}}"]).rows.where("event = 'delivered'").collect()

    assert sorted(row["id"] for row in rows) == ["north", "south"]


def test_an_audit_reads_and_writes_there(spark: SparkSession, tmp_path: Path) -> None:
    root, observer = tmp_path / "{a,b} [x]*?", Observer()
    observer.saw("m", T0)
    places = ["--ledger", _ledger(root / "ledger", "m", "unseen"), "--observed", observer.write(root / "seen"), "--out", f"{root}/out"]
    asked = arguments.parse([*places, "--since", "2025-06-15T15:00", "--until", "2025-06-15T16:00", "--all-ended"], QUIET + 24 * HOUR_MS)

    told = reconcile.reconcile(spark, asked, lambda _: None)

    assert (told["totals"]["scheduled"], told["totals"]["not_observed"]) == (2, 1)
    assert next((root / "out").rglob("report.json")).exists()


def test_a_watch_reads_there_and_goes_on_from_there(spark: SparkSession, tmp_path: Path) -> None:
    root, bridge = tmp_path / "{a,b} [x]*?", Bridge()
    bridge.scheduled("m", T0)
    bridge.quiet(T0 + HOUR_MS)
    asked = Arguments(
        (bridge.write(root / "ledger"),), str(root / "watch"), T0 - HOUR_MS, alerts=root / "alerts.jsonl", silent=100 * HOUR_MS
    )

    Rounds(spark, asked, lambda: T0 + HOUR_MS).run()
    Rounds(spark, asked, lambda: T0 + HOUR_MS).run()

    told: list[dict[str, Any]] = [json.loads(line) for line in (root / "alerts.jsonl").read_text().splitlines()]
    assert [(one["kind"], one["id"]) for one in told] == [("not_delivered", "m")]


def test_a_forecast_reads_there(spark: SparkSession, tmp_path: Path) -> None:
    root, bridge = tmp_path / "{a,b} [x]*?", Exported()
    root.mkdir()
    bridge.add(Schedule(due=NOW + HOUR_MS))
    asked = forecast.parse(["--export", bridge.write(root), "--out", f"{root}/out"], NOW)

    assert forecast.forecast(spark, asked)["totals"]["deliveries"] == 1
