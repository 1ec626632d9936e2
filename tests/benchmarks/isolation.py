"""Very many messages due in one instant at one destination: how late those for another destination of the same broker are meanwhile."""

from __future__ import annotations

import itertools
from pathlib import Path

from .backlog import fill, now_ms, sleep_until
from .burst import CALM, within
from .daemon import bridge
from .figures import Figure, at_most
from .lateness import DESTINATION, SOURCE
from .places import Places
from .throughput import FILLED_PER_SECOND
from .traffic import Traffic, flowing

BURST = "bench.isolation.burst"
TRAFFIC = Traffic(rate=100, seconds=600, delays=(500, 1_500))
SHARE = 0.05
"""Of the time that the burst takes, which is how late the last ones would be if they had to wait for it."""


def isolation(places: Places, directory: Path, count: int) -> list[Figure]:
    """The burst waits in the store; steady traffic runs beside it, through the same lane."""
    with places:
        places.empty(SOURCE, DESTINATION, BURST)
        places.depth(BURST)  # where counting is taking, it begins here
        instant = now_ms() + 1000 * (count // FILLED_PER_SECOND + CALM)
        fill(directory / "store", count, itertools.repeat(instant), "bench", places.at(BURST))
        source, destination = places.at(SOURCE), places.at(DESTINATION)
        running = bridge(directory, places.config(SOURCE, DESTINATION))
        with running, flowing(places.ends, places.url, source, destination, TRAFFIC) as flow:
            began = now_ms()
            sleep_until(instant)
            places.wait_for(BURST, count)
            drained = now_ms()
            flow.stop()
            arrivals = flow.arrivals()
    calm, beside = within(arrivals, began, instant), within(arrivals, instant, drained)
    at = f"{places.name}: {count:,} due at once"
    return [
        Figure(f"{at}: gone after", (drained - instant) / 1000, "s"),
        Figure("another destination, p99 lateness: before", calm.p99, "ms"),
        Figure("another destination, p99 lateness: meanwhile", beside.p99, "ms"),
        at_most("the same / how long the burst takes", beside.p99 / (drained - instant), "", SHARE),
    ]
