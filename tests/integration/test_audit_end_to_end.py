"""The audit of a real run: three brokers, two bridges, one of them killed with kill -9, and what arrived, seen from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from brokers.common import wait_until
from spark.conftest import LEFT_OPEN

pytest.importorskip("pyspark")

from integration.audit_world import BROKERS, ROUTES, Wave, World, rows
from integration.rabbit import now_ms

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

EACH = 60
"""Messages of a wave for each source of a bridge."""
CANCELLED = 3
LASTS = 2_000
LEAD = 30_000
"""Milliseconds in which everything is sent, and a bridge killed and started again, on a busy machine."""


@pytest.fixture
def world(rabbitmq: Any, kafka: Any, activemq: Any, tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, rabbitmq, kafka, activemq)
    yield made
    made.close()


def _wave(name: str, since: int) -> Wave:
    ids = [f"{bridge}-{source}-{name}-{number}" for bridge in ROUTES for source in BROKERS for number in range(EACH)]
    return Wave(since, since + LASTS, tuple(ids))


@LEFT_OPEN
def test_after_a_kill_the_audit_is_clean_and_when_one_message_is_stolen_it_names_exactly_that_one(
    world: World, spark: SparkSession
) -> None:
    north, south = world.bridges["north"].start(), world.bridges["south"].start()
    per_broker = 2 * (2 * EACH)  # two waves, from a route of each bridge
    world.observe({"rabbitmq": per_broker - CANCELLED - 1, "kafka": per_broker, "activemq": per_broker})

    first = _wave("first", now_ms() + LEAD)
    second = _wave("second", first.until + 15_000)  # between them the first is seen to be over
    world.send("north", first)
    north.wait_for(lambda: north.pending() > 0, "messages to come in")
    north.kill()
    world.send("south", first)
    world.send("north", second)
    north.start()
    world.send("south", second)
    north.wait_for(lambda: north.pending() == 6 * EACH, "north to have taken all")
    south.wait_for(lambda: south.pending() == 6 * EACH, "south to have taken all")
    for number in range(CANCELLED):
        assert north.ask("cancel", f"north-activemq-first-{number}") == "done"
    assert now_ms() < first.since, "this machine is too slow for this test: nothing may be due at the kill"

    later = 3 * EACH
    north.wait_for(lambda: north.pending() <= later and south.pending() <= later, "the first wave to be delivered", 60)
    wait_until(lambda: world.rabbit._rabbit.waiting("out") == 0, "the first wave to be seen")
    stolen = world.steal()
    world.observed()
    assert [bridge.terminate() for bridge in (north, south)] == [0, 0]
    told, robbed = world.audit(spark, first), world.audit(spark, second)

    totals = told["totals"]
    assert (told["exit_code"], told["verdict"], told["cannot_say"]) == (0, "clean", [])
    assert (totals["scheduled"], totals["cancelled"], totals["delivered"]) == (6 * EACH, CANCELLED, 6 * EACH - CANCELLED)
    assert totals["observed"] == totals["delivered"]
    assert {one["bridge"] for one in told["bridges"]} == set(ROUTES)
    assert len(told["destinations"]) == len(BROKERS)
    assert robbed["exit_code"] == 1
    [found] = rows(robbed, "discrepancies")
    assert (found["finding"], found["id"], found["destination_broker"]) == ("not_observed", stolen, "rabbitmq")
    assert [row["event"] for row in rows(robbed, "histories")] == ["scheduled", "delivered"]
