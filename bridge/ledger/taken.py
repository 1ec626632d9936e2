"""What an observer has taken from a queue and is in no Parquet file yet. It is durable before it is acknowledged: the queue forgets it then.

`_taken/observed-<observer>-<number>.ndjson` has these rows, one a line, and the number of the Parquet file that they are to be in. It is locked while its
observer lives. What one that was killed has left there, the next observer of that folder writes to the very files that they would have been in.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ..durable import sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_FOLDER = "_taken"


class Left(NamedTuple):
    """What an observer has left that is no more. `number` is that of its next Parquet file."""

    observer: str
    number: int
    rows: list[dict[str, Any]]


class Taken:
    """What one observer has taken. One thread."""

    def __init__(self, root: Path, observer: str) -> None:
        self._folder = root / _FOLDER
        self._observer = observer
        self._path: Path | None = None
        self._file = -1

    def keep(self, rows: Iterable[dict[str, Any]], number: int) -> None:
        """Durable on return. `number` is that of the next Parquet file. OSError: then these are not kept."""
        if self._path is None:
            self._begin(f"observed-{self._observer}-{number:06d}.ndjson")
        size = os.fstat(self._file).st_size
        left = memoryview(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
        try:
            while left:
                left = left[os.write(self._file, left) :]
            os.fdatasync(self._file)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, size)  # they go back to the queue: they must not be told twice
            raise

    def _begin(self, name: str) -> None:
        """A new file, which gets its name when it is locked: nobody takes it for one that was left."""
        self._folder.mkdir(parents=True, exist_ok=True)
        unlocked = self._folder / f".{name}.tmp"
        self._file = os.open(unlocked, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path = unlocked.replace(self._folder / name)
        for directory in (self._folder, self._folder.parent):
            sync_directory(directory)
        self._path = path  # only now: after a failure the next one begins anew

    def written(self) -> None:
        """All that was kept is in Parquet files. If a loss of power undoes this, it is written to the same ones again."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._path = None


def left_behind(root: Path) -> Iterator[Left]:
    """What observers that were killed have taken; gone when the next one is asked for. OSError where it cannot be read."""
    for path in sorted((root / _FOLDER).glob("*.ndjson")):
        with suppress(FileNotFoundError), path.open("rb") as file:  # another observer may be as quick
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue  # its observer lives, or nobody knows whether it does
            observer, number = path.stem.removeprefix("observed-").rsplit("-", 1)
            yield Left(observer, int(number), list(_rows(file)))
            path.unlink(missing_ok=True)


def _rows(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Up to a line that was not written whole: it was not acknowledged."""
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            return
