"""Where a ledger begins that has lost its oldest rows, and its seam. The rule is in `rule`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Column, DataFrame

    from ..question import Question


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a ledger begins whose first row is not there: at `at_ms`, after number `seam`.

    Numbers up to that may be missing, and those between it and the first one behind it that is there.
    """

    at_ms: int
    seam: int


def of(ledger: DataFrame, bridges: Iterable[str], question: Question) -> dict[str, Beginning]:
    """By name, of bridges whose first row is not there."""
    cut = ledger.where(F.col("bridge").isin(*bridges)).select("bridge", "sequence", F.unix_millis("event_time").alias("event_ms"))
    first = cut.groupBy("bridge").agg(F.min("event_ms").alias("first_ms")).where("first_ms is not null")
    after = max(question.grace, 1)  # the first event is from before that in any case
    return begun(cut, {row["bridge"]: row["first_ms"] + after for row in first.collect()}, question)


def begun(rows: DataFrame, begin: Mapping[str, int], question: Question) -> dict[str, Beginning]:
    """The same of ledgers that begin at these instants, by the rows from before that: `bridge`, `sequence` and `event_ms`."""
    early = F.lit(False)
    for bridge, at_ms in begin.items():
        early |= (F.col("bridge") == bridge) & (F.col("event_ms") < at_ms)
    last = rows.where(early).groupBy("bridge").agg(F.max("sequence").alias("last"), F.max_by("event_ms", "sequence").alias("last_ms"))
    return {
        bridge: Beginning(begin[bridge], _seam(number, begin[bridge] - last_ms, question)) for bridge, number, last_ms in last.collect()
    }


def _seam(last: int, before: int, question: Question) -> int:
    """The seam of a ledger of which row `last` is the last from before it begins, by `before` milliseconds.

    If that row happened more than half a grace after the first one, what is missing right behind it was not removed with the old rows: none of them stands
    behind one that is so much younger. So the last row is told to be beyond the seam.
    """
    return last - 1 if before < question.grace / 2 else last


def after(beginnings: Mapping[str, Beginning]) -> Column:
    """Whether a row's number is beyond the seam of its bridge's ledger, where that has one."""
    beyond = F.lit(True)
    for bridge, beginning in beginnings.items():
        beyond &= (F.col("bridge") != bridge) | (F.col("sequence") > beginning.seam)
    return beyond
