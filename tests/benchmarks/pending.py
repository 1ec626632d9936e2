"""What grows with the number of pending messages, and must not: memory, the time to start, the rate of putting."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from .backlog import BATCH, far_off, fill, now_ms, opened
from .daemon import Bridge, bridge, route
from .figures import Figure, at_least, at_most
from .messages import puts
from .queues import Queues

SOURCE, DESTINATION = "bench.pending.in", "bench.pending.out"
LANE, ADDRESS = "rabbit", f"/queues/{DESTINATION}"
STARTS = 3
IDLE = 3.0
PUTS = 40


def pending(url: str, directory: Path, sizes: Sequence[int]) -> list[Figure]:
    """Each size beside the one before it, the starts turn by turn, the puts too."""
    config = {"brokers": {LANE: {"type": "rabbitmq", "url": url}}, "routes": [route("bench", LANE, LANE, SOURCE, DESTINATION)]}
    with Queues(url) as queues:
        queues.empty(SOURCE, DESTINATION)
    homes = {size: directory / f"pending-{size}" for size in sizes}
    for size, home in homes.items():
        home.mkdir(parents=True)
        fill(home / "store", size, far_off(now_ms()), LANE, ADDRESS)
    starts: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
    for _ in range(STARTS):
        for size, home in homes.items():
            with bridge(home, config) as running:
                starts[size].append((running.ready_after, idle_memory(running)))
    ready = {size: median(seconds for seconds, _ in found) for size, found in starts.items()}
    memory = {size: median(resident for _, resident in found) for size, found in starts.items()}
    rates = put_rates({size: home / "store" for size, home in homes.items()})
    return [figure for size in sizes for figure in _figures(size, sizes, ready, memory, rates)]


def _figures(size: int, sizes: Sequence[int], ready: dict[int, float], memory: dict[int, float], rates: dict[int, float]) -> list[Figure]:
    smaller = sizes[max(0, sizes.index(size) - 1)]
    at = f"{size:,} pending"
    found = [
        at_most(f"{at}: start to ready", ready[size], "s", 1),
        Figure(f"{at}: memory", memory[size], "MiB"),
        Figure(f"{at}: put", rates[size], "messages/s"),
    ]
    if size != smaller:
        found.append(at_most(f"{at}: memory / at {smaller:,}", memory[size] / memory[smaller], "", 1.1))
        found.append(at_least(f"{at}: put rate / at {sizes[0]:,}", rates[size] / rates[sizes[0]], "", 0.9))
    return found


def idle_memory(running: Bridge) -> float:
    """Resident memory a little after the start, in MiB."""
    time.sleep(IDLE)
    return running.rss()


def put_rates(paths: dict[int, Path]) -> dict[int, float]:
    """Messages put per second into each store, one batch into each in turn."""
    stores = {size: opened(path) for size, path in paths.items()}
    taken: dict[int, list[float]] = {size: [] for size in paths}
    now = now_ms()
    records = puts(far_off(now), now, LANE, ADDRESS)
    for _ in range(PUTS):
        for size, store in stores.items():
            batch = list(itertools.islice(records, BATCH))
            began = time.perf_counter()
            store.put(batch, now)
            taken[size].append(time.perf_counter() - began)
    for store in stores.values():
        store.close()
    return {size: BATCH / median(seconds) for size, seconds in taken.items()}
