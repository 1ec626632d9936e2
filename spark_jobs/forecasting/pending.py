"""What is pending, as `delaybridge export` wrote it: one file for each bridge."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ..columns import UnusableInput, require
from ..hadoop import HIDDEN, Folder, by_name
from ..reading.inputs import files, require_whole
from ..session import cause

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import SparkSession

COLUMNS = {
    "bridge": "string", "missed": "boolean", "resumes": "timestamp", "exported": "timestamp", "id": "string", "occurrence": "bigint", "due": "timestamp",
    "lane": "string", "address": "string", "size": "bigint", "ends": "timestamp", "misfire": "string", "tie": "bigint",
    "moved_from": "timestamp", "start": "timestamp", "delay": "bigint", "period": "bigint", "repeat": "bigint", "cron": "string", "zone": "string",
}  # fmt: skip
"""Column and Spark type of an export, as far as the forecast needs it."""

INSTANTS = tuple(name for name, kind in COLUMNS.items() if kind == "timestamp")


@dataclass(frozen=True, slots=True)
class Export:
    """One bridge's file: when it was begun (epoch ms), and how many messages were pending."""

    bridge: str
    exported: int
    pending: int


def read(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """All exports as one; instants are epoch milliseconds, `file` says where a row stands.

    Raises UnusableInput where that cannot be, also for a file that is given twice, by itself or with its folder: nothing would tell its rows from their copies.
    """
    frames = [_file(spark, path) for path in paths]
    times = Counter(file for frame in frames for file in files(spark, frame))
    if again := [file for file, number in times.items() if number > 1]:
        raise UnusableInput(f"export {again[0]} is given twice, and would count twice")
    return reduce(DataFrame.unionByName, map(in_milliseconds, frames))


def _file(spark: SparkSession, path: str) -> DataFrame:
    try:
        frame = spark.read.parquet(by_name(spark, path))
    except (PySparkException, Py4JJavaError) as error:
        passed_over = path.rstrip("/").rpartition("/")[2].startswith(HIDDEN) and Folder(spark, path).there
        why = "Spark passes over names that begin with a dot or an underscore" if passed_over else cause(error)
        raise UnusableInput(f"export {path}: no Parquet file can be read there: {why}") from error
    require_whole(frame, f"export {path}")
    placed = frame.select(*frame.columns, F.col("_metadata.file_path").alias("file"))
    return require(placed, {**COLUMNS, "file": "string"}, f"export {path}")


def in_milliseconds(frame: DataFrame) -> DataFrame:
    """With every instant as a number."""
    return frame.withColumns({name: F.unix_millis(name) for name in INSTANTS})


def exports(pending: DataFrame) -> list[Export]:
    """The bridges, by name. Raises UnusableInput where two files tell of one bridge: their messages would count twice."""
    by_bridge = pending.groupBy("bridge").agg(
        F.collect_set("file").alias("files"), F.max("exported").alias("exported"), F.count("*").alias("pending")
    )
    rows = by_bridge.orderBy("bridge").collect()
    _each_once((row["bridge"], row["files"]) for row in rows)
    return [Export(row["bridge"], row["exported"], row["pending"]) for row in rows]


def _each_once(found: Iterable[tuple[str, Sequence[str]]]) -> None:
    for bridge, those in found:
        if len(those) > 1:
            raise UnusableInput(f"bridge {bridge!r} stands in {len(those)} files, and would count twice: {', '.join(sorted(those))}")


def latest(pending: DataFrame) -> DataFrame:
    """One row for each recurring message.

    A recurring message that is delivered while the export runs stands in it twice: as the occurrence that was due, and as the one that follows. The
    later one counts. What is due once cannot come back; only these need not be told apart.
    """
    place = F.row_number().over(Window.partitionBy("bridge", "id").orderBy(F.desc("occurrence"), F.desc("due")))
    again = pending.where("start is not null").withColumn("place", place).where("place = 1").drop("place")
    return pending.where("start is null").unionByName(again)
