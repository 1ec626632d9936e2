"""Very many messages due in one instant: how fast they go, what memory it takes, whom it disturbs, and what is left on the disk."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from .backlog import fill, now_ms, sleep_until
from .daemon import Bridge, bridge, disk_bytes, route
from .figures import Figure, at_least, at_most
from .queues import Queues
from .rabbit_ends import ENDS
from .throughput import FILLED_PER_SECOND, RATIO, loaded, relayed_speed
from .traffic import Arrival, Flow, Lateness, Traffic, flowing

SOURCE, DESTINATION = "bench.burst.in", "bench.burst.out"
OTHER_SOURCE, OTHER_DESTINATION = "bench.other.in", "bench.other.out"
CALM = 20
"""Seconds between the start and the burst: the ledger's first flush, which loads Arrow, falls into them."""
SETTLED_WITHIN = 60
TRAFFIC = Traffic(rate=100, seconds=1_800, delays=(500, 1_500))
UNCHANGED = 1.5
"""How much the other lane's p99 may differ before that is called a change: two runs of the raw relay differ by as much."""


class Watch:
    """The most memory (MiB) and disk (bytes) that a daemon took, looked at ten times a second."""

    def __init__(self, running: Bridge) -> None:
        self.memory, self.disk = 0.0, 0
        self._running = running
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.1):
            self.memory = max(self.memory, self._running.rss())
            self.disk = max(self.disk, disk_bytes(self._running.store / "db"))

    @contextlib.contextmanager
    def watching(self) -> Iterator[Watch]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            thread.join()


def burst(url: str, directory: Path, count: int) -> list[Figure]:
    """One lane with `count` messages for one instant; a second, on a connection of its own, with steady traffic all the time.

    Afterwards the raw relay passes as many messages on beside the same traffic. Both fill the broker and the machine to the brim, and a queue to
    the same depth; what the second lane suffers from that, and not from the bridge, shows there.
    """
    brokers = {name: {"type": "rabbitmq", "url": url} for name in ("rabbit", "other")}
    routes = [route("burst", "rabbit", "rabbit", SOURCE, DESTINATION), route("other", "rabbit", "other", OTHER_SOURCE, OTHER_DESTINATION)]
    instant = now_ms() + 1000 * (count // FILLED_PER_SECOND + CALM)
    fill(directory / "store", count, itertools.repeat(instant), "rabbit", f"/queues/{DESTINATION}")
    with Queues(url) as queues:
        queues.empty(SOURCE, DESTINATION, OTHER_SOURCE, OTHER_DESTINATION)
        started = bridge(directory, {"brokers": brokers, "routes": routes})
        with started as running, flowing(ENDS, url, OTHER_SOURCE, OTHER_DESTINATION, TRAFFIC) as flow:
            return measured(queues, running, flow, count, instant)


def measured(queues: Queues, running: Bridge, flow: Flow, count: int, instant: int) -> list[Figure]:
    """The burst, its end on the disk, the raw relay, each beside the other lane's traffic."""
    began = now_ms()
    with Watch(running).watching() as calm:
        sleep_until(instant)
    with Watch(running).watching() as drain:
        speed = queues.speed(lambda: queues.depth(DESTINATION), count)
        queues.wait_for(DESTINATION, count)
    drained = now_ms()
    emptied_after, left = emptied(running, drain.disk)
    loaded(queues, count, None)
    relay_began = now_ms()
    raw = relayed_speed(queues, count)
    relay_ended = now_ms()
    flow.stop()
    arrivals = flow.arrivals()
    at = f"{count:,} due at once"
    return [
        Figure(f"{at}: drained", speed, "messages/s"),
        at_least(f"{at}: drained / raw relay", speed / raw, "", RATIO),
        at_most(f"{at}: memory over idle", drain.memory - calm.memory, "MiB", 100),
        *disturbance(within(arrivals, began, instant), within(arrivals, instant, drained), within(arrivals, relay_began, relay_ended)),
        at_most(f"{count:,} drained: disk / peak", left / drain.disk, "", 0.1),
        Figure(f"{count:,} drained: disk given back after", emptied_after, "s"),
    ]


def within(arrivals: list[Arrival], began: int, ended: int) -> Lateness:
    """Of the messages that fell due in that time."""
    return Lateness.of([arrival for arrival in arrivals if began <= arrival[0] < ended])


def disturbance(calm: Lateness, burst: Lateness, relay: Lateness) -> list[Figure]:
    """The other lane's lateness, as its consumer saw it."""
    return [
        Figure("another lane, p99 lateness: nothing else", calm.p99, "ms"),
        Figure("another lane, p99 lateness: beside the raw relay", relay.p99, "ms"),
        at_most("another lane, p99 lateness: beside the burst", burst.p99, "ms", round(UNCHANGED * max(calm.p99, relay.p99), 1)),
        Figure("another lane, worst lateness: beside the burst", burst.worst, "ms"),
    ]


def emptied(running: Bridge, peak: int) -> tuple[float, int]:
    """How long after the drain the disk was down to a tenth of its peak, and to what; or what it was when the time was over."""
    began = time.monotonic()
    while True:
        left, waited = disk_bytes(running.store / "db"), time.monotonic() - began
        if left <= peak / 10 or waited > SETTLED_WITHIN:
            return waited, left
        time.sleep(0.2)
