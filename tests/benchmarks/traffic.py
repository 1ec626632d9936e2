"""An ordinary producer and an ordinary consumer, each a process of its own with a plain client, and the lateness that they see."""

from __future__ import annotations

import contextlib
import gc
import itertools
import multiprocessing
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .figures import percentile
from .messages import bodies

GRACE = 10.0
"""Seconds that a message may come late before it is called missing."""


@dataclass(frozen=True)
class Traffic:
    """What is sent: so many messages per second, evenly, for so long at most, each with a random delay (ms) from a range."""

    rate: int
    seconds: int
    delays: tuple[int, int]

    @property
    def count(self) -> int:
        return self.rate * self.seconds

    @property
    def patience(self) -> float:
        """Seconds without any message after which a consumer gives up."""
        return self.delays[1] / 1000 + GRACE


Arrival = tuple[int, float]
"""When a message was due (epoch ms), and how many milliseconds after that it arrived."""


@dataclass(frozen=True)
class Lateness:
    """Of some arrivals, in milliseconds."""

    p50: float
    p99: float
    worst: float
    early: int

    @classmethod
    def of(cls, arrivals: list[Arrival]) -> Lateness:
        late = [lateness for _, lateness in arrivals]
        return cls(percentile(late, 50), percentile(late, 99), max(late), sum(lateness < 0 for lateness in late))


class Ends(NamedTuple):
    """An ordinary client's two ends, plain functions, because each runs in a process of its own.

    `produce` sends by `paced` to an address until that ends; `consume` takes what arrives there, all of it, or until none came for longer than `patience`.
    """

    produce: Callable[[str, str, Traffic, Path], tuple[int, float]]
    consume: Callable[[str, str, Traffic], list[Arrival]]


def paced(
    traffic: Traffic, stop: Path, send: Callable[[bytes, int], None], wait: Callable[[float], object] = time.sleep
) -> tuple[int, float]:
    """Call `send` with body and delay until all is sent or the file `stop` is there; returns how many, and the rate that was reached."""
    gc.disable()  # a full collection takes 80 ms in a process that has imported this much, and would be blamed on the bridge
    pick = random.Random(traffic.rate)  # the same delays in each run
    began, sent = time.perf_counter(), 0
    for body in itertools.islice(bodies(), traffic.count):
        ahead = began + sent / traffic.rate - time.perf_counter()
        if ahead > 0:
            wait(ahead)
        send(body, pick.randint(*traffic.delays))
        sent += 1
        if stop.exists():
            break
    return sent, sent / (time.perf_counter() - began)


def asking(delay: int) -> tuple[str, int]:
    """The header that asks for a delay. Without one, what a delivery bears, saying now: the same consumer then measures the way without a bridge."""
    return ("x-delay", delay) if delay else ("x-delay-due", time.time_ns() // 1_000_000)


class Flow:
    """Traffic under way between two queues."""

    def __init__(
        self, pool: ProcessPoolExecutor, ends: Ends, url: str, source: str, destination: str, traffic: Traffic, stop: Path
    ) -> None:
        self._stop = stop
        self._traffic = traffic
        self._arrivals = pool.submit(ends.consume, url, destination, traffic)
        self._sent = pool.submit(ends.produce, url, source, traffic, stop)

    def stop(self) -> None:
        """Send no more."""
        self._stop.touch()

    def arrivals(self) -> list[Arrival]:
        """All of them, once the last has come. Raises AssertionError where one is missing or the producer fell behind."""
        sent, rate = self._sent.result()
        arrivals = self._arrivals.result()
        assert rate >= 0.98 * self._traffic.rate, f"the producer reached {rate:.0f} messages/s only"
        assert len(arrivals) == sent, f"{len(arrivals)} of {sent} messages arrived"
        return arrivals


@contextlib.contextmanager
def flowing(ends: Ends, url: str, source: str, destination: str, traffic: Traffic) -> Iterator[Flow]:
    """Traffic for the length of the `with` block."""
    with tempfile.TemporaryDirectory() as directory, ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        flow = Flow(pool, ends, url, source, destination, traffic, Path(directory) / "stop")
        try:
            yield flow
        finally:
            flow.stop()
