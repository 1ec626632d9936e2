"""Alerts reach somebody, whatever else takes none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

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
