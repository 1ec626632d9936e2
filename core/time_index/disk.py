"""Room on the disk: when intake must stop, and the reserve that lets settling go on when there is none left."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Disk:
    """Watches free space, as told by `free_bytes`.

    `room` turns false below `min_free` bytes and true again a quarter above it. The reserve file holds real blocks; it is given up when free
    space falls below half the limit or a write finds none, and taken again when there is room for it.
    """

    def __init__(self, reserve: Path, reserve_bytes: int, min_free: int, free_bytes: Callable[[], int]) -> None:
        self._reserve = reserve
        self._reserve_bytes = reserve_bytes
        self._min_free = min_free
        self.free_bytes = free_bytes
        self._open = True
        self.room()

    def room(self) -> bool:
        """Whether there is room to take in more."""
        free = self.free_bytes()
        self._open = free >= (self._min_free if self._open else self._min_free + self._min_free // 4)
        if free < self._min_free // 2:
            self.release()
        elif self._open and free >= self._min_free + self._reserve_bytes:
            self._restore()
        return self._open

    def release(self) -> None:
        """Give the reserve up."""
        self._open = False
        self._reserve.unlink(missing_ok=True)

    def _restore(self) -> None:
        if self._reserve_bytes and not self._reserve.exists():
            descriptor = os.open(self._reserve, os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self._reserve_bytes)
            except OSError:
                self._reserve.unlink()
            finally:
                os.close(descriptor)
