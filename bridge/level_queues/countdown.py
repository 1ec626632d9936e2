"""Does something once one or several other things are done."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Countdown:
    """Calls `done` once `one` was called `count` times, on the thread of the last call; `left` calls are to come. Any thread."""

    def __init__(self, count: int, done: Callable[[], None]) -> None:
        self.left = count
        self._done = done
        self._lock = threading.Lock()

    def one(self) -> None:
        """One of them is done."""
        with self._lock:
            self.left -= 1
            last = not self.left
        if last:
            self._done()


def both(first: Callable[[], None], then: Callable[[], None]) -> None:
    """Call the one, then the other."""
    first()
    then()
