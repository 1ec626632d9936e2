"""Several bridges that share their work, and messages that were moved: each case one sentence. All of them stand in two ledgers."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from delaybridge.core.durations import HOUR_MS
from spark.ledgers import QUESTION, T0, Bridge, Observer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

DUE, LATER, PENDING = T0 + 5 * 60_000, T0 + 20 * 60_000, T0 + 3 * HOUR_MS
"""The last one lies behind the window."""


class Finding(NamedTuple):
    """What is found, of which due time, how often, and whose rows tell it."""

    name: str
    due: int
    times: int
    bridge: str | None


class Told(NamedTuple):
    """By id, and the totals."""

    found: dict[str, set[Finding]]
    totals: dict[str, Any]


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder: Path = tmp_path_factory.mktemp("across")
    from delaybridge.spark_jobs.reading import inputs  # noqa: PLC0415 - needs pyspark
    from delaybridge.spark_jobs.reconciling import verdict  # noqa: PLC0415 - needs pyspark
    from delaybridge.spark_jobs.reconciling.audit import audit  # noqa: PLC0415 - as above

    north, south, seen = Bridge("north"), Bridge("south"), Observer()
    _shared(north, south, seen)
    _alike(north, south, seen)
    _moved(north, south, seen)
    for bridge in (north, south):
        bridge.quiet()
    ledgers = inputs.ledger(spark, [bridge.write(folder / bridge.name) for bridge in (north, south)])
    found = audit(ledgers, inputs.observed(spark, [seen.write(folder / "seen")], T0, {}, {}), {}, QUESTION)
    by_id: defaultdict[str, set[Finding]] = defaultdict(set)
    for row in found.discrepancies.collect():
        due = round(row["due_time"].timestamp() * 1_000)
        by_id[row["id"]].add(Finding(row["finding"], due, row["count"], row["bridge"]))
    return Told(dict(by_id), verdict.report(found, {})["totals"])


def _shared(north: Bridge, south: Bridge, seen: Observer) -> None:
    north.scheduled("handed on", DUE)
    south.delivered("handed on", DUE)
    seen.saw("handed on", DUE)
    north.scheduled("forgotten", DUE)
    south.delivered("from nowhere", DUE)
    seen.saw("from nowhere", DUE)
    north.scheduled("unrecorded", DUE)
    seen.saw("unrecorded", DUE)
    north.scheduled("twice", DUE)
    for bridge in (north, south):
        bridge.delivered("twice", DUE)
        seen.saw("twice", DUE)
    for taken in (DUE - 70_000, DUE - 9_000):  # north was killed before its row of the first taking was written
        south.delivered("given again", DUE, taken=taken)
        seen.saw("given again", DUE)
    south.scheduled("given again", DUE, taken=DUE - 9_000)
    north.scheduled("refused", DUE)
    south.row("dead_lettered", DUE + 9, "refused", DUE, reason="rejected_by_broker")
    seen.saw("refused", DUE + 9, destination="dead")


def _alike(north: Bridge, south: Bridge, seen: Observer) -> None:
    for bridge in (north, south):
        bridge.both("alike", DUE)
        seen.saw("alike", DUE)
        bridge.scheduled("alike, one forgotten", DUE)
        bridge.both("alike, one lost", DUE)
    south.delivered("alike, one forgotten", DUE)
    seen.saw("alike, one forgotten", DUE)
    seen.saw("alike, one lost", DUE)
    north.scheduled("alike, none ended", DUE)
    south.scheduled("alike, none ended", DUE, taken=DUE - HOUR_MS)
    seen.saw("alike, none ended", DUE)
    north.both("alike, one unrecorded", DUE)
    south.scheduled("alike, one unrecorded", DUE)
    north.both("alike, one cancelled", DUE)
    south.scheduled("alike, one cancelled", DUE)
    south.row("cancelled", DUE - 1, "alike, one cancelled", DUE)
    for _ in range(2):
        seen.saw("alike, one unrecorded", DUE)
        seen.saw("alike, one cancelled", DUE)


def _moved(north: Bridge, south: Bridge, seen: Observer) -> None:
    for id_, then in (("moved", LATER), ("moved, the old one came", LATER), ("moved, both came", LATER), ("moved, came too soon", PENDING)):
        north.scheduled(id_, DUE, taken=DUE - 10_000)
        south.row("replaced", DUE - 5_000, id_, DUE, taken=DUE - 10_000)
        south.row("scheduled", DUE - 5_000, id_, then, taken=DUE - 10_000)
        if then == LATER:
            north.delivered(id_, LATER, taken=DUE - 10_000)
    seen.saw("moved", LATER)
    seen.saw("moved, the old one came", DUE)
    seen.saw("moved, both came", DUE)
    seen.saw("moved, both came", LATER)
    seen.saw("moved, came too soon", DUE)


def test_what_one_bridge_took_in_and_another_one_ended_is_settled(told: Told) -> None:
    assert not {"handed on", "refused", "moved"} & told.found.keys()


def test_what_one_bridge_took_in_and_none_delivered_is_missing_at_that_bridge(told: Told) -> None:
    assert told.found["forgotten"] == {Finding("missing", DUE, 1, "north")}


def test_what_one_bridge_took_in_and_none_delivered_and_was_seen_is_unrecorded(told: Told) -> None:
    assert told.found["unrecorded"] == {Finding("unrecorded", DUE, 1, "north")}


def test_what_a_bridge_delivered_and_none_took_in_was_never_scheduled(told: Told) -> None:
    assert told.found["from nowhere"] == {Finding("never_scheduled", DUE, 1, "south")}


def test_what_two_bridges_delivered_and_one_took_in_is_duplicated_once_and_both_are_named(told: Told) -> None:
    assert told.found["twice"] == {Finding("duplicated", DUE, 1, "north, south")}


def test_takings_of_one_message_are_compared_apart_where_their_levels_differ(told: Told) -> None:
    assert told.found["given again"] == {Finding("never_scheduled", DUE, 1, "south")}


def test_messages_of_two_bridges_with_one_id_and_due_time_add_up(told: Told) -> None:
    assert "alike" not in told.found
    assert told.found["alike, one forgotten"] == {Finding("missing", DUE, 1, "north, south")}
    assert told.found["alike, one lost"] == {Finding("not_observed", DUE, 1, "north, south")}


def test_of_two_alike_that_have_not_ended_as_many_are_missing_as_were_not_seen(told: Told) -> None:
    assert told.found["alike, none ended"] == {Finding("missing", DUE, 1, "south"), Finding("unrecorded", DUE, 1, "north, south")}


def test_two_alike_that_were_both_seen_are_no_duplicate_where_one_is_not_recorded_or_was_cancelled(told: Told) -> None:
    assert told.found["alike, one unrecorded"] == {Finding("unrecorded", DUE, 1, "north, south")}
    assert told.found["alike, one cancelled"] == {Finding("unwanted", DUE, 1, "north, south")}


def test_where_only_what_was_replaced_is_seen_it_is_unwanted_and_its_replacement_is_lost(told: Told) -> None:
    assert told.found["moved, the old one came"] == {
        Finding("unwanted", DUE, 1, "north, south"),
        Finding("not_observed", LATER, 1, "north"),
    }


def test_what_was_replaced_and_is_seen_beside_its_replacement_is_unwanted_and_not_a_duplicate(told: Told) -> None:
    assert told.found["moved, both came"] == {Finding("unwanted", DUE, 1, "north, south")}


def test_what_was_replaced_and_is_seen_while_its_replacement_waits_is_unwanted(told: Told) -> None:
    assert told.found["moved, came too soon"] == {Finding("unwanted", DUE, 1, "north, south")}


def test_the_equation_adds_up_over_all_ledgers_together(told: Told) -> None:
    totals = told.totals
    outcomes = {name: totals[name] for name in ("delivered", "cancelled", "replaced", "expired", "dead_lettered", "pending")}

    assert outcomes == {"delivered": 16, "cancelled": 1, "replaced": 4, "expired": 0, "dead_lettered": 1, "pending": 6}
    assert (totals["scheduled"], totals["residue"]) == (sum(outcomes.values()) - 3, -3)
