"""What frames have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from delaybridge.spark_jobs.frames import keep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(("master", "copies"), [("local[2]", 1), ("local", 1), ("yarn", 2), ("k8s://https://host", 2)])
def test_what_is_kept_on_a_cluster_is_on_two_executors(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, master: str, copies: int
) -> None:
    monkeypatch.setattr(spark.sparkContext, "master", master)
    before = _replications(spark)

    kept = keep(spark.range(3))

    assert {number: of for number, of in _replications(spark).items() if number not in before} == {_newest(spark): copies}
    assert kept.count() == 3


def _replications(spark: SparkSession) -> dict[int, int]:
    """Number of an RDD that is kept -> how many copies."""
    told = spark._jsc.sc().getRDDStorageInfo()
    return {one.id(): one.storageLevel().replication() for one in told}


def _newest(spark: SparkSession) -> int:
    return max(_replications(spark))
