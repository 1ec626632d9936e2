"""What the first look adds up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from delaybridge.spark_jobs.frames import FEW
from delaybridge.spark_jobs.reading import inputs
from delaybridge.spark_jobs.reconciling.counts import of_ledger
from delaybridge.spark_jobs.reconciling.fingerprints import PARTS, suspects, unequal_parts
from spark.ledgers import QUESTION, T0, Bridge

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_of_what_is_due_at_another_time_no_hash_is_added_up_or_a_long_ledger_would_overflow(spark: SparkSession, tmp_path: Path) -> None:
    bridge = Bridge()
    bridge.both("in the window", T0)
    bridge.both("elsewhen", T0 - 1)

    rows = of_ledger(inputs.ledger(spark, [bridge.write(tmp_path)]).rows, QUESTION).collect()

    assert sorted((row["what"], row["low"] is None, row["high"] is None, row["chain_low"] is None) for row in rows) == [
        ("due", False, False, False),
        ("due", False, False, False),
        ("elsewhen", True, True, False),
    ]


def test_buckets_that_disagree_are_sent_to_every_executor_only_where_they_are_few(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, 0, 1, 7, 7)], "hour int, part int, rows bigint, low bigint, high bigint")

    def sent(number: int) -> list[bool]:
        both = unequal_parts(rows, rows.select("hour"), number, ["hour"]), suspects(rows, rows.select("hour", "part"), number, ["hour"])
        assert [frame.count() for frame in both] == [1, 1]
        return ["strategy=broadcast" in frame._jdf.queryExecution().analyzed().toString() for frame in both]

    assert sent(FEW // PARTS) == [True, True]
    assert sent(FEW // PARTS + 1) == [True, False]
    assert sent(FEW + 1) == [False, False]
