"""Who is named as ended and is nobody is told of, with the names that there are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from delaybridge.bridge.ledger.observed import ObservedFiles
from delaybridge.core.durations import HOUR_MS
from delaybridge.spark_jobs import arguments, reconcile
from delaybridge.spark_jobs.columns import UnusableInput
from delaybridge.spark_jobs.completeness.ended import tell_of_nobody
from delaybridge.spark_jobs.completeness.gaps import Seen
from delaybridge.spark_jobs.completeness.reach import Mark, Reach
from delaybridge.spark_jobs.reading import marks
from delaybridge.spark_jobs.watching.arguments import Arguments
from delaybridge.spark_jobs.watching.rounds import Rounds
from spark.ledgers import QUESTION, QUIET, T0, Bridge

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

NORTH = Reach("north", 1, 1, 1, T0)
MARKS = {"north": Mark(9, T0, 5, (("old", 1),)), "west": Mark(3, T0)}
SEEN = [Seen("1f0c", "rabbit", "orders", T0), Seen(None, "kafka", "orders", T0)]


@pytest.mark.parametrize("name", ["north", "west", "old", "1f0c", "*"])
def test_a_bridge_also_by_its_mark_or_a_former_name_and_an_observer_are_somebody(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    tell_of_nobody(frozenset({name}), [NORTH], MARKS, SEEN)

    assert capsys.readouterr().err == ""


def test_who_is_nobody_is_told_with_the_names_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    tell_of_nobody(frozenset({"nroth", "south", "north"}), [NORTH], MARKS, SEEN)
    tell_of_nobody(frozenset({"nroth"}), [], {})

    assert capsys.readouterr().err.splitlines() == [
        "--ended nroth, south is ignored: nobody wrote what was given under that name; the names are 1f0c, north, old, west",
        "--ended nroth is ignored: nobody wrote what was given under that name; there is no name at all",
    ]


def _ledger(root: Path) -> str:
    bridge = Bridge()
    bridge.both("m", T0)
    bridge.quiet()
    return bridge.write(root)


def test_an_audit_tells_it_and_goes_on(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    window = ["--since", "2025-06-15T15:00", "--until", "2025-06-15T16:00"]
    asked = arguments.parse(["--ledger", _ledger(tmp_path / "l"), "--out", f"{tmp_path}/out", "--ended", "nobody", *window], QUIET)

    told = reconcile.reconcile(spark, asked, lambda _: None)

    assert told["verdict"] == "clean"
    assert capsys.readouterr().err.endswith("; the names are b\n")


def test_what_a_bridge_that_has_ended_holds_is_missing_once_it_is_due_and_not_before(spark: SparkSession, tmp_path: Path) -> None:
    bridge = Bridge()
    bridge.scheduled("due in an hour", T0 + HOUR_MS)
    ledger = bridge.write(tmp_path / "l")

    def totals(now: int) -> dict[str, int]:
        window = ["--since", "2025-06-15T15:00", "--until", "2025-06-15T18:00", "--ended", "b"]
        asked = arguments.parse(["--ledger", ledger, "--out", f"{tmp_path}/out", *window], now)
        told: dict[str, int] = reconcile.reconcile(spark, asked, lambda _: None)["totals"]
        return {name: told[name] for name in ("scheduled", "due", "pending", "missing")}

    assert totals(T0) == {"scheduled": 1, "due": 0, "pending": 1, "missing": 0}
    assert totals(T0 + HOUR_MS) == {"scheduled": 1, "due": 1, "pending": 1, "missing": 1}


def test_an_observer_that_was_killed_has_not_ended_while_what_it_took_last_is_in_no_file(spark: SparkSession, tmp_path: Path) -> None:
    """All of that would be called not observed."""
    seen = ObservedFiles(tmp_path / "seen", "kafka", "orders", "a1", copies=False)
    seen.seen(T0 - HOUR_MS, T0)
    seen.flush()
    seen.add({"at": T0 + 5, "address": "orders", "id": "m", "occurrence": 1, "due": T0})
    inputs = ["--ledger", _ledger(tmp_path / "l"), "--observed", f"{tmp_path}/seen", "--out", f"{tmp_path}/out"]

    def verdict(*said: str) -> str:
        asked = arguments.parse([*inputs, "--since", "2025-06-15T15:00", "--until", "2025-06-15T16:00", *said], QUIET)
        return str(reconcile.reconcile(spark, asked, lambda _: None)["verdict"])

    for said in (("--ended", "a1"), ("--all-ended",)):
        with pytest.raises(UnusableInput, match=r"^observer 'a1' was killed, or still runs: what it took last is in .*/seen/_taken, and"):
            verdict(*said)
    marks.require_written(spark, [f"{tmp_path}/seen/", "kafka://here:9092/orders"], replace(QUESTION, ended=frozenset({"b2"})))
    seen.flush()
    assert verdict("--ended", "a1") == "clean"


def test_a_watch_tells_it_once(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledgers, ended = (_ledger(tmp_path / "l"),), frozenset({"b", "nobody"})
    rounds = Rounds(spark, Arguments(ledgers, f"{tmp_path}/watch", T0 - HOUR_MS, ended=ended, alerts=tmp_path / "alerts"), lambda: QUIET)

    rounds.run()
    rounds.run()

    assert capsys.readouterr().err.count("--ended nobody is ignored") == 1
