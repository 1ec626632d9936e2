"""The time index alone: durable puts, hand-outs and settlements per second, and the disk that it gives back."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from delaybridge.core.store import Settled, SourceProgress
from delaybridge.core.time_index import TimeIndex

from .backlog import far_off, now_ms, opened
from .figures import Figure, at_least, at_most
from .messages import puts

SIZES = {500: 200_000, 50: 50_000, 1: 2_000}
"""Messages by the size of the batches in which they are put and settled."""
BUDGET = 60_000
QUIET = 3_600_000
LANE = "rabbit"

Result = TypeVar("Result")


class Watch:
    """Seconds on the wall and of this thread's processor time, over many calls."""

    def __init__(self) -> None:
        self.wall = self.processor = 0.0

    def time(self, work: Callable[[], Result]) -> Result:
        wall, processor = time.perf_counter(), time.thread_time()
        try:
            return work()
        finally:
            self.wall += time.perf_counter() - wall
            self.processor += time.thread_time() - processor


def store(directory: Path) -> list[Figure]:
    """One store for each batch size, filled and drained."""
    figures = [figure for batch, count in SIZES.items() for figure in rates(directory / f"batches-of-{batch}", batch, count)]
    return [*figures, at_most("store: disk when drained / when full", drained_disk(directory / "disk", SIZES[500]), "", 0.1)]


def rates(path: Path, batch: int, count: int) -> list[Figure]:
    """Put, due and settle per second, each with its processor time per message."""
    index, now = opened(path), now_ms()
    put, due, settle = Watch(), Watch(), Watch()
    records = puts(far_off(now), now, LANE, "/queues/bench.out")
    for _ in range(count // batch):
        given = list(itertools.islice(records, batch))
        put.time(lambda: index.put(given, now, SourceProgress("bench", [b"%016d" % number for number in range(batch)])))  # noqa: B023 - called at once
    later = 2 * now
    while dues := due.time(lambda: index.due(LANE, later, batch, 1 << 30)):
        outcomes = [Settled(one.key, "delivered", later) for one in dues]
        settle.time(lambda: index.settle(outcomes, later))  # noqa: B023 - called at once
    index.close()
    return [
        figure
        for name, watch in (("put", put), ("due", due), ("settle", settle))
        for figure in _rate(f"{name}, batches of {batch}", watch, batch, count)
    ]


def _rate(name: str, watch: Watch, batch: int, count: int) -> list[Figure]:
    rate = count / watch.wall
    return [
        at_least(f"store: {name}", rate, "messages/s", BUDGET) if batch == max(SIZES) else Figure(f"store: {name}", rate, "messages/s"),
        Figure(f"store: {name}, processor", watch.processor / count * 1e6, "µs/message"),
    ]


def drained_disk(path: Path, count: int) -> float:
    """The store's files after everything was delivered and its ledger written, in parts of what they were at most."""
    index, now = opened(path), now_ms()
    records = puts(far_off(now), now, LANE, "/queues/bench.out")
    for _ in range(count // 500):
        index.put(list(itertools.islice(records, 500)), now)
    full = index.size_bytes()
    drain(index, 2 * now)
    drained = index.size_bytes()
    index.close()
    return drained / full


def drain(index: TimeIndex, later: int) -> None:
    """Deliver all, and do what the daemon does meanwhile."""
    while dues := index.due(LANE, later, 500, 1 << 30):
        index.settle([Settled(one.key, "delivered", later) for one in dues], later)
        index.maintain(later)
    index.unfiled.forget(1 << 60)
    for hours in range(3):  # one in which something went, and one in which nothing did
        index.maintain(later + hours * QUIET)
