"""Alerts reach somebody, whatever else takes none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrameWriter

from delaybridge.spark_jobs.columns import UnusableInput
from delaybridge.spark_jobs.reading import kafka_client
from delaybridge.spark_jobs.watching.rounds import Rounds
from delaybridge.spark_jobs.watching.telling import Teller
from spark.ledgers import T0
from spark.test_watch import Scene

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_an_alert_stands_in_the_file_once_although_its_topic_has_gone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, published = Scene(spark, tmp_path), list[int]()
    scene.one.scheduled("stuck", T0)
    scene.flush(scene.one, T0 + 6_000)

    def gone(*_: object) -> None:
        raise OSError("there is no such topic any more")

    with monkeypatch.context() as patched:
        patched.setattr(Teller, "_publish", gone)
        with pytest.raises(OSError, match="no such topic"):
            scene.look(T0 + 6_000)
    assert [line["id"] for line in scene.told()] == ["stuck"]

    scene.restart()
    monkeypatch.setattr(Teller, "_publish", lambda _, lines: published.append(lines.count()))
    assert scene.look(T0 + 7_000) == []
    assert published == [1], "and is published when there is one again"


def test_a_topic_that_takes_no_alerts_is_named_with_why_and_the_file_has_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark tells of a job, a stage and a task, and of the topic only sometimes."""
    scene = Scene(spark, tmp_path)
    scene.one.scheduled("stuck", T0)
    scene.flush(scene.one, T0 + 6_000)

    def save(*_: object) -> None:
        jvm: Any = spark._jvm
        jvm.java.lang.Integer.parseInt("no record")

    monkeypatch.setattr(kafka_client, "require_writable", lambda *_: None)
    monkeypatch.setattr(DataFrameWriter, "save", save)
    rounds = Rounds(spark, replace(scene.arguments, alerts_to="kafka://here:9092/news"), lambda: T0 + 6_000)
    with pytest.raises(UnusableInput, match=r'^topic news at here:9092 took no alerts: .*For input string: "no record"; they are told'):
        rounds.run()
    assert [line["id"] for line in scene.told()] == ["stuck"]
