"""A folder on whatever file system Spark reads: local, HDFS, an object store."""

from __future__ import annotations

import os
import posixpath
import re
import secrets
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_OBJECTS = frozenset({"s3a", "s3", "gs"})
"""Stores in which a file appears when it is closed, in the place of the earlier one, and renaming is copying and deleting."""

HIDDEN = (".", "_")
"""Spark passes over files and folders whose names begin so."""

_PATTERN = re.compile(r"[][{}*?\\]")
"""What of a path Spark's readers take for a pattern."""

_TRIED = ".writable"
_UNFINISHED = ".tmp"
_PATIENCE_S = 24 * 3_600
"""After so long an unfinished file is what a process left that was killed."""


def by_name(spark: SparkSession, path: str) -> str:
    """A path for Spark's readers: what is there by that very name is meant, also where they would take it for a pattern. Else it stays one."""
    if _PATTERN.search(path) and Folder(spark, path).there:
        return _PATTERN.sub(r"\\\g<0>", path)
    return path


class Folder:
    """Small files and folders below one path. Errors are Spark's own (`py4j.protocol.Py4JJavaError`) where none is named."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._jvm = cast("Any", spark._jvm)  # noqa: SLF001 - the way to Hadoop's file systems that there is
        self._conf: Any = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - as above
        hadoop = self._jvm.org.apache.hadoop.fs
        given = hadoop.Path(path)
        self._files: Any = given.getFileSystem(self._conf)
        self._root = self._files.makeQualified(given)
        self.url: str = self._root.toString()

    def at(self, name: str) -> str:
        """The URL of an entry."""
        return f"{self.url}/{name}"

    def shows(self, other: Folder) -> bool:
        """Whether Spark, where it reads all that lies in this folder, reads what is in another one, too: by their URLs, links are not followed."""
        below = posixpath.relpath(posixpath.normpath(other.url), posixpath.normpath(self.url))
        return below == "." or not any(part.startswith(HIDDEN) for part in below.split("/"))  # `..`, which leads out of it, begins so, too

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    @property
    def there(self) -> bool:
        """Whether there is anything of that name."""
        return bool(self._files.exists(self._root))

    def names(self) -> list[str]:
        """What lies in the folder, sorted; nothing where there is none."""
        if not self.there:
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(self._root))

    def size(self, name: str) -> int | None:
        """How many bytes the files right in an entry have together; None where it is not there."""
        path = self._path(name)
        return sum(int(status.getLen()) for status in self._files.listStatus(path)) if self._files.exists(path) else None

    def read(self, name: str) -> str:
        """A small file's text."""
        stream = self._files.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def replace(self, name: str, text: str) -> None:
        """Write a file, or put a new one in its place. OSError where a local one cannot be written.

        A reader sees the old one or the new one, whole, and so does whoever comes after a crash: on a local disk, on HDFS, and in S3 and Google's store.
        Of several writers at once each writes a file of its own first, and the last one's is there in the end. What a killed one left goes after a day.
        Elsewhere, Azure for one, Hadoop deletes the old file before it renames the new one: there is none for a moment, and after a crash in that moment.
        """
        scheme = self._root.toUri().getScheme()
        if scheme == "file":
            _replace_locally(Path(self._root.toUri().getPath()), name, text)
        elif scheme in _OBJECTS:
            self._write(self._path(name), text)
        else:
            self._replace_by_renaming(name, text)

    def require_writable(self) -> None:
        """Write a file, and remove it: hours of work are not to end with the news that this cannot be. OSError where a local one cannot be written."""
        self.replace(_TRIED, "")
        self.remove(_TRIED)

    def _replace_by_renaming(self, name: str, text: str) -> None:
        self._files.mkdirs(self._root)
        for status in self._files.listStatus(self._root):
            if _is_left(status.getPath().getName(), name, status.getModificationTime() / 1_000):
                self._files.delete(status.getPath(), False)
        unfinished = self._path(_unfinished(name))
        try:
            self._write(unfinished, text)
            self._rename(unfinished, self._path(name))
        except BaseException:
            self._files.delete(unfinished, False)
            raise

    def _write(self, path: Any, text: str) -> None:
        """A stream that fails is not closed: in an object store what is closed is there."""
        stream = self._files.create(path, True)
        self._jvm.org.apache.commons.io.IOUtils.write(text, stream, "UTF-8")
        stream.hsync() if stream.hasCapability("hsync") else stream.flush()
        stream.close()

    def _rename(self, unfinished: Any, target: Any) -> None:
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        overwrite = self._jvm.java.lang.reflect.Array.newInstance(rename.OVERWRITE.getClass(), 1)
        overwrite[0] = rename.OVERWRITE
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._root.toUri(), self._conf)
        context.rename(unfinished, target, overwrite)

    @contextmanager
    def clearing(self, name: str) -> Iterator[None]:
        """What is written to an entry meanwhile goes again where that fails: on a full disk each further attempt would leave more."""
        try:
            yield
        except Exception:  # not after Ctrl-C: Java would take no further question, see `session`
            with suppress(Py4JError, PySparkException):
                self.remove(name)
            raise

    def remove(self, name: str) -> None:
        """Delete an entry with all that is in it, if it is there."""
        self._files.delete(self._path(name), True)


def _unfinished(name: str) -> str:
    """What a file is called while it is written: like none that another process writes. Spark passes over names that begin with a dot."""
    return f".{name}.{secrets.token_hex(4)}{_UNFINISHED}"


def _is_left(entry: str, name: str, modified: float) -> bool:
    """Whether an entry of the folder is an unfinished file that nobody writes any more; `modified` in epoch seconds."""
    return entry.startswith(f".{name}.") and entry.endswith(_UNFINISHED) and modified < time.time() - _PATIENCE_S


def _replace_locally(folder: Path, name: str, text: str) -> None:
    """Without Hadoop: its local file systems delete the old file first, and rename the new one's checksum by itself."""
    folder.mkdir(parents=True, exist_ok=True)
    _remove_left(folder, name)
    unfinished = folder / _unfinished(name)
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        (folder / f".{name}.crc").unlink(missing_ok=True)  # of a file that Hadoop wrote: it would not fit the new one
        unfinished.replace(folder / name)
    except BaseException:
        unfinished.unlink(missing_ok=True)  # a full disk would get another one with each attempt
        raise
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_left(folder: Path, name: str) -> None:
    for path in folder.glob(f".{name}.*{_UNFINISHED}"):
        with suppress(FileNotFoundError):  # another process was quicker
            if _is_left(path.name, name, path.stat().st_mtime):
                path.unlink()
