"""The bridge against the raw relay of the same client, turn by turn in one run; then its two halves alone."""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median

from .backlog import fill, now_ms, sleep_until
from .daemon import Bridge, bridge
from .figures import Figure, at_least
from .messages import messages
from .places import Places

SOURCE, DESTINATION = "bench.relay.in", "bench.relay.out"
DAY = 86_400_000
RATIO = 0.8
FILLED_PER_SECOND = 8_000
"""What `fill` reaches at least."""


def ratios(places: Places, directory: Path, count: int, rounds: int) -> list[Figure]:
    """In each round a loaded queue is emptied into another by the raw relay, then by the bridge with a delay of 1 ms, then without."""
    raw, delayed, passed = [], [], []
    for number in range(rounds):
        raw.append(raw_speed(places, count))
        delayed.append(bridge_speed(places, directory / f"delayed-{number}", count, 1))
        passed.append(bridge_speed(places, directory / f"passed-{number}", count, None))
    base, at = median(raw), f"{places.name}:"
    return [
        Figure(f"{at} raw relay", base, "messages/s"),
        Figure(f"{at} bridge, delayed by 1 ms", median(delayed), "messages/s"),
        at_least(f"{at} bridge / raw relay, delayed by 1 ms", median(delayed) / base, "", RATIO),
        Figure(f"{at} bridge, passed through", median(passed), "messages/s"),
        at_least(f"{at} bridge / raw relay, passed through", median(passed) / base, "", RATIO),
    ]


def halves(places: Places, directory: Path, count: int) -> list[Figure]:
    """Intake and lane, each without the other."""
    intake, lane = intake_speed(places, directory / "intake", count), lane_speed(places, directory / "lane", count)
    return [Figure(f"{places.name}: intake alone", intake, "messages/s"), Figure(f"{places.name}: lane alone", lane, "messages/s")]


def loaded(places: Places, count: int, delay: int | None) -> None:
    places.empty(SOURCE, DESTINATION)
    places.load(SOURCE, messages(count, delay))


def started(places: Places, directory: Path) -> AbstractContextManager[Bridge]:
    """The bridge between the two queues."""
    return bridge(directory, places.config(SOURCE, DESTINATION))


def raw_speed(places: Places, count: int) -> float:
    loaded(places, count, 1)
    return relayed_speed(places, count)


def relayed_speed(places: Places, count: int) -> float:
    """The raw relay on what is loaded."""
    with places.relaying(SOURCE, DESTINATION):
        return places.speed(lambda: places.depth(DESTINATION), count)


def bridge_speed(places: Places, directory: Path, count: int, delay: int | None) -> float:
    loaded(places, count, delay)
    with started(places, directory):
        return places.speed(lambda: places.depth(DESTINATION), count)


def intake_speed(places: Places, directory: Path, count: int) -> float:
    """Nothing falls due meanwhile."""
    loaded(places, count, DAY)
    with started(places, directory):
        return places.speed(lambda: count - places.depth(SOURCE), count)


def lane_speed(places: Places, directory: Path, count: int) -> float:
    """Everything waits in the store already, and falls due in one instant after the start."""
    places.empty(SOURCE, DESTINATION)
    instant = now_ms() + 1000 * (count // FILLED_PER_SECOND + 10)
    route = places.route(SOURCE, DESTINATION)
    fill(directory / "store", count, itertools.repeat(instant), route["to"]["broker"], route["to"]["address"])
    with started(places, directory):
        assert now_ms() < instant, "the store was filled too slowly for this measurement"
        sleep_until(instant)
        return places.speed(lambda: places.depth(DESTINATION), count)
