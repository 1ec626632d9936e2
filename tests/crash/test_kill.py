"""kill -9 of the daemon, again and again, beside real brokers with producers and consumers at work."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest
from integration.daemon import Daemon

from crash import compare, traffic

if TYPE_CHECKING:
    from pathlib import Path

    from crash.traffic import Ends

ROUNDS = {"rabbitmq": 50, "kafka": 20, "activemq": 20}
KIND = "classic"
RATE = 300
WINDOW, SETTLED_TOGETHER = 150, 500
"""Messages on the wire, and confirmed ones that one settle write may cover: together, what a kill may double."""


def at_work(daemon: Daemon) -> bool:
    """Whether it is ready and has taken messages: on Kafka a while lies between."""
    received: int = daemon.get("/status")["routes"][0]["received"] if daemon.ready() else 0
    return received > 0


@pytest.mark.parametrize(("ends", "rounds"), ROUNDS.items(), indirect=["ends"], ids=ROUNDS)
def test_nothing_is_lost_early_or_unrecognisably_doubled_when_the_daemon_is_killed_many_times(
    ends: Ends, rounds: int, tmp_path: Path
) -> None:
    rounds = int(os.environ.get("DELAYBRIDGE_TEST_KILLS", rounds))
    seed = traffic.seed()
    rng = random.Random(seed)
    daemon = Daemon(tmp_path, ends.config(KIND, intake={"batch": 50}, lane={"window": WINDOW}, ledger={"flush_interval": 200}))
    moments, kills = list[int](), list[int]()  # before each kill, and once the process has gone
    recognised = 0.0
    consumer = ends.consumer(KIND)
    producer = ends.producer(KIND, random.Random(seed), RATE)
    with daemon, consumer:
        with producer:
            for number in range(rounds):
                in_the_start = number % 5 == 4
                daemon.start(ready=False)
                if not in_the_start:
                    daemon.wait_for(lambda: at_work(daemon), "messages to come in")
                traffic.any_moment(rng, *((0.2, 1.2) if in_the_start else (0, 0.7)))
                recognised += 0 if in_the_start else daemon.metric("duplicates_suppressed_total")
                moments.append(traffic.now_ms())
                daemon.kill()
                kills.append(traffic.now_ms())
        daemon.start()
        daemon.wait_for(lambda: ends.waiting(KIND) == 0 and daemon.pending() == 0, "what waits to be delivered", 240)
        daemon.wait_for(lambda: not compare.lost(producer, consumer.arrivals), "what RabbitMQ has given and does not count", 60)
        assert daemon.terminate() == 0

    arrivals = consumer.arrivals
    assert len(producer.confirmed) > rounds * RATE / 2
    assert compare.lost(producer, arrivals) == []
    assert compare.early(producer, arrivals) == []
    assert compare.renamed(arrivals) == {}
    doubled = compare.after_each(kills, [arrival.at for arrival in compare.duplicates(arrivals)])
    print(f"{len(producer.sent)} sent, {len(arrivals)} arrived, {recognised:.0f} redeliveries recognised at intake,", end=" ")
    print(f"{doubled.total()} duplicates after {len(doubled)} of {rounds} kills")
    assert max(doubled.values(), default=0) <= WINDOW + SETTLED_TOGETHER
    rows = daemon.ledger()
    assert compare.ledger_problems(rows, arrivals) == []
    for event in ("scheduled", "delivered"):
        times = [round(row["event_time"].timestamp() * 1000) for row in rows if row["event"] == event]
        busy = compare.busy_at(moments, times, within=1_000)
        print(f"{event} at {busy} kills")
        assert busy > rounds / 2, f"too few kills came while messages were being {event}"
