"""One audit in a process of its own, and the same as a plain join; prints what it took as JSON: `python -m tests.benchmarks.audit_run FOLDER`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from delaybridge.spark_jobs import buckets
from delaybridge.spark_jobs.arguments import parse
from delaybridge.spark_jobs.reading import inputs
from delaybridge.spark_jobs.reconcile import reconcile
from delaybridge.spark_jobs.session import session

from .audit_ledger import BRIDGES, DAY, FAULTS, T0

KEY = ["id", "occurrence"]


def main() -> None:
    folder, measured = Path(sys.argv[1]), {}
    ledgers = [word for name in BRIDGES for word in ("--ledger", str(folder / "ledger" / name))]
    window = ["--since", "2025-06-16", "--until", "2025-06-17", "--all-ended", *sys.argv[2:]]
    arguments = parse([*ledgers, "--observed", str(folder / "seen"), *window, "--out", str(folder / "out")], now=T0 + 3 * DAY)
    began = time.perf_counter()
    with session(kafka=False, conf=arguments.conf) as spark:
        measured["start"] = time.perf_counter() - began
        told: dict[str, Any] = {}
        for name in ("first", "again"):
            cpu = processor(spark)
            measured[name] = timed(lambda: told.update(reconcile(spark, arguments, lambda _: None)))
            measured[f"{name}_cpu"] = processor(spark) - cpu
        measured["memory"] = peak(spark)
        measured["join"] = timed(
            lambda: plain(inputs.ledger(spark, arguments.ledgers).rows, inputs.observed(spark, arguments.observed, T0, {}, {}).rows)
        )
        measured["join_memory"] = peak(spark)
    print(json.dumps({**measured, "findings": {name: one["count"] for name, one in told["findings"].items() if one["count"]}}))


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def java(spark: SparkSession) -> int:
    """The process id of Spark's Java."""
    return int(spark._jvm.ProcessHandle.current().pid())  # type: ignore[union-attr]


def processor(spark: SparkSession) -> float:
    """Seconds of processor time that Java and this process have used."""
    fields = Path(f"/proc/{java(spark)}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + time.process_time()


def peak(spark: SparkSession) -> float:
    """The most resident memory of Java and this process, MiB."""
    return sum(_peak(pid) for pid in (java(spark), os.getpid()))


def _peak(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def plain(ledger: DataFrame, observed: DataFrame) -> None:
    """The same question asked in one go: what was scheduled, what ended and what arrived, joined by id, then counted by bucket."""
    due = ledger.where("problem is null").withColumn("due_ms", F.unix_millis("due_time"))
    opened = due.where("event = 'scheduled'").select(
        *KEY, "bridge", "destination_broker", "destination", "kind", "dialect", "due_ms",
        buckets.level(F.col("due_ms") - F.unix_millis("taken_time")).alias("level"),
    )  # fmt: skip
    ended = due.where("event <> 'scheduled'").select(*KEY, "bridge", "event", (F.unix_millis("event_time") - F.col("due_ms")).alias("late"))
    seen = observed.where("problem is null").groupBy(*KEY).agg(F.count("*").alias("times"), F.max("event_time").alias("at"))
    both = opened.join(ended, on=[*KEY, "bridge"], how="full").join(seen, on=KEY, how="full")
    by: list[Column | str | int] = [
        "destination_broker",
        "destination",
        "kind",
        "dialect",
        "level",
        buckets.due_hour(F.col("due_ms")).alias("due_hour"),
    ]
    counted = both.groupBy(*by).agg(
        F.count("*").alias("scheduled"),
        F.count_if(F.col("event").isNull()).alias("missing"),
        F.count_if(F.col("times").isNull()).alias("not_observed"),
        F.count_if(F.col("times") > 1).alias("duplicated"),
        F.count_if(F.col("late") > 5_000).alias("late"),
        F.count_if(F.col("late") < 0).alias("early"),
        F.percentile_approx("late", [0.5, 0.95, 0.99]).alias("quantiles"),
        F.max("late").alias("worst"),
    )  # fmt: skip
    found = (
        counted.agg(*(F.sum(name).alias(name) for name in ("missing", "not_observed", "duplicated", "late", "early"))).collect()[0].asDict()
    )
    assert found == {"missing": 0, "not_observed": FAULTS, "duplicated": FAULTS, "late": FAULTS, "early": 0}, found


if __name__ == "__main__":
    main()
