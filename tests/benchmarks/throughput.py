"""The bridge against the raw relay of the same client, turn by turn in one run; then its two halves alone."""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median

from .backlog import fill, now_ms, sleep_until
from .daemon import Bridge, bridge, route
from .figures import Figure, at_least
from .messages import messages
from .queues import Queues
from .relay import relaying

SOURCE, DESTINATION = "bench.relay.in", "bench.relay.out"
DAY = 86_400_000
RATIO = 0.8
FILLED_PER_SECOND = 8_000
"""What `fill` reaches at least."""


def throughput(url: str, directory: Path, count: int, rounds: int) -> list[Figure]:
    """In each round a loaded queue is emptied into another by the raw relay, then by the bridge with a delay of 1 ms, then without."""
    raw, delayed, passed = [], [], []
    with Queues(url) as queues:
        for number in range(rounds):
            raw.append(raw_speed(queues, count))
            delayed.append(bridge_speed(queues, directory / f"delayed-{number}", count, 1))
            passed.append(bridge_speed(queues, directory / f"passed-{number}", count, None))
        intake, lane = intake_speed(queues, directory / "intake", count), lane_speed(queues, directory / "lane", count)
    base = median(raw)
    return [
        Figure("raw relay", base, "messages/s"),
        Figure("bridge, delayed by 1 ms", median(delayed), "messages/s"),
        at_least("bridge / raw relay, delayed by 1 ms", median(delayed) / base, "", RATIO),
        Figure("bridge, passed through", median(passed), "messages/s"),
        at_least("bridge / raw relay, passed through", median(passed) / base, "", RATIO),
        Figure("intake alone", intake, "messages/s"),
        Figure("lane alone", lane, "messages/s"),
    ]


def loaded(queues: Queues, count: int, delay: int | None) -> None:
    queues.empty(SOURCE, DESTINATION)
    queues.load(SOURCE, messages(count, delay))


def started(queues: Queues, directory: Path) -> AbstractContextManager[Bridge]:
    """The bridge between the two queues."""
    brokers = {"rabbit": {"type": "rabbitmq", "url": queues.url}}
    return bridge(directory, {"brokers": brokers, "routes": [route("bench", "rabbit", "rabbit", SOURCE, DESTINATION)]})


def raw_speed(queues: Queues, count: int) -> float:
    loaded(queues, count, 1)
    return relayed_speed(queues, count)


def relayed_speed(queues: Queues, count: int) -> float:
    """The raw relay on what is loaded."""
    with relaying(queues.url, SOURCE, DESTINATION):
        return queues.speed(lambda: queues.depth(DESTINATION), count)


def bridge_speed(queues: Queues, directory: Path, count: int, delay: int | None) -> float:
    loaded(queues, count, delay)
    with started(queues, directory):
        return queues.speed(lambda: queues.depth(DESTINATION), count)


def intake_speed(queues: Queues, directory: Path, count: int) -> float:
    """Nothing falls due meanwhile."""
    loaded(queues, count, DAY)
    with started(queues, directory):
        return queues.speed(lambda: count - queues.depth(SOURCE), count)


def lane_speed(queues: Queues, directory: Path, count: int) -> float:
    """Everything waits in the store already, and falls due in one instant after the start."""
    queues.empty(SOURCE, DESTINATION)
    instant = now_ms() + 1000 * (count // FILLED_PER_SECOND + 10)
    fill(directory / "store", count, itertools.repeat(instant), "rabbit", f"/queues/{DESTINATION}")
    with started(queues, directory):
        assert now_ms() < instant, "the store was filled too slowly for this measurement"
        sleep_until(instant)
        return queues.speed(lambda: queues.depth(DESTINATION), count)
