"""A lock that goes to whoever has waited for it longest.

`threading.Lock` goes to whichever thread asks first once it is free. A thread that takes it again and again, as does a lane with a million messages
due, is always first, because waiting threads must wake up before they can ask. Beside such a lane another one waited for up to 0.2 seconds.
"""

from __future__ import annotations

import threading
from collections import deque


class Turns:
    """Not reentrant. Any thread; a turn costs a microsecond where nobody waits."""

    def __init__(self) -> None:
        self._inside = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()

    @property
    def wanted(self) -> bool:
        """Whether anybody waits for it."""
        return bool(self._waiting)

    def acquire(self, blocking: bool = True) -> bool:
        """Take the lock, behind all who wait for it; False where it is not free and `blocking` is False."""
        with self._inside:
            if not self._held:
                self._held = True
                return True
            if not blocking:
                return False
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        self._wait(turn)
        return True

    def _wait(self, turn: threading.Lock) -> None:
        try:
            turn.acquire()
        except BaseException:  # Ctrl-C in a main thread that waits: nobody must wait for it in turn
            with self._inside:
                mine = turn not in self._waiting
                if not mine:
                    self._waiting.remove(turn)
            if mine:
                self.release()
            raise

    def release(self) -> None:
        """Hand the lock to the next one. Only by whoever holds it."""
        with self._inside:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
