"""A folder on whatever file system Spark reads: local, HDFS, an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Folder:
    """Small files and folders below one path. Errors are Spark's own (`py4j.protocol.Py4JJavaError`)."""

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
        """Write a file, or put a new one in its place: a reader sees the old one or the new one, whole."""
        unfinished = self._path(f".{name}.tmp")
        stream = self._files.create(unfinished, True)
        try:
            self._jvm.org.apache.commons.io.IOUtils.write(text, stream, "UTF-8")
            stream.hsync() if stream.hasCapability("hsync") else stream.flush()
        finally:
            stream.close()
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        overwrite = self._jvm.java.lang.reflect.Array.newInstance(rename.OVERWRITE.getClass(), 1)
        overwrite[0] = rename.OVERWRITE
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._root.toUri(), self._conf)
        context.rename(unfinished, self._path(name), overwrite)

    def remove(self, name: str) -> None:
        """Delete an entry with all that is in it, if it is there."""
        self._files.delete(self._path(name), True)
