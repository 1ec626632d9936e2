"""The jobs and the plain Python find the same in ledgers in which anything may happen."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from delaybridge.core.ledger import EVENTS
from delaybridge.spark_jobs import inputs
from delaybridge.spark_jobs.audit import audit
from delaybridge.spark_jobs.question import HOUR_MS
from spark import plain
from spark.ledgers import QUESTION, T0, Bridge, Observer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

MESSAGES = 400
LATENESS = (3, 3, 3, 3, -1, -60, 1_000, 1_001, 1_060, 5_000)


def _chaos(dice: random.Random) -> tuple[list[Bridge], Observer]:
    """Half of the messages are as they should be; to the others anything happens, any number of times."""
    bridges, seen = [Bridge("one"), Bridge("two", "bills")], Observer()
    for number in range(MESSAGES):
        bridge, due = dice.choice(bridges), T0 + dice.randrange(-HOUR_MS // 2, 2 * HOUR_MS + HOUR_MS // 2)
        id_, occurrence = f"m-{number if dice.random() < 0.9 else number - 1}", dice.choice((1, 1, 1, 2))
        if dice.random() < 0.5:
            bridge.both(id_, due, occurrence=occurrence)
            seen.saw(id_, due, 5, occurrence, bridge.destination)
            continue
        for _ in range(dice.randrange(4)):
            event = dice.choice(EVENTS)
            bridge.row(event, due + dice.choice(LATENESS), id_, due, occurrence=occurrence)
        for _ in range(dice.choice((0, 0, 1, 1, 2))):
            seen.saw(id_, due, dice.choice(LATENESS), occurrence, dice.choice((bridge.destination, bridge.destination, "dead")))
    for bridge in bridges:
        bridge.quiet()
    return bridges, seen


def test_whatever_happens_the_jobs_and_the_plain_python_find_the_same(spark: SparkSession, tmp_path: Path) -> None:
    bridges, seen = _chaos(random.Random(11))
    paths = [bridge.write(tmp_path / bridge.name) for bridge in bridges]
    rows = [row for bridge in bridges for row in bridge.rows]

    found = audit(inputs.ledger(spark, paths), inputs.observed(spark, [seen.write(tmp_path / "seen")], T0, {}, {}), {}, QUESTION)
    told = {(row["finding"], row["id"], row["occurrence"]) for row in found.discrepancies.collect()}

    assert len(told) > 150
    assert told == plain.findings(rows, seen.rows, QUESTION)
