"""Each discrepancy, in one sentence. All of them stand in one ledger, so that they are also told apart."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from delaybridge.core.durations import HOUR_MS
from spark.ledgers import QUESTION, T0, Bridge, Observer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

Found = dict[str, set[tuple[str, int]]]
SECOND = T0 + HOUR_MS + 5_000


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder: Path = tmp_path_factory.mktemp("findings")
    from delaybridge.spark_jobs.reading import inputs  # noqa: PLC0415 - needs pyspark
    from delaybridge.spark_jobs.reconciling import verdict  # noqa: PLC0415 - needs pyspark
    from delaybridge.spark_jobs.reconciling.audit import audit  # noqa: PLC0415 - as above

    one, two, seen = Bridge("one"), Bridge("two"), Observer()
    for number in range(20):
        one.both(f"fine-{number}", T0 + number)
        two.both(f"fine-{number}", SECOND + number)
    one.both("early", T0 + 50, -1)
    one.both("late", T0 + 60, 1_001)
    one.both("just in time", T0 + 61, 1_000)
    one.both("slow on the wire", T0 + 62)
    for occurrence in (1, 2, 3):
        one.both("cron", T0 + occurrence * 60_000, occurrence=occurrence, kind="cron", taken=T0)
    one.both("lost", T0 + 70)
    one.both("doubled", T0 + 80)
    one.scheduled("cancelled", T0 + 90)
    one.row("cancelled", T0 + 85, "cancelled", T0 + 90)
    one.scheduled("replaced", T0 + 91)
    one.row("replaced", T0 + 85, "replaced", T0 + 91)
    one.both("replaced", T0 + 92)
    one.scheduled("expired", T0 + 93)
    one.row("expired", T0 + 99, "expired", T0 + 93, reason="misfire_skipped")
    one.scheduled("refused", T0 + 94)
    one.row("dead_lettered", T0 + 99, "refused", T0 + 94, reason="rejected_by_broker")
    one.scheduled("unwanted", T0 + 95)
    one.row("cancelled", T0 + 90, "unwanted", T0 + 95)
    one.scheduled("forgotten", T0 + 96)
    one.scheduled("unrecorded", T0 + 97)
    one.delivered("from nowhere", T0 + 98)
    one.both("twice in the ledger", T0 + 99)
    one.delivered("twice in the ledger", T0 + 99)
    one.both("cron with a gap", T0 + 60_000, occurrence=1, kind="cron", taken=T0)
    one.scheduled("cron with a gap", T0 + 120_000, occurrence=2, kind="cron", taken=T0)
    one.both("before the window", T0 - 1, 5_000)
    seen.saw_all(one)
    seen.saw_all(two)
    seen.rows = [row for row in seen.rows if row["id"] not in {"lost", "slow on the wire"}]
    seen.saw("slow on the wire", T0 + 62, 1_051)
    seen.saw("doubled", T0 + 80)
    seen.saw("unwanted", T0 + 95)
    seen.saw("unrecorded", T0 + 97)
    seen.saw("of no ledger", T0 + 97)
    seen.saw("refused", T0 + 99, destination="dead")
    seen.saw(None, None)
    for bridge in (one, two):
        bridge.quiet()
    ledgers = [one.write(folder / "one"), two.write(folder / "two")]
    found = audit(inputs.ledger(spark, ledgers), inputs.observed(spark, [seen.write(folder / "seen")], T0, {}, {}), {}, QUESTION)
    report = verdict.report(found, {})
    by_finding: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
    for row in found.discrepancies.collect():
        by_finding[row["finding"]].add((row["id"], row["occurrence"]))
    histories = [row.asDict() for row in found.histories.collect()]
    summary = [row.asDict() for row in found.summary.collect()]
    arrived = sum(row["id"] is not None and row["due_time"] >= T0 for row in seen.rows)
    return {"report": report, "found": dict(by_finding), "histories": histories, "summary": summary, "seen": arrived}


def _once(*ids: str) -> set[tuple[str, int]]:
    return {(one, 1) for one in ids}


def test_what_is_due_and_neither_ended_nor_seen_is_missing(told: dict[str, Any]) -> None:
    assert told["found"]["missing"] == _once("forgotten") | {("cron with a gap", 2)}


def test_what_was_seen_or_delivered_more_often_than_scheduled_is_duplicated(told: dict[str, Any]) -> None:
    assert told["found"]["duplicated"] == _once("doubled", "twice in the ledger")


def test_what_came_before_its_due_time_is_early(told: dict[str, Any]) -> None:
    assert told["found"]["early"] == _once("early")


def test_what_came_after_the_sla_is_late_also_where_only_the_observer_knows(told: dict[str, Any]) -> None:
    assert told["found"]["late"] == _once("late", "slow on the wire")


def test_what_no_ledger_scheduled_is_named_whether_the_ledger_ended_it_or_a_destination_saw_it(told: dict[str, Any]) -> None:
    assert told["found"]["never_scheduled"] == _once("from nowhere", "of no ledger")


def test_what_was_delivered_and_did_not_arrive_is_not_observed(told: dict[str, Any]) -> None:
    assert told["found"]["not_observed"] == _once("lost")


def test_what_arrived_although_it_was_cancelled_is_unwanted(told: dict[str, Any]) -> None:
    assert told["found"]["unwanted"] == _once("unwanted")


def test_what_arrived_and_has_no_delivery_in_the_ledger_is_unrecorded_and_not_missing(told: dict[str, Any]) -> None:
    assert told["found"]["unrecorded"] == _once("unrecorded")


def test_nothing_else_is_found_not_a_dead_letter_that_arrives_nor_what_is_due_outside_the_window(told: dict[str, Any]) -> None:
    assert sum(map(len, told["found"].values())) == 12


def test_the_equation_counts_every_outcome_and_its_residue_what_ended_without_being_scheduled(told: dict[str, Any]) -> None:
    totals = told["report"]["totals"]
    outcomes = {name: totals[name] for name in ("cancelled", "replaced", "expired", "dead_lettered", "pending")}

    assert outcomes == {"cancelled": 2, "replaced": 1, "expired": 1, "dead_lettered": 1, "pending": 3}
    assert totals["scheduled"] == totals["delivered"] + sum(outcomes.values()) + totals["residue"]
    assert totals["residue"] == -2


def test_what_was_seen_is_counted_dead_letters_and_strangers_included(told: dict[str, Any]) -> None:
    by_place = {row["destination"]: row["observed"] for row in told["report"]["destinations"]}

    assert by_place == {"orders": told["seen"] - 1, "dead": 1}
    assert told["report"]["totals"]["observed"] == told["seen"]


def test_a_message_with_a_finding_is_told_with_its_whole_history(told: dict[str, Any]) -> None:
    events = sorted(row["event"] for row in told["histories"] if row["id"] == "doubled")

    assert events == ["delivered", "observed", "observed", "scheduled"]


def test_two_bridges_may_use_the_same_ids(told: dict[str, Any]) -> None:
    second = [row for row in told["summary"] if row["destination"] == "orders" and row["due_hour"].minute == 0 and row["scheduled"] == 20]

    assert [(row["delivered"], row["observed"], row["residue"]) for row in second] == [(20, 20, 0)]
    assert [one["bridge"] for one in told["report"]["bridges"]] == ["one", "two"]


def test_a_level_says_how_long_a_message_was_asked_to_wait(told: dict[str, Any]) -> None:
    assert {row["level"] for row in told["summary"] if row["kind"] == "cron"} == {"1m", "2m", "5m"}


def test_findings_are_counted_where_they_belong(told: dict[str, Any]) -> None:
    counted = {name: one["count"] for name, one in told["report"]["findings"].items()}

    assert counted == {name: len(ids) for name, ids in told["found"].items()}
    assert told["report"]["exit_code"] == 1
