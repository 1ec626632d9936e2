"""What Spark loads from its jars, as Java keeps it (see brokers/classes.py): a session then starts with half of the processor time.

    python -m spark.classes    writes it down, beside those jars, unless it is there

Without it, or with another Java, sessions start as ever.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from brokers.classes import NAME, sharing

QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Commands are read by what they print."""
OPTIONS = "SPARK_SUBMIT_OPTS"
"""The variable from which Spark takes options for the Java of a session."""
WITHIN = 300.0
"""Seconds."""

JOB = """
import tempfile
from pathlib import Path
from delaybridge.spark_jobs.session import session
from pyspark.sql import SparkSession, functions as f

with session(kafka=False, conf=["spark.sql.shuffle.partitions=2"]) as spark, tempfile.TemporaryDirectory() as folder:
    table = str(Path(folder) / "table")
    spark.range(100).select("id", (f.col("id") % 7).alias("key"), f.current_timestamp().alias("at")).write.partitionBy("key").parquet(table)
    rows = spark.read.parquet(table)
    rows.join(rows.groupBy("key").agg(f.count("id"), f.percentile_approx("id", 0.5)), "key", "full_outer").orderBy("id").collect()
    java = spark.sparkContext._gateway.proc
java.stdin.close()
java.wait()
"""
"""Some of all that the audit does. Java writes down what it has loaded when it ends."""


def kept() -> Path | None:
    """Where it is, or would be; None where there is no Spark or no Java."""
    found = find_spec("pyspark")
    if found is None or found.origin is None or shutil.which("java") is None:
        return None
    return Path(found.origin).with_name(NAME)


def options() -> str:
    """How Java is told of it, where it is there."""
    return "" if (there := kept()) is None else " ".join([*sharing(there.parent), QUIET])


def write() -> None:
    """Write it down, unless it is there."""
    there = kept()
    if there is None or there.exists():
        return
    print("Writing down what Spark loads ...", flush=True)
    with tempfile.TemporaryDirectory(dir=there.parent) as folder:
        written = Path(folder) / there.name
        made = os.environ | {OPTIONS: f"-XX:ArchiveClassesAtExit={written} -XX:TieredStopAtLevel=1 {QUIET}"}
        subprocess.run([sys.executable, "-c", JOB], env=made, check=False, timeout=WITHIN, capture_output=True)
        if written.exists():
            written.rename(there)
        else:
            print("Java has written nothing down: sessions start as ever")


if __name__ == "__main__":
    write()
