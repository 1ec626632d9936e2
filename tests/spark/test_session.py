"""The Java process that Spark runs in, and what becomes of a job when it is gone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from spark.java import needs_java

pytest.importorskip("pyspark")

from delaybridge.spark_jobs.session import _settings

KILLED = """
import os, signal
from pyspark import SparkContext
from delaybridge.spark_jobs.command import told_by

def job(spark, say):
    os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
    return spark.range(3).count()

print(told_by(job, kafka=False, conf=["spark.master=local[1]"]))
"""


@needs_java
def test_a_job_whose_java_is_killed_cannot_say_and_tells_with_which_exit_code_it_ended() -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=False, timeout=100)

    assert done.stdout == "None\n"
    assert "cannot say: Spark's Java ended with exit code -9" in done.stderr
    assert "Traceback" not in done.stderr


def test_instants_are_utc_whatever_is_asked_of_spark() -> None:
    settings = _settings(kafka=False, conf=["spark.sql.session.timeZone=Asia/Tokyo", "spark.app.name=ours"])

    assert (settings["spark.sql.session.timeZone"], settings["spark.app.name"]) == ("UTC", "ours")
