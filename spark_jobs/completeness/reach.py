"""How far each bridge's ledger reaches: to its last row, its mark, or its first missing number. The rule is in `rule`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ..columns import UnusableInput
from ..question import FOREVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame

    from ..question import Question
    from .beginnings import Beginning


@dataclass(frozen=True, slots=True)
class Block:
    """Neighbouring numbers of one bridge: how many rows, how many different numbers, and their extremes."""

    bridge: str
    rows: int
    different: int
    first: int
    last: int
    latest_ms: int


@dataclass(frozen=True, slots=True)
class Mark:
    """What a bridge says of its ledger: the rows up to `sequence` are in files, and that is all that happened until `at_ms`.

    It got its name with row `first`; those before bear `earlier` names, the latest first, each with the row with which it began. See `renames`.
    """

    sequence: int
    at_ms: int
    first: int = 1
    earlier: tuple[tuple[str, int], ...] = ()

    def names(self, own: str) -> tuple[tuple[str, int], ...]:
        """All of them, `own` being the latest."""
        return ((own, self.first), *self.earlier)


@dataclass(frozen=True, slots=True)
class Reach:
    """One bridge's ledger. `hole` is the first number that is missing; `reaches_ms` is -1 where nothing can be relied on.

    `begins_ms` is -1 where the ledger has its first row. `former` are the names that the bridge had before.
    """

    bridge: str
    rows: int
    first: int
    last: int
    reaches_ms: int
    hole: int | None = None
    begins_ms: int = -1
    former: tuple[str, ...] = ()


def counted(ledger: DataFrame) -> list[Block]:
    """The rows' blocks; of each bridge the first one inside which numbers are missing is cut where they are. Raises UnusableInput where rows stand twice."""
    found = [Block(*row) for row in blocks(ledger).collect()]
    require_once(found)
    torn = {one.bridge: one for one in sorted(found, key=lambda one: -one.first) if one.different != one.last - one.first + 1}
    cut = [Block(*row) for row in runs(ledger, torn.values()).collect()] if torn else []
    return [one for one in found if one != torn.get(one.bridge)] + cut


def runs(ledger: DataFrame, found: Iterable[Block]) -> DataFrame:
    """The rows of these blocks, one of each bridge, as `Block`s without a hole inside."""
    here = reduce(or_, ((F.col("bridge") == one.bridge) & F.col("sequence").between(one.first, one.last) for one in found))
    nth = F.row_number().over(Window.partitionBy("bridge").orderBy("sequence"))
    numbered = ledger.where(here).withColumn("run", F.col("sequence") - nth)
    told = numbered.groupBy("bridge", "run").agg(
        F.count("*").alias("rows"),
        F.count("*").alias("different"),
        F.min("sequence").alias("first"),
        F.max("sequence").alias("last"),
        F.coalesce(F.unix_millis(F.max("event_time")), F.lit(-1)).alias("latest_ms"),
    )
    return told.drop("run")


def blocks(ledger: DataFrame) -> DataFrame:
    """Rows by bridge and block of 32,768 numbers, as `Block`: where a bridge's rows have a hole, or stand twice, this finds it."""
    counted = words(ledger).groupBy("bridge", F.shiftright("word", 9).alias("block")).agg(
        F.sum("rows").alias("rows"),
        F.sum(F.bit_count("numbers")).alias("different"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.coalesce(F.unix_millis(F.max("latest")), F.lit(-1)).alias("latest_ms"),
    )  # fmt: skip
    return counted.select("bridge", "rows", "different", "first", "last", "latest_ms")


def words(ledger: DataFrame) -> DataFrame:
    """The same of 64 neighbouring numbers each, with those that are there as bits: so to group needs no sorting, and leaves a sixty-fourth of the rows."""
    sequence = F.col("sequence")
    counted = ledger.groupBy("bridge", F.shiftright(sequence - 1, 6).alias("word")).agg(
        F.count("*").alias("rows"),
        F.bit_or(F.expr("shiftleft(1L, cast((sequence - 1) & 63 as int))")).alias("numbers"),
        F.min(sequence).alias("first"),
        F.max(sequence).alias("last"),
        F.max("event_time").alias("latest"),
    )
    return counted.select("bridge", "word", "rows", "numbers", "first", "last", "latest")


def require_once(found: Iterable[Block]) -> None:
    """Raises UnusableInput where rows stand twice."""
    for block in found:
        if block.rows > block.different:
            raise UnusableInput(
                f"the ledger of bridge {block.bridge!r}: {block.rows - block.different} rows from number {block.first} to {block.last} stand twice;"
                " was a file copied, or do two bridges have one name?"
            )


def by_now(rows: DataFrame, question: Question) -> DataFrame:
    """A ledger's rows without the `event_time` of rows from a clock that was ahead: of these it is not known when they happened."""
    return rows.withColumn("event_time", F.when(F.unix_millis("event_time") <= question.now, F.col("event_time")))


def reaches(
    found: Iterable[Block], marks: Mapping[str, Mark], question: Question, beginnings: Mapping[str, Beginning] | None = None
) -> list[Reach]:
    """Each bridge's reach, by name; no block before the first hole has one inside."""
    begin = {bridge: one.at_ms for bridge, one in (beginnings or {}).items()}
    by_bridge: dict[str, list[Block]] = {}
    for block in sorted(found, key=lambda one: (one.bridge, one.first)):
        by_bridge.setdefault(block.bridge, []).append(block)
    return [replace(_reach(name, whole, marks.get(name), question), begins_ms=begin.get(name, -1)) for name, whole in by_bridge.items()]


def _reach(bridge: str, found: list[Block], mark: Mark | None, question: Question) -> Reach:
    rows, first, last = sum(block.rows for block in found), found[0].first, found[-1].last
    latest, hole = _unbroken(found)
    if hole is None and mark is not None and mark.sequence > last:
        hole = last + 1
    if hole is None and question.has_ended(bridge):
        latest = FOREVER
    elif hole is None and mark is not None and mark.at_ms <= question.now + question.grace:
        latest = mark.at_ms if mark.sequence == last else max(latest, mark.at_ms)
    return Reach(bridge, rows, first, last, latest, hole)


def _unbroken(found: list[Block]) -> tuple[int, int | None]:
    """The latest event before the first hole, and the number that is missing there."""
    latest, expected = -1, found[0].first
    for block in found:
        if block.first != expected:
            return latest, expected
        latest, expected = max(latest, block.latest_ms), block.last + 1
    return latest, None


def vanished(found: Iterable[Reach], marks: Mapping[str, Mark], question: Question) -> list[Reach]:
    """Bridges that have a mark, so that they wrote rows, of which none is there: nothing can be relied on. Those named as `ended` reach to the end.

    `--all-ended` does not say that so many rows may be gone.
    """
    gone = [(name, marks[name].sequence) for name in sorted(marks.keys() - {one.bridge for one in found})]
    return [Reach(name, 0, 1, last, FOREVER) if name in question.ended else Reach(name, 0, 1, last, -1, hole=1) for name, last in gone]
