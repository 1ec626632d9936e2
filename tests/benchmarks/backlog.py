"""Pending messages put into a store directly, before the daemon starts on it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

from delaybridge.core.time_index import TimeIndex

from .messages import puts

BATCH = 500
FAR = 30 * 86_400_000
SPREAD = 10 * 86_400_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def sleep_until(instant: int) -> None:
    time.sleep(max(0, instant - now_ms()) / 1000)


def far_off(now: int) -> Iterator[int]:
    """Due times from a month ahead on, spread over ten days, in no order."""
    return (now + FAR + number * 7_919_993 % SPREAD for number in itertools.count())


def opened(path: Path) -> TimeIndex:
    return TimeIndex(path, bridge="bench", memory_ms=0, min_free_disk=0, recent_tokens=0)


def fill(path: Path, count: int, due: Iterator[int], lane: str, address: str) -> None:
    """Put so many; their ledger rows count as written, as they are in a bridge that took them in over time."""
    store, now = opened(path), now_ms()
    records = puts(due, now, lane, address)
    try:
        for start in range(0, count, BATCH):
            store.put(list(itertools.islice(records, min(BATCH, count - start))), now)
            if start % (100 * BATCH) == 0 or start + BATCH >= count:
                store.unfiled.forget(start + BATCH)
    finally:
        store.close()
