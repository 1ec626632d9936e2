"""Ledgers of any size, with what arrived beside them and a few faults, made by Spark: `python -m tests.benchmarks.audit_ledger FOLDER EVENTS`."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from delaybridge.bridge.ledger.files import arrow_schema
from delaybridge.bridge.ledger.observed import SCHEMA
from delaybridge.core.durations import HOUR_MS

DAY = 24 * HOUR_MS
T0 = 1_750_032_000_000
"""A midnight."""
BRIDGES = ("north", "south", "west")
DESTINATIONS = ("orders",) * 7 + ("bills", "mails", "reports")
ROWS_PER_FILE = 250_000
ROWS_PER_MESSAGE = 3
"""Scheduled, delivered, observed."""
FAULTS = 5
"""Deliveries that are late, arrivals that are missing, and arrivals that come twice: so many of each."""

_TYPES = {"string": "string", "int64": "bigint", "timestamp[ms, tz=UTC]": "timestamp"}


def messages(events: int) -> int:
    """How many messages make so many rows of ledgers and observations."""
    return events // ROWS_PER_MESSAGE


def make(spark: SparkSession, folder: Path, events: int) -> None:
    """Write `folder`/ledger/BRIDGE and `folder`/seen."""
    count = messages(events)
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS")
    spark.conf.set("spark.sql.parquet.compression.codec", "zstd")
    for index, bridge in enumerate(BRIDGES):
        mine = (count + len(BRIDGES) - 1 - index) // len(BRIDGES)
        numbers = spark.range(0, mine, 1, -(-mine * 2 // ROWS_PER_FILE))
        told = _message(numbers.select((F.col("id") * len(BRIDGES) + index).alias("n"), F.col("id").alias("mine")), count)
        rows = told.select("*", F.explode(F.array(F.lit("scheduled"), F.lit("delivered"))).alias("event"))
        _ledger(rows, bridge).write.parquet(str(folder / "ledger" / bridge))
    seen = _message(spark.range(0, count, 1, -(-count // ROWS_PER_FILE)).select(F.col("id").alias("n"), F.lit(0).alias("mine")), count)
    twice = F.when(_fault("twice", count), 2).when(_fault("lost", count), 0).otherwise(1)
    _seen(seen.select("*", F.explode(F.expr("sequence(1, 2)")).alias("copy"), twice.alias("copies")).where("copy <= copies")).write.parquet(
        str(folder / "seen")
    )


def _fault(name: str, count: int) -> Column:
    """Whether this message has that fault: all of them fall into two hours."""
    shift = {"late": 1, "lost": 2, "twice": 3}[name]
    begin, number = count // 3, F.col("n")
    return (number >= begin) & (number < begin + 10 * FAULTS) & (F.pmod(number - begin, F.lit(10)) == shift)


def _message(numbers: DataFrame, count: int) -> DataFrame:
    """Number -> what is known of a message. Ids look like those that bridges make."""
    n = F.col("n")
    hashed = F.pmod(F.xxhash64(n), F.lit(1_000))
    places = F.array(*(F.lit(name) for name in DESTINATIONS))
    waits = F.array(*(F.lit(ms) for ms in (500, 4_000, 60_000, 3_000_000)))
    return numbers.select(
        "n",
        "mine",
        F.lower(F.concat(F.hex(F.xxhash64(n)), F.lpad(F.hex(n), 10, "0"))).alias("id"),
        F.element_at(places, (F.pmod(n, F.lit(10)) + 1).cast("int")).alias("destination"),
        (F.lit(T0) + F.floor(n * DAY / count)).cast("bigint").alias("due"),
        F.element_at(waits, (F.pmod(hashed, F.lit(4)) + 1).cast("int")).alias("wait"),
        F.when(_fault("late", count), 60_000).otherwise(1 + F.pmod(hashed, F.lit(40))).cast("bigint").alias("late"),
    )


def _ledger(rows: DataFrame, bridge: str) -> DataFrame:
    opening = F.col("event") == "scheduled"
    taken = F.timestamp_millis(F.col("due") - F.col("wait"))
    columns: dict[str, Column] = {
        "event": F.col("event"),
        "event_time": F.when(opening, taken).otherwise(F.timestamp_millis(F.col("due") + F.col("late"))),
        "id": F.col("id"),
        "due_time": F.timestamp_millis("due"),
        "taken_time": taken,
        "lateness_ms": F.when(~opening, F.col("late")),
        "destination": F.col("destination"),
        "sequence": F.col("mine") * 2 + F.when(opening, 1).otherwise(2),
    }
    same = {"occurrence": 1, "kind": "once", "dialect": "own", "route": "r", "source_broker": "k", "source": "in",
            "destination_broker": "kafka", "attempts": 1, "reason": "", "size_bytes": 100, "bridge": bridge}  # fmt: skip
    return rows.select(
        *((columns.get(one.name, F.lit(same.get(one.name)))).cast(_TYPES[str(one.type)]).alias(one.name) for one in arrow_schema())
    )


def _seen(rows: DataFrame) -> DataFrame:
    columns: dict[str, Column] = {
        "event_time": F.timestamp_millis(F.col("due") + F.col("late") + 2),
        "id": F.col("id"),
        "due_time": F.timestamp_millis("due"),
        "destination": F.col("destination"),
    }
    same = {"event": "observed", "occurrence": 1, "destination_broker": "kafka", "size_bytes": 100}
    return rows.select(*((columns.get(one.name, F.lit(same.get(one.name)))).cast(_TYPES[str(one.type)]).alias(one.name) for one in SCHEMA))


def main() -> None:
    from delaybridge.spark_jobs.session import session  # noqa: PLC0415 - changes the time zone of this process

    with session(kafka=False) as spark:
        make(spark, Path(sys.argv[1]), int(sys.argv[2]))


if __name__ == "__main__":
    main()
