"""The signals that the bridge acts on. One that comes too early waits: else it would end the bridge undrained, or be lost on a container's first process."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextmanager
def held_back() -> Iterator[None]:
    """What comes meanwhile takes effect in `handled`, or else at the end. The main thread; threads and processes that it starts before `handled` inherit it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def handled(by: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Each signal is told to this function, on the main thread, also one that was held back."""
    before = {number: signal.signal(number, by) for number in SIGNALS}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
