"""A backlog that drains while the inputs are read: due in hours that are complete, delivered so late that one input may not tell of it yet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from delaybridge.spark_jobs.completeness.gaps import Seen
from delaybridge.spark_jobs.reading import inputs
from delaybridge.spark_jobs.reconciling import verdict
from delaybridge.spark_jobs.reconciling.audit import audit
from spark.ledgers import QUESTION, T0, Bridge, Observer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delaybridge.spark_jobs.question import Question

END = QUESTION.until
MINUTE = 60_000


def _drained(*made: int, quiet: int = END + 100 * MINUTE) -> Bridge:
    """A message that was delivered on time, and one for each of these instants, due in the first hour and delivered as late as that."""
    bridge = Bridge()
    bridge.both("fine", T0 + 1)
    for at in made:
        bridge.both(f"at-{(at - END) // 1_000}", T0 + 1, at - T0 - 1)
    bridge.quiet(quiet)
    return bridge


def _told(
    spark: SparkSession, folder: Path, bridge: Bridge, seen: Observer, *observers: Seen, question: Question = QUESTION
) -> dict[str, Any]:
    ledger = inputs.ledger(spark, [bridge.write(folder / "ledger")])
    observed = inputs.observed(spark, [seen.write(folder / "seen")], T0, {}, {})
    found = audit(ledger, observed, {}, question, observers=observers)
    told = verdict.report(found, {})
    assert all(row["complete"] for row in told["hours"])
    assert all((row["observed"] or 0) >= 0 for row in found.summary.collect())
    return told | {"found": sorted((row["finding"], row["id"]) for row in found.discrepancies.where("finding <> 'late'").collect())}


def _seen_fine() -> Observer:
    seen = Observer()
    seen.saw("fine", T0 + 1)
    return seen


def _mark(until: int, since: int = -1, name: str = "a1") -> Seen:
    return Seen(name, "kafka", "orders", until, since)


def test_what_was_delivered_later_than_an_observer_got_is_not_lost_and_what_was_delivered_before_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    bridge, seen = _drained(END + 9_000, END + 71_000), _seen_fine()

    behind = _told(spark, tmp_path, bridge, seen, _mark(END + 70_000))
    further = _told(spark, tmp_path, bridge, seen, _mark(END + 71_000 + QUESTION.grace + 1))

    assert behind["found"] == [("not_observed", "at-9")]
    assert (behind["totals"]["observed"], behind["totals"]["delivered"]) == (1, 3)
    assert behind["cannot_say"] == [
        "1 were taken in, ended or seen after 2025-06-15T17:00:10Z: not every input tells of that, so that they cannot be compared yet"
    ]
    assert further["found"] == [("not_observed", "at-71"), ("not_observed", "at-9")]
    assert further["cannot_say"] == []


def test_what_was_delivered_while_nobody_listened_is_not_lost_however_long_before_it_was_due(spark: SparkSession, tmp_path: Path) -> None:
    made = [9 * MINUTE - 1, 9 * MINUTE, 15 * MINUTE, 21 * MINUTE - 1, 21 * MINUTE]  # by a clock that the grace allows to differ
    bridge, seen = _drained(*(END + each for each in made)), _seen_fine()
    marks = _mark(END + 10 * MINUTE), _mark(END + 50 * MINUTE, since=END + 20 * MINUTE, name="b2")

    gap = _told(spark, tmp_path, bridge, seen, *marks)
    nothing_arrived = _told(spark, tmp_path, bridge, seen, *marks, question=replace(QUESTION, ended=frozenset({"a1"})))

    assert gap["found"] == [("not_observed", "at-1260"), ("not_observed", "at-539")]
    [reason] = gap["cannot_say"]
    assert reason.startswith("3 were taken in, ended or seen after 2025-06-15T17:49:00Z, or delivered while nobody listened:")
    assert len(nothing_arrived["found"]) == len(made)


def test_what_was_delivered_shortly_after_an_observer_began_is_lost_where_it_was_due_then_and_was_not_seen(
    spark: SparkSession, tmp_path: Path
) -> None:
    bridge, seen, hour = Bridge(), Observer(), T0 + 60 * MINUTE
    for id_ in ("fine", "lost"):
        bridge.both(id_, hour + 10_000)
    bridge.quiet(END + 100 * MINUTE)
    seen.saw("fine", hour + 10_000)
    marks = _mark(T0 + 20 * MINUTE), _mark(END + 50 * MINUTE, since=hour - 1_000, name="b2")

    assert _told(spark, tmp_path, bridge, seen, *marks)["found"] == [("not_observed", "lost")]


def test_what_was_delivered_and_is_not_seen_yet_does_not_hide_one_like_it_that_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    bridge = _drained(END + 71_000)
    bridge.row("scheduled", T0 - 10_000, "at-71", T0 + 1)

    told = _told(spark, tmp_path, bridge, _seen_fine(), _mark(END + 70_000))

    assert (told["found"], len(told["cannot_say"])) == ([("missing", "at-71")], 1)


def test_what_a_topic_has_got_since_the_ledgers_were_listed_is_neither_unrecorded_nor_missing(spark: SparkSession, tmp_path: Path) -> None:
    seen = _seen_fine()
    for id_, late in (("seen before", 9_000), ("seen since", 71_000)):
        seen.saw(id_, T0 + 1, END + late - T0 - 1)

    def told(reaches: int) -> dict[str, Any]:
        bridge = _drained(quiet=reaches)
        for id_ in ("seen before", "seen since", "never seen"):
            bridge.row("scheduled", T0 - 10_000, id_, T0 + 1)
        return _told(spark, tmp_path, bridge, seen)

    early, later = told(END + 70_000), told(END + 71_000 + QUESTION.grace + 1)

    assert early["found"] == [("missing", "never seen"), ("unrecorded", "seen before")]
    assert (early["totals"]["pending"], early["totals"]["observed"], len(early["cannot_say"])) == (3, 3, 1)
    assert later["found"] == [("missing", "never seen"), ("unrecorded", "seen before"), ("unrecorded", "seen since")]
    assert later["cannot_say"] == []
