"""What can be wrong with a message, and the table that says so of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ..buckets import BUCKET

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FINDINGS: dict[str, str] = {
    "missing": "due, and neither delivered nor ended otherwise",
    "duplicated": "delivered or seen more often than it was scheduled",
    "early": "delivered or seen before its due time",
    "late": "delivered or seen later than the SLA allows",
    "never_scheduled": "ended or seen, and no ledger tells that it was scheduled",
    "not_observed": "delivered by the ledger, and not seen at its destination",
    "unwanted": "seen, although the ledger says that it ended otherwise",
    "unrecorded": "seen, and its ledger has no delivery of it",
}
"""Name and meaning, worst first within what can be compared."""

_NUMBERS = ("scheduled", "delivered", "observed")


def table(frame: DataFrame) -> DataFrame:
    """The contract of the discrepancies: one row for each thing that is wrong with an occurrence.

    So an occurrence may have several rows of one finding: one for each late or early delivery; `duplicated` once by the ledger and once by what was seen.

    count                       how many messages are too many, or too few
    surplus                     how many more were seen than the ledger delivered; negative where it is fewer
    bridge                      the names of all bridges whose rows tell it
    at                          when the latest of what is told of happened

    `bridge`, `at`, `lateness_ms` and the numbers of rows are null where they are not known. The frame must have `due_ms` and `event_ms`; other columns
    that it lacks become null.
    """
    present = set(frame.columns)
    return frame.select(
        "finding",
        *(F.col(name) for name in BUCKET if name != "due_hour"),
        F.timestamp_millis("due_hour").alias("due_hour"),
        _optional("bridge", "string", present),
        "id",
        F.col("occurrence").cast("bigint").alias("occurrence"),
        F.timestamp_millis("due_ms").alias("due_time"),
        F.timestamp_millis("event_ms").alias("at"),
        _optional("lateness_ms", "bigint", present),
        *(_optional(name, "bigint", present) for name in _NUMBERS),
        F.col("count").cast("bigint").alias("count"),
        (F.col("surplus") if "surplus" in present else F.lit(0)).cast("bigint").alias("surplus"),
        "detail",
    )


def _optional(name: str, kind: str, present: set[str]) -> Column:
    return (F.col(name) if name in present else F.lit(None)).cast(kind).alias(name)


def names(of: str) -> Column:
    """Of rows that are grouped: the one word that stands in this column, or the words in their order. Null where none does."""
    return F.nullif(F.array_join(F.array_sort(F.collect_set(of)), ", "), F.lit(""))
