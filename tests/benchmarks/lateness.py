"""How late messages arrive at a thousand a second: from an ordinary producer, through the bridge, to an ordinary consumer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from .daemon import bridge
from .figures import Figure, at_most
from .places import Places
from .traffic import Lateness, Traffic, flowing

Budget = Callable[[str, float, str, float], Figure]
SOURCE, DESTINATION = "bench.lateness.in", "bench.lateness.out"
ALONE = 8
"""Seconds of traffic without a bridge."""


def lateness(places: Places, directory: Path, traffic: Traffic, budget: Budget = at_most) -> list[Figure]:
    """Measured at the consumer: arrival less the time at which it was due. First the broker and its client alone, with nothing between the two."""
    direct = alone(places, traffic)
    seen = through(places, directory, traffic, {})
    at = f"{places.name}: lateness at {traffic.rate} messages/s"
    return [
        Figure(f"{at}, without a bridge, p50", direct.p50, "ms"),
        Figure(f"{at}, without a bridge, p99", direct.p99, "ms"),
        budget(f"{at}, p50", seen.p50, "ms", 2),
        budget(f"{at}, p99", seen.p99, "ms", 5),
        Figure(f"{at}, worst", seen.worst, "ms"),
        at_most(f"{at}, early", seen.early, "messages", 0),
    ]


def alone(places: Places, traffic: Traffic) -> Lateness:
    """The broker and its client, with nothing between producer and consumer."""
    places.empty(DESTINATION)
    address, short = places.at(DESTINATION), replace(traffic, seconds=ALONE, delays=(0, 0))
    with flowing(places.ends, places.url, address, address, short) as flow:
        return Lateness.of(flow.arrivals())


def through(places: Places, directory: Path, traffic: Traffic, config: dict[str, Any]) -> Lateness:
    """Through a bridge with this configuration, beside that of the places."""
    places.empty(SOURCE, DESTINATION)
    running = bridge(directory, places.config(SOURCE, DESTINATION) | config)
    with running, flowing(places.ends, places.url, places.at(SOURCE), places.at(DESTINATION), traffic) as flow:
        return Lateness.of(flow.arrivals())
