"""Room on the disk: what the store may take of it, when intake must stop, and the reserve that lets settling go on when there is none left."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from ..store import StoreError, StoreFull

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_MEASURED_EVERY = 1.0  # s: a look at all of a large store's files takes milliseconds, 20 for 5,000 of them
_BLOCK = 512  # what `st_blocks` counts, whatever the file system


def free_on_disk(folder: Path) -> int:
    """Bytes that its file system has left. Raises StoreError where somebody has moved or deleted it."""
    try:
        return shutil.disk_usage(folder).free
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}") from error


def files(folder: Path) -> Iterator[os.stat_result]:
    """The status of each file there; nothing if the folder is missing. Compaction may delete files at any time."""
    for file in folder.iterdir() if folder.is_dir() else ():
        with suppress(FileNotFoundError):
            yield file.stat()


def taken(folder: Path) -> int:
    """Bytes of the disk that the store in `folder` takes, including its reserve, but not a ledger inside the folder."""
    return sum(each.st_blocks * _BLOCK for place in (folder, folder / "db") for each in files(place))


class Quota:
    """Free space as on a disk of `max_bytes` that holds only the store in `folder`; or that of the real disk (`free_bytes`), if that is less.

    Measured at most once a second, so that asking often is cheap. Any thread.
    """

    def __init__(self, folder: Path, max_bytes: int, free_bytes: Callable[[], int], elapsed: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._max = max_bytes
        self._free = free_bytes
        self._elapsed = elapsed
        self._measure()

    def look(self) -> None:
        """Measure if it is time: before a lock is taken, so that nobody waits for it."""
        if self._elapsed() >= self._again:
            self._measure()

    def free_bytes(self) -> int:
        """What is left, negative where the store has grown beyond it."""
        self.look()
        return min(self._free(), self._max - self._taken)

    def _measure(self) -> None:
        self._again = self._elapsed() + _MEASURED_EVERY
        self._taken = taken(self._folder)


class Disk:
    """Watches free space, as told by `free_bytes`.

    `room` turns false below `min_free` bytes and true again a quarter above it. The reserve file holds real blocks. It is given up only when a write
    finds no room: earlier, whatever else fills the disk would take it. It is restored when there is room again.
    """

    def __init__(self, reserve: Path, reserve_bytes: int, min_free: int, free_bytes: Callable[[], int]) -> None:
        self._reserve = reserve
        self._reserve_bytes = reserve_bytes
        self._min_free = min_free
        self.free_bytes = free_bytes
        self._open = True
        self._whole = False
        self.room()

    def room(self) -> bool:
        """Whether there is room to take in more."""
        free = self.free_bytes()
        self._open = free >= (self._min_free if self._open else self._min_free + self._min_free // 4)
        if self._open and free >= self._min_free + self._reserve_bytes:
            self._restore()
        return self._open

    def need_room(self) -> None:
        """Raises StoreFull where there is no room to take in more."""
        if not self.room():
            raise StoreFull(f"{self._reserve.parent}: less room than min_free_disk is left")

    @property
    def open(self) -> bool:
        """The latest answer of `room`, without looking again."""
        return self._open

    def release(self) -> None:
        """Give the reserve up."""
        self._open = self._whole = False
        self._reserve.unlink(missing_ok=True)

    def _restore(self) -> None:
        """A store that was copied may have holes in place of blocks, and a kill leaves an empty file."""
        if self._whole or not self._reserve_bytes:
            return
        try:
            with os.fdopen(os.open(self._reserve, os.O_CREAT | os.O_RDWR, 0o600)) as file:
                if os.fstat(file.fileno()).st_blocks * _BLOCK < self._reserve_bytes:
                    os.posix_fallocate(file.fileno(), 0, self._reserve_bytes)
            self._whole = True
        except OSError:  # less room than it seemed, a quota, too many open files: tried again with the next look
            with suppress(OSError):
                self._reserve.unlink(missing_ok=True)
