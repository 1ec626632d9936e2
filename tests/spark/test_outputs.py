"""The tables that an audit leaves behind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow.parquet as pq

from delaybridge.spark_jobs import inputs, outputs, verdict
from delaybridge.spark_jobs.audit import audit
from spark.ledgers import QUESTION, T0, Bridge

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


def test_instants_in_the_tables_are_utc_and_say_so(told: dict[str, Any]) -> None:
    kinds = {
        pq.read_schema(_file(told, table)).field(name).type for table, name in (("summary", "due_hour"), ("discrepancies", "due_time"))
    }

    assert [str(kind) for kind in kinds] == ["timestamp[us, tz=UTC]"]


def test_what_is_alike_but_for_the_destination_stands_in_its_order(told: dict[str, Any]) -> None:
    assert [row["destination"] for row in pq.read_table(_file(told, "discrepancies")).to_pylist()] == PLACES
