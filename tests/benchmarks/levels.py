"""Level queues: four levels loaded at once, delivered by one bridge and by two; the cost of a hop; lateness.

The seeds of this design report 657 messages per second (one timer thread) and 2,453 (one thread per level) for four levels loaded at once in RocketMQ.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from delaybridge.adapters.levelled import Level
from delaybridge.bridge.config import Config
from delaybridge.bridge.level_queues.build import levelled, prepared
from delaybridge.bridge.level_queues.envelope import Envelope, pack
from delaybridge.core.durations import duration, parse_levels

from .backlog import now_ms
from .daemon import bridge
from .figures import Figure, at_least, at_most
from .lateness import DESTINATION, SOURCE, through
from .messages import puts
from .places import Places
from .traffic import Traffic

FOUR, PAIR = "1s 2s 3s 4s", "1s 1d"
DAY = 86_400_000
SEED = 2_453
LATE = 20
WARM = 15
"""Seconds of the same traffic before lateness is measured: in its first half minute a broker's Java compiles more than it delivers."""
PREFIX = "delaybridge.level"
"""Of all level queues. Each part has its own: a part ends before all of its messages are delivered, and the next must not get the rest."""


def levels(places: Places, directory: Path, count: int, traffic: Traffic) -> list[Figure]:
    """All figures of one broker. It is empty before, and its level queues are left behind."""
    with places:
        # Twice as many for two: while the second one starts, the first one is at work.
        one, two = (delivered(places, directory / f"bridges-{number}", count * number, number) for number in (1, 2))
        hops = [] if places.takes_to_count else [hopped(places, directory / "hops", count)]
        through(places, directory / "warm", replace(traffic, seconds=WARM), stored(FOUR, "warm"))
        seen = through(places, directory / "lateness", traffic, stored(FOUR, "lateness"))
    at = f"{places.name}, level queues:"
    return [
        at_least(f"{at} four levels at once, one bridge", one, "messages/s", SEED),
        Figure(f"{at} four levels at once, two bridges", two, "messages/s"),
        *(Figure(f"{at} hops from one level to the next", speed, "messages/s") for speed in hops),
        Figure(f"{at} lateness at {traffic.rate} messages/s, p50", seen.p50, "ms"),
        at_most(f"{at} lateness at {traffic.rate} messages/s, p99", seen.p99, "ms", LATE),
        at_most(f"{at} lateness at {traffic.rate} messages/s, early", seen.early, "messages", 0),
    ]


def stored(table: str, part: str) -> dict[str, Any]:
    return {"store": {"kind": "level_queues", "broker": "bench", "prefix": f"{PREFIX}.{part}"}, "limits": {"levels": table}}


def made(places: Places, table: str, part: str) -> dict[str, Any]:
    """The configuration of a bridge with these levels, whose queues are there then."""
    config = places.config(SOURCE, DESTINATION) | stored(table, part)
    prepared(Config(**config)).apply()
    return config


def loaded(places: Places, config: dict[str, Any], wait: int, count: int, due: int) -> None:
    """So many messages at one level, due at that time."""
    adapter, options = levelled(Config(**config), "bench")
    address = adapter.level_address(options, Level(f"{config['store']['prefix']}.{duration(wait)}", wait))
    since = now_ms()
    records = (put.record for put in puts(itertools.repeat(due), since, "bench", places.at(DESTINATION)))
    places.publish(address, [pack(Envelope(record, since)) for record in itertools.islice(records, count)])


@contextlib.contextmanager
def bridges(directory: Path, config: dict[str, Any], number: int) -> Iterator[None]:
    """So many bridges that share the work."""
    with contextlib.ExitStack() as running:
        for each in range(number):
            running.enter_context(bridge(directory / str(each), config | {"bridge": f"bench-{each}"}))
        yield


def waited(wait: int) -> None:
    """Until all that was loaded at levels of up to so many milliseconds may leave them, and a second: no bridge is there yet that could tell."""
    time.sleep(wait / 1000 + 1)


def delivered(places: Places, directory: Path, count: int, number: int) -> float:
    """Messages per second, from four levels that were loaded before the bridges start and have all waited for long enough."""
    places.empty(SOURCE, DESTINATION)
    config = made(places, FOUR, f"bridges-{number}")
    waits = parse_levels(FOUR)
    for wait in waits:
        loaded(places, config, wait, count // len(waits), now_ms() + wait)
    waited(max(waits))
    places.depth(DESTINATION)  # where counting is taking, it begins here
    with bridges(directory, config, number):
        return places.speed(lambda: places.depth(DESTINATION), count)


def hopped(places: Places, directory: Path, count: int) -> float:
    """Messages per second that go from the first level to the second."""
    places.empty(SOURCE, DESTINATION)
    config = made(places, PAIR, "hops")
    first = min(parse_levels(PAIR))
    loaded(places, config, first, count, now_ms() + 30 * DAY)
    waited(first)
    with bridges(directory, config, 1):
        return places.speed(lambda: places.depth(f"{PREFIX}.hops.1d"), count)
