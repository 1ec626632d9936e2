"""`delaybridge migrate-store` between daemons that were killed, on each broker: everything arrives, and the ledger adds up over both kinds of store."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from brokers.common import wait_until
from crash import compare, traffic
from crash.conftest import ENDS
from crash.traffic import Sent

from delaybridge.bridge.migration.out import OUT
from integration.daemon import COMMAND, Daemon
from integration.level_queues import config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from crash.traffic import Ends, Producer

KIND = "classic"
LATER = 20_000
"""Milliseconds after which nothing of this test is scheduled any more."""


@pytest.fixture(params=ENDS)
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    made = ENDS[request.param](request.getfixturevalue(request.param))
    yield made
    made.close()


class House:
    """A daemon whose messages wait now here, now there."""

    def __init__(self, directory: Path, ends: Ends) -> None:
        self._levels = config(ends, KIND, levels="500ms 1s 5s 10s", ledger={"flush_interval": 200})
        self.prefix: str = self._levels["store"]["prefix"]
        self.daemon = Daemon(directory, self._levels)
        self._path = {"path": str(self.daemon.store)}
        self.on_index()

    def on_index(self) -> None:
        self._set({"kind": "time_index"})

    def on_levels(self) -> None:
        self._set(self._levels["store"])
        applied = self.daemon.run("apply")
        assert "Error" not in applied.stderr, applied.stderr

    def _set(self, store: dict[str, Any]) -> None:
        self.daemon.config["store"] = self._path | store
        self.daemon.write()

    def move(self, to: str, *more: str) -> str:
        done = self.daemon.run("migrate-store", "--to", to, *more)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def killed_while_moving(self) -> None:
        """To level queues, until it is killed."""
        command = [str(COMMAND), "migrate-store", "--to", "level_queues", "--config", str(self.daemon.file)]
        process = subprocess.Popen(command, cwd=self.daemon.directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        before = self._log_sizes()
        wait_until(
            lambda: process.poll() is not None or any(size > before.get(name, 0) for name, size in self._log_sizes().items()),
            "a first batch",
        )
        time.sleep(random.uniform(0, 0.1))  # not waited for: the kill is to come at any point of a batch
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def _log_sizes(self) -> dict[str, int]:
        """Of the time index's write-ahead logs: they grow when a batch is forgotten there."""
        sizes = {}
        for log in (self.daemon.store / "db").glob("*.log"):
            with contextlib.suppress(FileNotFoundError):
                sizes[log.name] = log.stat().st_size
        return sizes


def fill(producer: Producer, count: int) -> None:
    """Send so many messages, due over some seconds, a few of them repeated."""
    rng = random.Random(traffic.seed())

    def ask() -> tuple[int, dict[str, Any]]:
        number, now = len(producer.sent), time.time_ns() // 1_000_000
        delay = rng.randrange(6_000, LATER - 2_000)
        repeat = {"x-delay-period": delay // 2, "x-delay-repeat": 1, "x-delay-misfire": "all"}
        producer.sent[number] = Sent(repeat, 2, now + delay // 2) if number % 20 == 0 else Sent({"x-delay": delay}, 1, now + delay)
        return number, producer.sent[number].headers

    producer.ask = ask  # type: ignore[method-assign]  # of this producer alone
    producer.burst = count // 4
    with producer:
        wait_until(lambda: len(producer.confirmed) >= count, "all to be sent", 30)


def test_nothing_is_lost_doubled_or_forgotten_by_the_ledger_on_the_way_there_and_back(ends: Ends, tmp_path: Path) -> None:
    house = House(tmp_path, ends)
    daemon, producer, consumer = house.daemon, ends.producer(KIND, random.Random(0), 1), ends.consumer(KIND)
    with daemon, consumer:
        daemon.start()
        fill(producer, 2_000)
        daemon.wait_for(lambda: ends.kept(KIND) == 0, "all to be taken in", 60)  # what was not acknowledged comes again, under other ids
        daemon.kill()

        house.on_levels()
        house.killed_while_moving()
        print(house.move("level_queues"))
        delivered = len(consumer.arrivals)  # before the kill, on a slow machine: that may double some of these, too
        daemon.start()
        wait_until(lambda: len(consumer.arrivals) > 100, "deliveries from the level queues", 60)
        assert daemon.terminate() == 0, daemon.tail()

        house.on_index()
        print(house.move("time_index", "--broker", "it", "--prefix", house.prefix))
        daemon.start()
        wait_until(lambda: not compare.lost(producer, consumer.arrivals), "all to arrive", 60, pause=0.25)
        daemon.wait_for(lambda: daemon.pending() == 0, "nothing to be pending")
        assert daemon.terminate() == 0, daemon.tail()

    arrivals = consumer.arrivals
    assert compare.early(producer, arrivals) == []
    assert compare.renamed(arrivals) == {}
    doubled = {arrival.number for arrival in compare.duplicates(arrivals)}  # each of them once, however often it is repeated
    print(f"{len(arrivals)} arrived, {len(doubled)} messages doubled")
    assert len(doubled) <= OUT + delivered
    twice = {"an occurrence is scheduled or closed twice", "scheduled and closed differ"} if doubled else set()
    assert set(compare.ledger_problems(daemon.ledger(), arrivals)) <= twice


def test_a_bridge_at_work_keeps_others_from_moving_its_store(ends: Ends, tmp_path: Path) -> None:
    house = House(tmp_path, ends)
    with house.daemon as daemon:
        daemon.start()
        refused = daemon.run("migrate-store", "--to", "time_index", "--broker", "it")
        assert refused.returncode == 75
        assert daemon.terminate() == 0
