"""What is known of a message is found alike, whether few or many are asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from delaybridge.spark_jobs.reading import inputs
from delaybridge.spark_jobs.reconciling import histories
from spark.ledgers import T0, Bridge, Observer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_what_is_sought_by_hash_is_what_a_join_finds(spark: SparkSession, tmp_path: Path) -> None:
    bridge, seen = Bridge(), Observer()
    for number in range(30):
        bridge.both(f"m-{number}", T0 + number)
    seen.saw_all(bridge)
    asked = spark.createDataFrame([("m-3", 1), ("m-4", 1), ("m-5", 2), ("m-3", 1)], "id string, occurrence bigint")
    ledger = inputs.sound(inputs.ledger(spark, [bridge.write(tmp_path / "ledger")]).placed)
    arrived = inputs.sound(inputs.observed(spark, [seen.write(tmp_path / "seen")], T0, {}, {}).placed)
    hashes = histories.hashes(asked)

    sought, joined = (histories.rows(asked, 4, them, ledger, arrived).collect() for them in (hashes, None))

    assert sorted((row["id"], row["event"]) for row in sought) == [
        (id_, event) for id_ in ("m-3", "m-4") for event in ("delivered", "observed", "scheduled")
    ]
    assert sorted(map(str, sought)) == sorted(map(str, joined))


def test_too_many_are_not_sought_by_hash(spark: SparkSession) -> None:
    asked = spark.range(histories.SOUGHT + 1).selectExpr("cast(id as string) as id", "1L as occurrence")

    assert histories.hashes(asked) is None
    assert len(histories.hashes(asked.limit(histories.SOUGHT)) or ()) == histories.SOUGHT
