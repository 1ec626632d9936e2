"""The jobs and the plain Python find the same in ledgers in which anything may happen."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from delaybridge.core.durations import HOUR_MS
from delaybridge.core.ledger import EVENTS
from delaybridge.spark_jobs.reading import inputs
from delaybridge.spark_jobs.reconciling.audit import audit
from delaybridge.spark_jobs.reconciling.findings import FINDINGS
from spark import plain
from spark.ledgers import QUESTION, T0, Bridge, Observer

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from pyspark.sql import SparkSession

MESSAGES = 400
COUNTED = (*EVENTS, "pending", "residue", "observed", *FINDINGS)
LATENESS = (3, 3, 3, 3, -1, -60, 1_000, 1_001, 1_060, 5_000)


def _chaos(dice: random.Random) -> tuple[list[Bridge], Observer]:
    """Half of the messages are as they should be; to the others anything happens, any number of times. Any bridge writes any row.

    An id may come again, at the same or at another due time.
    """
    bridges, seen, due = [Bridge("one"), Bridge("two")], Observer(), T0
    for number in range(MESSAGES):
        destination, again = dice.choice(("orders", "bills")), dice.random() < 0.2
        if not again or dice.random() < 0.5:
            due = T0 + dice.randrange(-HOUR_MS // 2, 2 * HOUR_MS + HOUR_MS // 2)
        id_ = f"m-{number - again}"
        told: dict[str, Any] = {"occurrence": dice.choice((1, 1, 1, 2)), "destination": destination, **_taken(due)}
        if dice.random() < 0.5:
            dice.choice(bridges).scheduled(id_, due, **told)
            dice.choice(bridges).delivered(id_, due, **told)
            seen.saw(id_, due, 5, told["occurrence"], destination)
            continue
        for _ in range(dice.randrange(4)):
            event = dice.choice(EVENTS)
            dice.choice(bridges).row(event, due + dice.choice(LATENESS), id_, due, **told)
        for _ in range(dice.choice((0, 0, 1, 1, 2))):
            seen.saw(id_, due, dice.choice(LATENESS), told["occurrence"], dice.choice((destination, destination, "dead")))
    for bridge in bridges:
        bridge.quiet()
    return bridges, seen


def _taken(due: int) -> dict[str, Any]:
    """Of what is due at one instant, all that a message has from when it was taken in."""
    return {
        "kind": ("once", "period", "cron")[due % 3],
        "dialect": ("own", "rabbitmq")[due % 2],
        "taken": due - (-1, 0, 1, 1_000, 1_001, 3_600_000, 30 * 86_400_000, 30 * 86_400_000 + 1)[due % 8],
    }


def test_whatever_happens_the_jobs_and_the_plain_python_find_the_same(spark: SparkSession, tmp_path: Path) -> None:
    bridges, seen = _chaos(random.Random(11))
    paths = [bridge.write(tmp_path / bridge.name) for bridge in bridges]
    rows = [row for bridge in bridges for row in bridge.rows]

    question = replace(QUESTION, until=QUESTION.until + 1)  # a third hour of one millisecond
    found = audit(inputs.ledger(spark, paths), inputs.observed(spark, [seen.write(tmp_path / "seen")], T0, {}, {}), {}, question)
    told: Counter[plain.Finding] = Counter()
    for row in found.discrepancies.collect():
        told[row["finding"], (row["destination"], row["id"], row["occurrence"], _ms(row["due_time"]))] += row["count"]
    counted = {
        (row["destination"], row["kind"], row["dialect"], row["level"], _ms(row["due_hour"])): Counter(
            {name: row[name] for name in COUNTED}
        )
        for row in found.summary.collect()
    }

    assert len(told) > 150
    assert told == plain.findings(rows, seen.rows, question)
    assert len(counted) > 80
    assert counted == plain.summary(rows, seen.rows, question)


def _ms(instant: datetime) -> int:
    return round(instant.timestamp() * 1_000)
