"""A folder on whatever file system Spark reads: local, HDFS, an object store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OBJECTS = frozenset({"s3a", "s3", "gs"})
"""Stores in which a file appears when it is closed, in the place of the earlier one, and renaming is copying and deleting."""


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

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def names(self) -> list[str]:
        """What lies in the folder, sorted; nothing where there is none."""
        if not self._files.exists(self._root):
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(self._root))

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
        Elsewhere, Azure for one, Hadoop deletes the old file before it renames the new one: there is none for a moment, and after a crash in that moment.
        """
        scheme = self._root.toUri().getScheme()
        if scheme == "file":
            _replace_locally(Path(self._root.toUri().getPath()), name, text)
        elif scheme in _OBJECTS:
            self._write(self._path(name), text)
        else:
            unfinished = self._path(f".{name}.tmp")
            self._write(unfinished, text)
            self._rename(unfinished, self._path(name))

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

    def remove(self, name: str) -> None:
        """Delete an entry with all that is in it, if it is there."""
        self._files.delete(self._path(name), True)


def _replace_locally(folder: Path, name: str, text: str) -> None:
    """Without Hadoop: its local file systems delete the old file first, and rename the new one's checksum by itself."""
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".{name}.tmp"
    with unfinished.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    (folder / f".{name}.crc").unlink(missing_ok=True)  # of a file that Hadoop wrote: it would not fit the new one
    unfinished.replace(folder / name)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
