"""A clock that goes on while the machine is suspended."""

from __future__ import annotations

import time


def uptime() -> float:
    """Seconds, as `time.monotonic`; where the system counts them (Linux), those for which the machine was suspended as well."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
