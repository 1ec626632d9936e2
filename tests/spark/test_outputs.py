"""The tables that an audit leaves behind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow.parquet as pq

from delaybridge.spark_jobs import arguments, forecast, reconcile
from delaybridge.spark_jobs.forecasting import pending
from delaybridge.spark_jobs.hadoop import Folder
from delaybridge.spark_jobs.reading import inputs
from delaybridge.spark_jobs.reconciling import verdict
from delaybridge.spark_jobs.reconciling.audit import audit
from delaybridge.spark_jobs.reporting import outputs
from spark import exports
from spark.ledgers import QUESTION, QUIET, T0, Bridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACES = [f"place {number}" for number in range(10)]


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One message that is missing at ten destinations."""
    folder: Path = tmp_path_factory.mktemp("written")
    bridge = Bridge()
    for place in reversed(PLACES):
        bridge.scheduled("lost", T0 + 1, destination=place)
    bridge.quiet()
    found = audit(inputs.ledger(spark, [bridge.write(folder / "ledger")]), None, {}, QUESTION)
    return outputs.write(spark, found, verdict.report(found, {}), str(folder / "out"))


def _file(told: dict[str, Any], table: str) -> Path:
    [file] = Path(told["tables"][table].removeprefix("file:")).glob("*.parquet")
    return file


def test_where_results_cannot_be_written_is_told_before_anything_is_counted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge, asked = Bridge(), exports.Exported()
    bridge.quiet()
    words = ["--ledger", bridge.write(tmp_path / "ledger"), "--out"]
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(reconcile, "audit", lambda *_: pytest.fail("counted"))
    monkeypatch.setattr(pending, "exports", lambda _: pytest.fail("counted"))

    with pytest.raises(NotADirectoryError, match="file"):
        reconcile.reconcile(spark, arguments.parse([*words, str(tmp_path / "file" / "out")], QUIET), lambda _: None)
    with pytest.raises(FileExistsError, match="file"):
        forecast.forecast(spark, forecast.parse(["--export", asked.write(tmp_path), "--out", str(tmp_path / "file")], QUIET))


def test_a_window_that_is_audited_again_gives_the_same_and_leaves_one_result(spark: SparkSession, tmp_path: Path) -> None:
    bridge = Bridge()
    bridge.scheduled("lost", T0)
    bridge.both("late", T0 + 1, 60_000)
    bridge.both("doubled", T0 + 2)
    bridge.delivered("doubled", T0 + 2, 4)
    bridge.quiet()
    words = [
        "--ledger",
        bridge.write(tmp_path / "ledger"),
        "--out",
        str(tmp_path / "out"),
        "--since",
        "2025-06-15",
        "--until",
        "2025-06-16",
    ]
    asked = arguments.parse(words, QUIET)

    first = reconcile.reconcile(spark, asked, lambda _: None)
    found = pq.read_table(_file(first, "discrepancies"))
    second = reconcile.reconcile(spark, asked, lambda _: None)

    assert found.column("finding").to_pylist() == ["duplicated", "late", "missing"]
    assert pq.read_table(_file(second, "discrepancies")) == found
    assert {name for name in first if first[name] != second[name]} == {"tables"}
    [window] = (tmp_path / "out").iterdir()
    kept = sorted(entry.name for entry in window.iterdir() if not entry.name.startswith("."))
    assert kept == ["report.html", "report.json", Path(second["tables"]["summary"]).parent.name]


def test_a_folder_that_was_tried_is_left_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    Folder(spark, str(tmp_path / "out")).require_writable()

    assert list((tmp_path / "out").iterdir()) == []


def test_instants_in_the_tables_are_utc_and_say_so(told: dict[str, Any]) -> None:
    kinds = {
        pq.read_schema(_file(told, table)).field(name).type for table, name in (("summary", "due_hour"), ("discrepancies", "due_time"))
    }

    assert [str(kind) for kind in kinds] == ["timestamp[us, tz=UTC]"]


def test_what_is_alike_but_for_the_destination_stands_in_its_order(told: dict[str, Any]) -> None:
    assert [row["destination"] for row in pq.read_table(_file(told, "discrepancies")).to_pylist()] == PLACES
