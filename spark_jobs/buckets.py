"""What is counted together: destination, kind, dialect, level and due hour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ..core.durations import HOUR_MS
from .codes import first, word
from .frames import none_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from .question import Question

PLACE = ("destination_broker", "destination")
"""What names a destination."""

OCCURRENCE = ("id", "occurrence", "due_time")
"""What names one due message, at its destination and in the ledgers of all bridges: one may take it in, another one deliver it.

With the due time, for a message that is rescheduled is replaced by itself.
"""

OCCURRENCE_AT = (*PLACE, *OCCURRENCE)
"""The same among the messages of all destinations."""

ARRIVAL = (*PLACE, "due_hour")
"""What an observation can be counted by: a destination sees neither kind nor dialect."""

KIND = ("kind", "dialect", "level")
"""What only the ledgers know of a message."""

BUCKET = (*PLACE, *KIND, "due_hour")

LEVELS = (
    ("1s", 1_000), ("5s", 5_000), ("10s", 10_000), ("30s", 30_000), ("1m", 60_000), ("2m", 120_000), ("5m", 300_000), ("10m", 600_000),
    ("20m", 1_200_000), ("30m", 1_800_000), ("1h", 3_600_000), ("2h", 7_200_000), ("6h", 21_600_000), ("1d", 86_400_000), ("7d", 604_800_000),
    ("30d", 2_592_000_000),
)  # fmt: skip
"""Names and upper ends, both inclusive: RocketMQ's ladder, thinned, and carried on beyond two hours."""


LEVEL_NAMES = ("0s", *(name for name, _ in LEVELS), "longer")


def level(wait: Column) -> Column:
    """The lowest level that holds a delay in milliseconds: `0s` where there was none to wait, `longer` beyond the last."""
    return word(rung(wait), LEVEL_NAMES)


def rung(wait: Column) -> Column:
    """The same as a place in LEVEL_NAMES."""
    return first([wait <= 0, *(wait <= end for _, end in LEVELS), F.lit(True)])


def due_hour(due_ms: Column) -> Column:
    """The hour that an instant lies in, as epoch milliseconds of its begin."""
    return due_ms - F.pmod(due_ms, F.lit(HOUR_MS))


def within(due_time: Column, question: Question) -> Column:
    """Whether a due time lies in the window. On the column as it is stored, so that Parquet files are skipped by it."""
    return _between(due_time, question.since, question.until)


def _between(due_time: Column, since: int, until: int) -> Column:
    return (due_time >= F.timestamp_millis(F.lit(since))) & (due_time < F.timestamp_millis(F.lit(until)))


@dataclass(frozen=True, slots=True)
class Hours:
    """From the first to the last hour, as epoch milliseconds of their begins."""

    first: int
    last: int


def during(rows: DataFrame, hours: Hours | None) -> DataFrame:
    """Of `occurrences` or `arrivals`, what is due in these hours: a few, and most of the Parquet files are not read. None: nothing is."""
    return none_of(rows) if hours is None else rows.where(_between(F.col("due_time"), hours.first, hours.last + HOUR_MS))


def timed(ledger: DataFrame) -> DataFrame:
    """Adds `event_ms`, `due_ms` and `wait`. A step of its own: the ladder of levels would divide anew on each rung."""
    event_ms, due_ms = F.unix_millis("event_time"), F.unix_millis("due_time")
    return ledger.withColumns({"event_ms": event_ms, "due_ms": due_ms, "wait": due_ms - F.unix_millis("taken_time")})


def lateness() -> Column:
    """Of `timed` rows; null for what is no delivery."""
    return F.when(F.col("event") == "delivered", F.col("event_ms") - F.col("due_ms"))


def occurrences(ledger: DataFrame, question: Question) -> DataFrame:
    """The ledger's rows that are due in the window, each in its bucket."""
    return timed(ledger.where(within(F.col("due_time"), question))).select(
        "bridge", "id", "occurrence", "event", "due_time", "event_ms", "due_ms", "destination_broker", "destination", "kind", "dialect",
        level(F.col("wait")).alias("level"), due_hour(F.col("due_ms")).alias("due_hour"), lateness().alias("lateness_ms"),
    )  # fmt: skip


def arrivals(observed: DataFrame, question: Question) -> DataFrame:
    """What was observed of messages that are due in the window; `lateness_ms` by the observer's clock."""
    at_ms, due_ms = F.unix_millis("event_time"), F.unix_millis("due_time")
    return observed.where(within(F.col("due_time"), question)).select(
        "id", "occurrence", "destination_broker", "destination", "due_time", at_ms.alias("event_ms"), due_ms.alias("due_ms"),
        due_hour(due_ms).alias("due_hour"), (at_ms - due_ms).alias("lateness_ms"),
    )  # fmt: skip
