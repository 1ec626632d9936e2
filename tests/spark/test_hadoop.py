"""Small files that are replaced while somebody reads them."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JJavaError

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


def test_several_may_replace_one_file_at_once_and_whoever_looks_finds_one_of_theirs_whole(spark: SparkSession, tmp_path: Path) -> None:
    texts = [f"{number} " * 5_000 for number in range(4)]
    folders = [Folder(spark, str(tmp_path)) for _ in texts]
    folders[0].replace("report.json", texts[0])

    def replace(folder: Folder, text: str) -> None:
        for _ in range(60):
            folder.replace("report.json", text)

    with _looking_at(tmp_path / "report.json") as found, ThreadPoolExecutor(len(texts)) as threads:
        list(threads.map(replace, folders, texts))

    assert found <= set(texts)
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize("scheme", ["file", "viewfs"])
def test_what_a_killed_process_left_goes_after_a_day_and_what_another_one_writes_stays(
    spark: SparkSession, tmp_path: Path, scheme: str
) -> None:
    folder = Folder(spark, _mounted(spark, tmp_path, "viewfs://left/at/out") if scheme == "viewfs" else str(tmp_path / "out"))
    folder.replace("report.json", "old")
    old, young, other = (
        tmp_path / "out" / f".{name}.tmp" for name in ("report.json.0a1b2c3d", "report.json.4e5f6a7b", "report.html.0a1b2c3d")
    )
    for path in (old, young, other):
        path.write_text("half")
        os.utime(path, (time.time() - 25 * 3_600,) * 2 if path is not young else None)

    folder.replace("report.json", "new")

    assert (folder.read("report.json"), old.exists(), young.exists(), other.exists()) == ("new", False, True, True)


@pytest.mark.parametrize("scheme", ["file", "viewfs"])
def test_where_a_file_cannot_be_replaced_nothing_unfinished_stays(spark: SparkSession, tmp_path: Path, scheme: str) -> None:
    folder = Folder(spark, _mounted(spark, tmp_path, "viewfs://full/at/out") if scheme == "viewfs" else str(tmp_path / "out"))
    (tmp_path / "out" / "report.json" / "in the way").mkdir(parents=True)

    with pytest.raises((OSError, Py4JJavaError)):
        folder.replace("report.json", "new")

    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.json"]


def _mounted(spark: SparkSession, folder: Path, url: str) -> str:
    """The URL, below which Hadoop finds the local folder: `scheme://MOUNT/at/…`."""
    mount = url.split("/")[2]
    configuration = spark._jsc.hadoopConfiguration()
    configuration.set("fs.s3a.impl", "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme")
    configuration.set("fs.viewfs.overload.scheme.target.file.impl", "org.apache.hadoop.fs.LocalFileSystem")
    configuration.set(f"fs.viewfs.mounttable.{mount}.link./at", folder.as_uri())
    configuration.set("fs.s3a.impl.disable.cache", "true")
    configuration.set("fs.viewfs.impl.disable.cache", "true")
    return url


def test_a_file_that_hadoop_wrote_is_replaced_together_with_its_checksum(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, str(tmp_path))
    folder._write(folder._path("state.json"), "old")
    assert (tmp_path / ".state.json.crc").exists()

    folder.replace("state.json", "new")

    assert folder.read("state.json") == "new"


@pytest.mark.parametrize("url", ["viewfs://elsewhere/at/out", "s3a://elsewhere/at/out"])
def test_a_file_that_is_not_on_a_local_disk_is_replaced_by_hadoop(spark: SparkSession, tmp_path: Path, url: str) -> None:
    folder = Folder(spark, _mounted(spark, tmp_path, url))

    folder.replace("state.json", "old")
    folder.replace("state.json", "n\N{LATIN SMALL LETTER E WITH DIAERESIS}w")

    assert (folder.read("state.json"), folder.names()) == ("n\N{LATIN SMALL LETTER E WITH DIAERESIS}w", ["state.json"])
    assert (tmp_path / "out" / "state.json").exists()
