"""kill -9 of the daemon, again and again, beside a real RabbitMQ with producers and consumers at work."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING, Any

import pytest
from integration.daemon import Daemon
from integration.rabbit import Rabbit, config, rabbit

from crash import traffic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROUNDS = int(os.environ.get("DELAYBRIDGE_TEST_KILLS", "50"))
RATE = 600
WINDOW, SETTLED_TOGETHER = 300, 500
"""Messages on the wire, and confirmed ones that one settle write may cover: together, what a kill may double."""


@pytest.fixture
def place(rabbitmq: Any) -> Iterator[Rabbit]:
    with rabbit(rabbitmq.url) as made:
        yield made


def test_nothing_is_lost_early_or_unrecognisably_doubled_when_the_daemon_is_killed_fifty_times(
    rabbitmq: Any, place: Rabbit, tmp_path: Path
) -> None:
    seed = traffic.seed()
    rng = random.Random(seed)
    queue, destination = place.queue("in"), place.queue("out")
    route = {"name": "crash", "from": {"broker": "rabbit", "queue": queue}, "to": {"broker": "rabbit", "address": place.address("out")}}
    daemon = Daemon(
        tmp_path,
        config(
            rabbitmq.url,
            "",
            [route],
            intake={"batch": 100},
            lane={"window": WINDOW},
            limits={"min_period": 100},
            ledger={"flush_interval": 200},
        ),
    )
    kills: list[int] = []
    recognised = 0.0
    consumer = traffic.Consumer(rabbitmq.url, destination)
    producer = traffic.Producer(rabbitmq.url, queue, random.Random(seed), RATE)
    with daemon, consumer:
        with producer:
            for number in range(ROUNDS):
                in_the_start = number % 5 == 4
                daemon.start(ready=not in_the_start)
                time.sleep(rng.uniform(0.2, 1.2) if in_the_start else rng.uniform(0, 0.7))
                recognised += 0 if in_the_start else daemon.metric("duplicates_suppressed_total")
                daemon.kill()
                kills.append(time.time_ns() // 1_000_000)
        daemon.start()
        daemon.wait_for(lambda: place.waiting("in") == 0 and daemon.pending() == 0, "all to be delivered", 60)
        assert daemon.terminate() == 0

    arrivals = consumer.arrivals
    assert len(producer.confirmed) == len(producer.sent) > ROUNDS * RATE / 2
    assert traffic.lost(producer, arrivals) == []
    assert traffic.early(producer, arrivals) == []
    assert traffic.renamed(arrivals) == {}
    doubled = traffic.after_each(kills, [arrival.at for arrival in traffic.duplicates(arrivals)])
    print(f"{len(producer.sent)} sent, {len(arrivals)} arrived, {recognised:.0f} redeliveries recognised at intake,", end=" ")
    print(f"{doubled.total()} duplicates after {len(doubled)} of {ROUNDS} kills")
    assert max(doubled.values(), default=0) <= WINDOW + SETTLED_TOGETHER
    rows = daemon.ledger()
    assert traffic.ledger_problems(rows, arrivals) == []
    for event in ("scheduled", "delivered"):
        times = [round(row["event_time"].timestamp() * 1000) for row in rows if row["event"] == event]
        assert traffic.busy_at(kills, times, within=300) > ROUNDS / 2, f"too few kills came while messages were being {event}"
