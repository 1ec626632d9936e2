"""kill -9 of the processes in which a bridge's clients run, again and again: to the bridge it is a lost connection."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from integration.daemon import Daemon

from crash import compare, traffic
from crash.test_kill import KIND, RATE, SETTLED_TOGETHER, WINDOW, at_work

if TYPE_CHECKING:
    from crash.traffic import Ends

ROUNDS = 5


def clients(daemon: Daemon) -> list[int]:
    """The processes that the daemon has started."""
    assert daemon.process is not None
    return [int(stat.parent.name) for stat in Path("/proc").glob("[0-9]*/stat") if _parent(stat) == daemon.process.pid]


def _parent(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.mark.parametrize("ends", ["kafka", "rabbitmq"], indirect=True)
def test_nothing_is_lost_early_or_unrecognisably_doubled_when_clients_are_killed_many_times(ends: Ends, tmp_path: Path) -> None:
    seed = traffic.seed()
    rng = random.Random(seed)
    config = ends.config(KIND, intake={"batch": 50}, lane={"window": WINDOW}, ledger={"flush_interval": 200})
    for broker in config["brokers"].values():
        broker["own_processes"] = True
    daemon = Daemon(tmp_path, config)
    kills: list[int] = []
    producer, consumer = ends.producer(KIND, random.Random(seed), RATE), ends.consumer(KIND)
    with daemon, consumer:
        daemon.start()
        with producer:
            for _ in range(ROUNDS):
                daemon.wait_for(lambda: at_work(daemon) and len(clients(daemon)) == 2, "both clients to work")
                traffic.any_moment(rng, 0, 0.7)
                os.kill(rng.choice(clients(daemon)), signal.SIGKILL)
                kills.append(traffic.now_ms())
                daemon.wait_for(lambda: not daemon.ready(), "the loss to be noticed")
        # RabbitMQ does not count what a client has been given: what is lost is what does not come.
        daemon.wait_for(lambda: not compare.lost(producer, consumer.arrivals) and daemon.pending() == 0, "all to be delivered", 60)
        left = clients(daemon)
        assert daemon.terminate() == 0
    assert not any(Path(f"/proc/{each}").exists() for each in left)

    arrivals = consumer.arrivals
    assert len(producer.confirmed) > RATE
    assert compare.lost(producer, arrivals) == []
    assert compare.early(producer, arrivals) == []
    assert compare.renamed(arrivals) == {}
    doubled = compare.after_each(kills, [arrival.at for arrival in compare.duplicates(arrivals)])
    print(f"{len(producer.sent)} sent, {len(arrivals)} arrived, {doubled.total()} duplicates after {len(kills)} kills")
    assert max(doubled.values(), default=0) <= WINDOW + SETTLED_TOGETHER
    assert compare.ledger_problems(daemon.ledger(), arrivals) == []
