"""What frames have in common, whatever they hold: made of plain values, kept, empty, or sent to every executor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from .columns import ddl

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

FEW = 200_000
"""So many rows with an id are sent to every executor: some ten megabytes."""


def of_rows(spark: SparkSession, rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> DataFrame:
    """A small frame from plain values; what a row does not have is null.

    By way of Arrow, so that it is a part of the plan: of Python's own values Spark makes a job, for which it starts Python on the executors.
    """
    told = list(rows)
    return spark.createDataFrame(pa.table({name: pa.array([row.get(name) for row in told]) for name in columns}), ddl(columns))


def keep(frame: DataFrame) -> DataFrame:
    """Compute a small frame now, and drop its plan: plans that hold plans that hold plans take longer to read than all the data.

    Without its plan it cannot be computed again: so on a cluster two executors hold each part, and the job outlives one of them.
    """
    alone = str(frame.sparkSession.sparkContext.master).partition("[")[0] == "local"
    return frame.localCheckpoint(eager=True, storageLevel=None if alone else StorageLevel.MEMORY_AND_DISK_2)


def none_of(frame: DataFrame) -> DataFrame:
    """The frame without any row: Spark sees that at once, and does nothing for what follows from it."""
    return frame.where(F.lit(False))


def together(frame: DataFrame, rows: int) -> DataFrame:
    """A frame that is kept, as one part, which one task takes, if it has few rows: they stand in as many parts as the files had in which they were found."""
    return frame.coalesce(1) if rows <= FEW else frame


def sent(frame: DataFrame, rows: int) -> DataFrame:
    """The right side of a join: sent to every executor if it holds few rows, so that the left side is not moved.

    Of a frame that is kept Spark guesses the size by what it was made from, and that is everything.
    """
    return F.broadcast(frame) if rows <= FEW else frame
