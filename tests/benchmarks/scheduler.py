"""ActiveMQ's own scheduler, and the bridge in its place: two brokers, one with `schedulerSupport`, one without; same client, same messages, same run."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from brokers import activemq
from brokers.private import running

from .active_ends import ENDS
from .active_queues import ActiveQueues
from .daemon import bridge
from .figures import Figure, at_least, at_most
from .traffic import Arrival, Lateness, Traffic, flowing

SOURCE, DESTINATION = "bench.scheduled.in", "bench.scheduled.out"
SPREAD = (1_000, 2_000)
"""Delays, in milliseconds, of what is sent as fast as the broker takes it."""
NEVER = Path("/nonexistent")
"""No file stops the producer."""
JAVA = ("-Xms1g", "-Xmx1g")
"""As much memory as ActiveMQ's own start script gives it, at once, and the collector that Java chooses."""
TIMES_AS_FAST, PART_AS_LATE = 4, 0.1


@dataclass(frozen=True)
class Side:
    """What one of the two did: messages delivered per second while it is sent all that it takes, and how late at a steady rate."""

    speed: float
    steady: Lateness


def scheduler(directory: Path, count: int, traffic: Traffic) -> list[Figure]:
    """First the scheduler, then the bridge, then neither of them, each on a broker that has the machine to itself.

    Without anything in between a message passes the broker once, and twice with a bridge: no bridge on this machine can be faster than that.
    """
    flood = Traffic(rate=count, seconds=1, delays=SPREAD)  # more than any of them takes
    with broker(scheduler=True) as url, ActiveQueues(url) as queues:
        queues.empty(SOURCE)
        own = side(url, queues.at(SOURCE), queues.at(SOURCE), flood, traffic)
    with broker(scheduler=False) as url, ActiveQueues(url) as queues:
        queues.empty(SOURCE, DESTINATION)
        with bridge(directory, queues.config(SOURCE, DESTINATION)):
            ours = side(url, queues.at(SOURCE), queues.at(DESTINATION), flood, traffic)
    with broker(scheduler=False) as url, ActiveQueues(url) as queues:
        queues.empty(SOURCE)
        alone = flooded(url, queues.at(SOURCE), queues.at(SOURCE), flood)
    return [
        *figures("ActiveMQ's scheduler", own, count, traffic),
        *figures("bridge on ActiveMQ", ours, count, traffic),
        Figure("producer and consumer, nothing in between / ActiveMQ's scheduler: throughput", alone / own.speed, ""),
        at_least("bridge / ActiveMQ's scheduler: throughput", ours.speed / own.speed, "", TIMES_AS_FAST),
        at_most("bridge / ActiveMQ's scheduler: p99 lateness", ours.steady.p99 / own.steady.p99, "", PART_AS_LATE),
    ]


def figures(name: str, side: Side, count: int, traffic: Traffic) -> list[Figure]:
    """Without budgets: they are about the two beside each other."""
    return [
        Figure(f"{name}, {count:,} sent as fast as it takes them: delivered", side.speed, "messages/s"),
        Figure(f"{name}, {traffic.rate} messages/s, p50 lateness", side.steady.p50, "ms"),
        Figure(f"{name}, {traffic.rate} messages/s, p99 lateness", side.steady.p99, "ms"),
    ]


@contextmanager
def broker(*, scheduler: bool) -> Iterator[str]:
    """A private ActiveMQ. Raises Unavailable."""
    with running(activemq.Native(activemq.libraries(), java=JAVA, scheduler=scheduler)) as started:
        yield started.url


def side(url: str, source: str, destination: str, flood: Traffic, traffic: Traffic) -> Side:
    """Both measurements on one broker: an ordinary producer and an ordinary consumer, each a process of its own."""
    as_fast = flooded(url, source, destination, flood)
    with flowing(ENDS, url, source, destination, traffic) as flow:
        return Side(as_fast, Lateness.of(flow.arrivals()))


def flooded(url: str, source: str, destination: str, flood: Traffic) -> float:
    """Messages per second that arrive while more are sent than can."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        arriving = pool.submit(ENDS.consume, url, destination, flood)
        pool.submit(ENDS.produce, url, source, flood, NEVER)
        arrivals = arriving.result()
    assert len(arrivals) == flood.count, f"{len(arrivals)} of {flood.count} messages arrived"
    return speed(arrivals)


def speed(arrivals: list[Arrival]) -> float:
    """Messages per second from a tenth to nineteen twentieths, as in `Places.speed`."""
    times = sorted(due + late for due, late in arrivals)
    low, high = len(times) // 10, len(times) * 19 // 20
    return (high - low) / (times[high] - times[low]) * 1000
