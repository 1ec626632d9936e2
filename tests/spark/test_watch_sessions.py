"""A watch runs for months: what Spark makes for its rounds must not stay."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from brokers.common import wait_until

pytest.importorskip("pyspark")

from delaybridge.spark_jobs.watching import sessions
from delaybridge.spark_jobs.watching.arguments import parse
from delaybridge.spark_jobs.watching.rounds import Rounds
from spark.ledgers import T0, Bridge, write_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def test_of_the_sessions_that_spark_makes_for_each_round_java_keeps_those_of_the_last_ones_only(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java: Any = spark._jvm
    made: list[Any] = []

    of_query = sessions.of_query

    def noting(query: StreamingQuery) -> Any:
        session = of_query(query)
        made.append(java.java.lang.ref.WeakReference(session))
        return session

    monkeypatch.setattr(sessions, "of_query", noting)
    bridge, ledger = Bridge(), tmp_path / "ledger"
    bridge.both("m", T0)
    asked = ["--ledger", bridge.write(ledger), "--checkpoint", str(tmp_path / "checkpoint"), "--alerts", str(tmp_path / "alerts")]
    rounds = Rounds(spark, parse(asked, T0), lambda: T0 + 10)
    for number in range(3):
        rounds.run()
        bridge.both(f"m-{number}", T0)
        write_ledger(ledger, f"more-{number}", bridge.rows[-2:])

    def forgotten() -> list[bool]:
        gc.collect()  # what Python holds on to, Java does
        java.System.gc()
        return [bool(reference.refersTo(None)) for reference in made[:2]]

    # A thread that a pool of Spark's made meanwhile holds the session of the thread that made it, and ends when it has been idle for a minute.
    wait_until(lambda: all(forgotten()), "Java to forget the sessions of all rounds but the last", 100.0)


class Session:
    """As Java's, as far as it is asked."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.closed = False

    def sessionUUID(self) -> str:  # noqa: N802 - Java's name
        return self._name

    def artifactManager(self) -> Session:  # noqa: N802 - as above
        return self

    def close(self) -> None:
        self.closed = True


def test_the_artifacts_of_the_main_session_are_left_alone() -> None:
    main, clone = Session("main"), Session("clone")
    spark: Any = SimpleNamespace(_jsparkSession=main)

    sessions.let_go(spark, lambda: main)
    sessions.let_go(spark, lambda: clone)

    assert (main.closed, clone.closed) == (False, True)


def test_a_spark_that_lacks_what_is_closed_here_is_no_error(spark: SparkSession) -> None:
    java: Any = spark._jvm

    sessions.let_go(spark, java.java.lang.Object)
    sessions.let_go(spark, spark._jsparkSession.thereIsNoSuchThing)
