"""What an audit says in numbers, and when that is tolerated."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from delaybridge.core.durations import HOUR_MS
from delaybridge.spark_jobs.arguments import parse
from delaybridge.spark_jobs.completeness.gaps import Seen
from delaybridge.spark_jobs.reading import inputs
from delaybridge.spark_jobs.reconciling import sightings, verdict
from delaybridge.spark_jobs.reconciling.audit import audit
from spark.ledgers import QUESTION, T0, Bridge, Observer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delaybridge.spark_jobs.reconciling.audit import Audit


@pytest.fixture(scope="module")
def found(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Audit:
    """Deliveries 1 to 100 ms late, one 12,345 ms late, and what was cancelled before its time, which comes after the inputs were read."""
    bridge = Bridge()
    for lateness in (*range(1, 101), 12_345):
        bridge.both(f"m-{lateness}", T0 + lateness, lateness)
    bridge.scheduled("cancelled", T0 + HOUR_MS + 1)
    bridge.row("cancelled", T0 + HOUR_MS, "cancelled", T0 + HOUR_MS + 1)
    bridge.quiet()
    ledger = inputs.ledger(spark, [bridge.write(tmp_path_factory.mktemp("ledger"))])
    return audit(ledger, None, {}, replace(QUESTION, as_of=T0 + HOUR_MS))


LATENESS = {"p50_ms": 51, "p95_ms": 96, "p99_ms": 100, "max_ms": 12_345}


def test_percentiles_of_lateness_are_those_of_the_deliveries_in_the_report_and_in_the_summary(found: Audit) -> None:
    [first, second] = found.summary.orderBy("due_hour").collect()

    lateness = verdict.report(found, {})["lateness"]

    assert {name: lateness[name] for name in LATENESS} == LATENESS
    assert {name: first[name] for name in LATENESS} == LATENESS
    assert {name: second[name] for name in LATENESS} == dict.fromkeys(LATENESS)
    assert lateness["values"] == [(ms, 1, "on_time") for ms in range(1, 101)] + [(12_300, 1, "late")]


def test_due_is_what_was_scheduled_and_whose_time_had_come_when_the_inputs_were_read(found: Audit) -> None:
    totals = verdict.report(found, {})["totals"]

    assert (totals["scheduled"], totals["due"], totals["cancelled"]) == (102, 101, 1)


@pytest.mark.parametrize(
    ("allow", "code"),
    [("late=0", 1), ("late=1", 0), ("late=0.9%", 1), ("late=1%", 0), ("missing=9", 1)],
)
def test_so_many_findings_or_percent_of_what_was_scheduled_are_tolerated_and_no_more(found: Audit, allow: str, code: int) -> None:
    allowed = parse(["--ledger", "anywhere", "--allow", allow], now=T0).allowed

    told = verdict.report(found, allowed)

    assert (told["exit_code"], told["findings"]["late"]["count"]) == (code, 1)
    assert told["beyond_tolerance"] == ["late"] * code


@pytest.mark.parametrize(("found", "covered"), [(57, True), (58, False)])
def test_what_is_tolerated_is_counted_exactly(found: int, *, covered: bool) -> None:
    _, allowed = verdict.allowance("late=0.57%")

    assert allowed.covers(found, 10_000) is covered


def test_who_reaches_beyond_the_window_but_not_by_the_sla_and_the_grace_is_named(spark: SparkSession, tmp_path: Path) -> None:
    bridge, other, seen = Bridge(), Bridge("other"), Observer()
    bridge.both("m", T0)
    seen.saw_all(bridge)
    bridge.quiet(QUESTION.until + QUESTION.sla + QUESTION.grace - 1)
    other.quiet(QUESTION.until + QUESTION.sla + QUESTION.grace)
    other.write(tmp_path / "ledger")
    ledger = inputs.ledger(spark, [bridge.write(tmp_path / "ledger")])
    observed = inputs.observed(spark, [seen.write(tmp_path / "seen")], T0, {}, {})
    observer = Seen("a1", "kafka", "orders", QUESTION.until + 1)

    alone = verdict.report(audit(ledger, None, {}, QUESTION), {})["cannot_say"]
    behind = verdict.report(audit(ledger, observed, {}, QUESTION, observers=[observer]), {})["cannot_say"]

    assert [reason.partition(" reaches to ")[0] for reason in alone[1:]] == ["the ledger of bridge 'b'"]
    assert [reason.partition(" of kafka ")[0] for reason in behind[2:]] == ["observer 'a1'"]


@pytest.mark.parametrize(("after", "named"), [(120_000, []), (120_001, ["the ledger of bridge 'b'", "observer 'a1'"])])
def test_of_a_window_that_ended_just_now_it_is_told_when_it_can_be_judged_and_who_is_behind_but_nobody_who_may_run(
    spark: SparkSession, tmp_path: Path, after: int, named: list[str]
) -> None:
    bridge, told = Bridge(), QUESTION.until - 1_000
    bridge.quiet(told)
    ledger = inputs.ledger(spark, [bridge.write(tmp_path)])
    asked = replace(QUESTION, as_of=told + after)

    reasons = verdict.report(audit(ledger, None, {}, asked, observers=[Seen("a1", "kafka", "orders", told)]), {})["cannot_say"]

    assert [reason.partition(" of kafka ")[0].partition(" reaches to ")[0] for reason in reasons[1:-1]] == named
    assert reasons[-1].endswith("is too early: bridges and observers that run have told of the whole window by 2025-06-15T17:03:01Z")


def test_the_worst_stand_in_the_same_order_however_spark_comes_by_them(spark: SparkSession, tmp_path: Path) -> None:
    bridge = Bridge()
    for destination, late in (("orders", 5_000), ("bills", 5_000), ("bills", 5_000), ("mails", 7_000)):
        bridge.both("m", T0, late, destination=destination)
    bridge.quiet()
    found = audit(inputs.ledger(spark, [bridge.write(tmp_path)]), None, {}, QUESTION).discrepancies
    rows = found.collect()

    forth, back = (verdict._worst(spark.createDataFrame(given, found.schema).coalesce(1)) for given in (rows, rows[::-1]))

    assert [row["destination"] for row in forth] == ["mails", "bills", "bills", "orders"]
    assert forth == back


def test_what_happened_last_to_a_message_is_what_its_bridge_wrote_last_also_in_one_millisecond(spark: SparkSession, tmp_path: Path) -> None:
    bridge = Bridge()
    for event in ("scheduled", "replaced", "cancelled"):
        bridge.row(event, T0, "m", T0)
    ledger = inputs.sound(inputs.ledger(spark, [bridge.write(tmp_path)]).rows)
    rows = ledger.collect()

    for given in (rows, rows[::-1]):
        [told] = sightings.known(spark.createDataFrame(given, ledger.schema).coalesce(1)).collect()
        assert told["last_event"] == "cancelled"
