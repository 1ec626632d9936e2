"""The clocks. Whoever needs the time is given it, or a `Clock`, so that tests can say what time it is."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Gives the wall clock's epoch milliseconds, rounded down, so that nothing is ever early."""

_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def wall_clock() -> int:
    """Epoch milliseconds, UTC."""
    return time.time_ns() // 1_000_000


def into_millisecond() -> float:
    """Seconds of the current millisecond that have passed: by so much the rounded clock is behind."""
    return (time.time_ns() % 1_000_000) / 1e9


def uptime() -> float:
    """Seconds, as `time.monotonic`; where the system counts them (Linux), those for which the machine was suspended as well."""
    return time.clock_gettime(_UPTIME)
