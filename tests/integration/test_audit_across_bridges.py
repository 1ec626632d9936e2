"""The audit of bridges that share level queues on a real RabbitMQ: one takes a message in, another one may deliver it."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from brokers.common import wait_until
from crash import compare, traffic
from crash.ends_rabbitmq import RabbitEnds
from spark.conftest import LEFT_OPEN
from spark.ledgers import Observer

pytest.importorskip("pyspark")

from integration import level_queues
from integration.audit_world import audited

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from crash.traffic import Arrival
    from pyspark.sql import SparkSession

    from integration.daemon import Daemon

KIND = "quorum"
MESSAGES = 600


def _send_all(ends: RabbitEnds, bridges: Iterable[Daemon]) -> list[Arrival]:
    """Messages of all kinds through these bridges, until all have arrived and the bridges have ended well; what arrived."""
    producer, consumer = ends.producer(KIND, random.Random(traffic.seed()), 200), ends.consumer(KIND)
    for daemon in bridges:
        daemon.start()
    with consumer:
        with producer:
            wait_until(lambda: len(producer.confirmed) >= MESSAGES, "all to be sent", 60)
        wait_until(lambda: not compare.lost(producer, consumer.arrivals), "all to arrive", 60)
    for daemon in bridges:
        assert daemon.terminate() == 0, daemon.tail()
    return consumer.arrivals


def _observation(folder: Path, address: str, arrivals: Sequence[Arrival]) -> str:
    same = {"event": "observed", "destination_broker": "it", "destination": address, "size_bytes": 1}
    told = [{"event_time": one.at, "id": one.id, "occurrence": one.occurrence, "due_time": one.due, **same} for one in arrivals]
    return Observer(rows=told).write(folder)


def _handed_on(ledger: Iterable[dict[str, Any]]) -> int:
    """How many occurrences one bridge scheduled and another one delivered."""
    writers: defaultdict[Any, dict[str, str]] = defaultdict(dict)
    for row in ledger:
        writers[row["id"], row["occurrence"]][row["event"]] = row["bridge"]
    return sum(one["scheduled"] != one["delivered"] for one in writers.values())


@LEFT_OPEN
def test_what_bridges_take_in_and_deliver_for_each_other_is_clean_in_their_ledgers_together(
    rabbitmq: Any, spark: SparkSession, tmp_path: Path
) -> None:
    ends = RabbitEnds(rabbitmq)
    settings = level_queues.config(ends, KIND, ledger={"flush_interval": 500})
    began = traffic.now_ms()
    with level_queues.bridges(tmp_path, settings, 2) as bridges:
        arrivals = _send_all(ends, bridges)
        ledger = [row for daemon in bridges for row in daemon.ledger()]
        ledgers = [word for daemon in bridges for word in ("--ledger", str(daemon.store / "ledger"))]
    ends.close()
    seen = _observation(tmp_path / "seen", settings["routes"][0]["to"]["address"], arrivals)
    told = audited(spark, [*ledgers, "--observed", seen], began, traffic.now_ms(), tmp_path / "audits")

    totals = told["totals"]
    assert (told["exit_code"], told["verdict"], told["cannot_say"]) == (0, "clean", [])
    assert totals["scheduled"] == totals["delivered"] == totals["observed"] == len(arrivals) >= MESSAGES
    assert {one["bridge"] for one in told["bridges"]} == {"bridge-0", "bridge-1"}
    assert _handed_on(ledger) > 0
