"""How far the store was durable, recorded outside of RocksDB too, so that a store that lost data is not taken for a smaller one.

RocksDB accepts a manifest that was cut between two of its records, and a log that is empty or gone: it opens what is left, and deletes the
tables and bodies that it no longer knows. So before RocksDB opens it, two things are checked, without writing anything: whether the manifest is as long
as it was, and how far each family reaches, for every write puts its number into all three. That is exact: a manifest only grows, and both are noted
only once they are durable, so whatever a crash leaves is at least as long and reaches at least as far. No table is judged by its name or size: a crash
in a flush or a compaction leaves some that are not needed.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from ..store import StoreError, StoreLocked
from . import keys
from .database import Database, recovered
from .numbers import Numbers

if TYPE_CHECKING:
    from pathlib import Path

_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)

_WIDTH = 80
_TABLES = (".sst", ".blob")
_WAY_OUT = "Nothing was changed or deleted: bring the directory back from a backup or snapshot"


class Durable(NamedTuple):
    """What was durable: everything up to this write, and so many bytes of this manifest."""

    write: int = 0
    manifest: str = "-"
    size: int = 0

    def line(self) -> bytes:
        """Of fixed width, so that a line overwrites the one before; with a checksum, so that a damaged line is ignored."""
        text = f"{self.write} {self.manifest} {self.size}"
        return f"{text} {crc32(text.encode()):08x}".ljust(_WIDTH - 1).encode() + b"\n"

    @classmethod
    def of(cls, line: bytes) -> Durable:
        """What a line says; nothing if it is not a valid line: in a new file, or one that lost its contents in a power failure."""
        with suppress(ValueError):
            write, manifest, size, _ = line.decode().split()
            noted = cls(int(write), manifest, int(size))
            if line == noted.line():
                return noted
        return cls()


class Watermark:
    """The file `WRITTEN` in the database's directory.

    It is locked while it is open, because looking takes no lock of RocksDB's. Raises StoreLocked where another process has it, OSError where this
    user may not write there, StoreError where it cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "WRITTEN"
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # what messages say is nobody else's
            self._file = os.open(self.path, os.O_CREAT | os.O_RDWR, 0o644)
        except OSError as error:
            if error.errno in _FORBIDDEN:
                raise
            raise StoreError(str(error)) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._file)
            raise StoreLocked(f"{folder} is open in another process") from error
        except OSError:
            pass  # a file system without such locks: RocksDB's own decides
        self.noted = Durable.of(os.pread(self._file, _WIDTH, 0))

    def note(self, write: int) -> None:
        """Note that everything up to this write is durable. If the manifest grew, as with each new table, it is synced first.

        The line itself is not synced: if a loss of power takes it back, the one before it is still true. Nor need this succeed.
        """
        with suppress(OSError):
            noted = Durable(write, *self._synced_manifest())
            os.pwrite(self._file, noted.line(), 0)
            self.noted = noted

    def _synced_manifest(self) -> tuple[str, int]:
        _, name, known = self.noted
        try:
            size = (self._folder / name).stat().st_size
        except FileNotFoundError:  # a start begins a new one, and so does RocksDB where one has grown large
            name, known = _current(self._folder), 0
            size = (self._folder / name).stat().st_size
        if size != known:
            file = os.open(self._folder / name, os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)
        return name, size

    def close(self) -> None:
        """Make it durable, as far as the disk lets that be, and let go of it."""
        with suppress(OSError):
            os.fsync(self._file)
        os.close(self._file)

    def verify(self) -> None:
        """Raise StoreError where RocksDB would open less than was durable. Only reads; takes as long as replaying the log, whatever waits."""
        folder, noted = self._folder, self.noted
        name = _current(folder)
        size = _size(folder / name)
        if name == noted.manifest and size < noted.size:
            raise self._lost(f"{name} has {size} bytes, and had {noted.size}")
        found = recovered(folder, {"due": keys.WRITE_KEY, "ids": keys.WRITE_KEY, "meta": keys.NUMBERS_KEY})
        reached = {family: Numbers.written(raw) for family, raw in found.items()}
        if min(reached.values()) < noted.write:
            last = ", ".join(f"{write} in {family}" for family, write in reached.items())
            raise self._lost(f"write {noted.write} was, but the last that are found are {last}")
        if not reached["meta"] and _has_tables(folder) and recovered(folder, {"meta": keys.FORMAT_KEY})["meta"] is None:
            raise StoreError(f"{folder} has tables, and no store is found in them. {_WAY_OUT}, or begin with another store.path")

    def _lost(self, what: str) -> StoreError:
        return StoreError(
            f"{self._folder} has lost what was durable: {what}. A manifest or a log was cut short, or removed. {_WAY_OUT}. "
            f"To go on with what is left, and lose the rest, copy the directory and remove {self.path}"
        )


def opened(folder: Path) -> tuple[Database, Watermark]:
    """The database in `folder`, which has lost nothing that was durable, and its watermark. Raises StoreLocked and StoreError."""
    watermark = Watermark(folder)
    try:
        watermark.verify()
        db = Database(folder)
    except BaseException:
        watermark.close()
        raise
    watermark.note(watermark.noted.write)  # a start begins a new manifest
    return db, watermark


def _current(folder: Path) -> str:
    """The name of the manifest, "" where there is no database yet."""
    with suppress(FileNotFoundError):
        return (folder / "CURRENT").read_text(errors="replace").strip()
    return ""


def _size(file: Path) -> int:
    with suppress(OSError):
        return file.stat().st_size
    return 0


def _has_tables(folder: Path) -> bool:
    """A table is written after the format, which is synced: so where there is a table, there is a format."""
    return any(file.suffix in _TABLES for file in folder.iterdir())
