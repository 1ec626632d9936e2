"""Small files that are replaced while somebody reads them."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from delaybridge.spark_jobs.hadoop import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@contextlib.contextmanager
def _looking_at(file: Path) -> Iterator[set[str]]:
    """What a thread finds in a file that is there, until the block ends; an empty text where it finds none, or an empty one."""
    found: set[str] = set()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            try:
                found.add(file.read_text())
            except FileNotFoundError:
                found.add("")

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def test_whoever_looks_while_a_local_file_is_replaced_finds_the_old_one_or_the_new_one_whole(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, str(tmp_path / "new"))
    texts = [f"{number} " * 5_000 for number in range(300)]
    folder.replace("state.json", texts[0])

    with _looking_at(tmp_path / "new" / "state.json") as found:
        for text in texts:
            folder.replace("state.json", text)

    assert found <= set(texts)
    assert len(found) > 10
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["state.json"]


def test_a_file_that_hadoop_wrote_is_replaced_together_with_its_checksum(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, str(tmp_path))
    folder._write(folder._path("state.json"), "old")
    assert (tmp_path / ".state.json.crc").exists()

    folder.replace("state.json", "new")

    assert folder.read("state.json") == "new"


@pytest.mark.parametrize("url", ["viewfs://elsewhere/at/out", "s3a://elsewhere/at/out"])
def test_a_file_that_is_not_on_a_local_disk_is_replaced_by_hadoop(spark: SparkSession, tmp_path: Path, url: str) -> None:
    configuration = spark._jsc.hadoopConfiguration()
    configuration.set("fs.s3a.impl", "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme")
    configuration.set("fs.viewfs.overload.scheme.target.file.impl", "org.apache.hadoop.fs.LocalFileSystem")
    configuration.set("fs.viewfs.mounttable.elsewhere.link./at", tmp_path.as_uri())
    configuration.set("fs.s3a.impl.disable.cache", "true")
    configuration.set("fs.viewfs.impl.disable.cache", "true")
    folder = Folder(spark, url)

    folder.replace("state.json", "old")
    folder.replace("state.json", "n\N{LATIN SMALL LETTER E WITH DIAERESIS}w")

    assert (folder.read("state.json"), folder.names()) == ("n\N{LATIN SMALL LETTER E WITH DIAERESIS}w", ["state.json"])
    assert (tmp_path / "out" / "state.json").exists()
