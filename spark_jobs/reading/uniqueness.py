"""Asserts that what must stand once does, where that is claimed: a second row would double what is counted, and dropping it would hide a fault."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ..columns import UnusableInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame

    from ..completeness.gaps import Seen


def once(frame: DataFrame, key: Sequence[str], what: str) -> DataFrame:
    """A frame of which each key must have one row: if one has two, the job ends with a sentence when the frame is computed. For small frames."""
    rows = F.count("*").over(Window.partitionBy(*key))
    told = F.concat(F.lit(f"{what} stands twice: "), F.concat_ws(" ", *key))
    only = F.when(F.col("rows_of_key") == 1, F.lit(True)).otherwise(F.raise_error(told).cast("boolean"))
    return frame.withColumn("rows_of_key", rows).where(only).drop("rows_of_key")


def files_once(places: Iterable[str], files: Iterable[str]) -> None:
    """Raises UnusableInput where a place is given twice, or a file by its name, which no other one has.

    An observation has no number by which its copy could be known.
    """
    _each_once(places, "is given twice")
    _each_once((file.rsplit("/", 1)[-1] for file in files if "/observed-" in file), "stands in two folders")


def destinations_once(topics: Iterable[tuple[str, str]], observers: Iterable[Seen]) -> None:
    """Raises UnusableInput where an observer's files are given for a destination (broker, address) of which Spark reads the topic."""
    seen = {(one.broker, one.address): one.observer for one in observers}
    if again := sorted(set(topics) & seen.keys()):
        broker, address = again[0]
        raise UnusableInput(
            f"{broker} {address} is given as a topic, and observer {seen[again[0]]!r} saw it, too: what arrived once would count twice"
        )


def _each_once(names: Iterable[str], what: str) -> None:
    again = [name for name, times in Counter(names).items() if times > 1]
    if again:
        raise UnusableInput(f"observation {again[0]} {what}: what arrived once would count twice")
