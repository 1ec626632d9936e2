"""Bridges that share the level queues of one broker, whichever it is: their configuration, and rounds in which one is killed, and the broker restarted.

The ends of the bridges (`crash.traffic.Ends`) say what producers and consumers are on each broker.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import secrets
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from brokers.common import wait_until
from crash import compare, traffic

from integration.daemon import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from crash.traffic import Arrival, Ends, Producer

LEVELS = "100ms 250ms 500ms 1s 5s"
"""Short ones, so that a delay of seconds is several hops."""

KILLS = int(os.environ.get("DELAYBRIDGE_TEST_KILLS", "20"))
"""Rounds."""

BRIDGES = (2, 3)
"""How many share the work."""


def config(ends: Ends, kind: str, prefix: str = "", levels: str = LEVELS, **sections: Any) -> dict[str, Any]:
    """A configuration with one route, between the ends of this kind, and with level queues of their own on the same broker."""
    store = {"kind": "level_queues", "broker": "it", "prefix": prefix or f"levels-{secrets.token_hex(4)}"}
    return ends.config(kind, store=store, limits={"min_period": 100, "levels": levels}, **sections)


@contextlib.contextmanager
def bridges(directory: Path, settings: dict[str, Any], count: int) -> Iterator[list[Daemon]]:
    """So many daemons, not started yet, each with a directory and a name of its own; killed at the end where they still run."""
    with contextlib.ExitStack() as stack:
        made = []
        for number in range(count):
            home = directory / f"bridge-{number}"
            home.mkdir()
            made.append(stack.enter_context(Daemon(home, settings | {"bridge": home.name})))
        yield made


@contextlib.contextmanager
def running(directory: Path, settings: dict[str, Any]) -> Iterator[Daemon]:
    """One daemon that is ready, and that ends well."""
    with bridges(directory, settings, 1) as (daemon,):
        daemon.start()
        yield daemon
        assert daemon.terminate() == 0, daemon.tail()


def lateness(arrivals: Sequence[Arrival]) -> list[int]:
    """How late each came, in milliseconds, rising."""
    return sorted(arrival.at - arrival.due for arrival in arrivals)


class Rounds(NamedTuple):
    """What was sent and what came while bridges were killed and the broker was restarted; both in epoch ms. `rows`: of all their ledgers."""

    producer: Producer
    arrivals: list[Arrival]
    kills: list[int]
    restarts: list[int]
    rows: list[dict[str, Any]]

    def told(self) -> None:
        """For people: what it was like."""
        arrivals, late = self.arrivals, lateness(self.arrivals)
        lost, early, doubled, renamed = (
            len(found)
            for found in (
                compare.lost(self.producer, arrivals),
                compare.early(self.producer, arrivals),
                compare.duplicates(arrivals),
                compare.renamed(arrivals),
            )
        )
        print(f"{len(self.kills)} kills, {len(self.restarts)} restarts of the broker;", end=" ")
        print(f"{len(self.producer.sent)} sent, {len(self.producer.confirmed)} confirmed, {len(arrivals)} arrived,", end=" ")
        print(f"{lost} lost, {early} early, {doubled} doubled, {renamed} under several ids;", end=" ")
        print(f"late by {late[len(late) // 2]} ms (p50), {late[len(late) * 99 // 100]} ms (p99), {late[-1]} ms at most")

    def check(self) -> None:
        """Nothing that was confirmed to the producer is lost, and nothing came early."""
        self.told()
        assert len(self.producer.confirmed) >= len(self.kills) * self.producer.burst
        assert compare.lost(self.producer, self.arrivals) == []
        assert compare.early(self.producer, self.arrivals) == []


@contextlib.contextmanager
def litter() -> Iterator[None]:
    """Clients leave the sockets of failed attempts to the garbage collector: let them be found here, not in the next test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


@litter()
def run_rounds(
    ends: Ends,
    kind: str,
    directory: Path,
    settings: dict[str, Any],
    *,
    count: int = 2,
    rounds: int = KILLS,
    rate: int = 200,
    patience: float = 60,
    restart: bool = True,
    kill: bool = True,
    still: float = 0.0,
) -> Rounds:
    """Traffic through `count` bridges; in each round one of them is killed with -9, at work or in its start, and started again, unless told otherwise.

    Where it is to stand `still` it is stopped for so many seconds before, and goes on where it was; if it is killed then, within moments.

    In the middle of the rounds the broker is restarted, orderly, unless told otherwise, or it is not ours.

    Returns when all that was confirmed to the producer has arrived, or `patience` seconds after the last round.
    """
    seed = traffic.seed()
    rng = random.Random(seed)
    consumer, producer = ends.consumer(kind), ends.producer(kind, random.Random(seed), rate)
    kills: list[int] = []
    restarts: list[int] = []

    def more() -> None:
        traffic.wait_for_more([consumer], [len(consumer.arrivals) + rate // 2], patience)
        traffic.any_moment(rng, 0, 0.5)

    with bridges(directory, settings, count) as running:
        for daemon in running:
            daemon.start(ready=False)
        for daemon in running:
            daemon.wait_ready()
        with consumer:
            with producer:
                for number in range(rounds):
                    more()
                    if restart and ends.broker.restartable and number == rounds // 2:
                        restarts.append(traffic.now_ms())
                        ends.broker.restart()
                        more()
                    victim = rng.choice(running)
                    if still:
                        victim.stand_still(still)
                        traffic.any_moment(rng, 0, 0.25)
                    if kill:
                        victim.kill()
                        kills.append(traffic.now_ms())
                        victim.start(ready=False)
            with contextlib.suppress(AssertionError):  # `check` says what is missing
                wait_until(lambda: not compare.lost(producer, consumer.arrivals), "all to arrive", patience, pause=0.25)
        for daemon in running:
            daemon.wait_ready()
            assert daemon.terminate() == 0, daemon.tail()
        rows = [row for daemon in running for row in daemon.ledger()]
    return Rounds(producer, consumer.arrivals, kills, restarts, rows)
