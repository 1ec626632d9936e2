"""The Java process that Spark runs in, and what becomes of a job when it is gone."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from spark.java import needs_java

pytest.importorskip("pyspark")

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from delaybridge.spark_jobs import command
from delaybridge.spark_jobs.session import KAFKA_PACKAGE, _settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

KILLED = """
import os, signal
from pyspark import SparkContext
from delaybridge.spark_jobs.command import told_by

def job(spark, say):
    os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
    return spark.range(3).count()

print(told_by(job, kafka=False, conf=["spark.master=local[1]"]))
"""


INTERRUPTED = """
import os, signal, threading, time
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext, java_gateway
from delaybridge.spark_jobs.command import told_by

started = []

class Popen(java_gateway.Popen):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        started.append(self)

class Waiting:
    def sleep(seconds):
        os.kill(os.getpid(), signal.SIGINT)

def interrupt(spark):
    while not spark.sparkContext.statusTracker().getActiveJobsIds():
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)

def job(spark, say):
    threading.Thread(target=interrupt, args=(spark,), daemon=True).start()
    try:
        return spark.range(1 << 50).selectExpr("sum(id % 7)").collect()
    finally:
        if INTERRUPTED_AT == "way out":
            raise Py4JNetworkError("Answer from Java side is empty")

java_gateway.Popen = Popen
if INTERRUPTED_AT == "start":
    java_gateway.time = Waiting
print(told_by(job, kafka=False, conf=["spark.master=local[1]"]), [process.poll() is not None for process in started])
"""


@needs_java
def test_a_job_whose_java_is_killed_cannot_say_and_tells_with_which_exit_code_it_ended() -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=False, timeout=100)

    assert done.stdout == "None\n"
    assert "cannot say: Spark's Java ended with exit code -9" in done.stderr
    assert "Traceback" not in done.stderr


@needs_java
@pytest.mark.parametrize("at", ["start", "work", "way out"])
def test_ctrl_c_ends_a_job_and_its_java_in_a_line_whatever_they_are_at(at: str) -> None:
    script = INTERRUPTED.replace("INTERRUPTED_AT", repr(at))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=100)

    assert (done.stdout, done.stderr) == ("None [True]\n", "cannot say: interrupted\n")


@needs_java
def test_where_starting_fails_otherwise_no_java_is_left_behind() -> None:
    script = INTERRUPTED.replace("INTERRUPTED_AT", "'start'").replace("os.kill(os.getpid(), signal.SIGINT)", "raise OSError('no time')", 1)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=100)

    assert done.stdout == "None [True]\n"
    assert done.stderr.startswith("cannot say: Spark does not start: no time")


def test_instants_are_utc_whatever_is_asked_of_spark() -> None:
    asked = ["spark.sql.session.timeZone=Asia/Tokyo", "spark.sql.timestampType=TIMESTAMP_NTZ", "spark.app.name=ours"]
    settings = _settings(kafka=False, conf=asked)

    assert (settings["spark.sql.session.timeZone"], settings["spark.app.name"]) == ("UTC", "ours")
    assert settings["spark.sql.timestampType"] == "TIMESTAMP_LTZ"


def test_a_file_that_cannot_be_read_is_never_passed_over_whatever_a_cluster_says() -> None:
    names = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")
    settings = _settings(kafka=False, conf=[f"{name}=true" for name in names])

    assert [settings[name] for name in names] == ["false", "false"]


def _packages(monkeypatch: pytest.MonkeyPatch, *conf: str) -> str | None:
    for name in ("SPARK_ENV_LOADED", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    return _settings(kafka=True, conf=conf).get("spark.jars.packages")


def test_a_users_own_jars_do_not_displace_the_source_for_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    aws = "org.apache.hadoop:hadoop-aws:3.4.1"

    assert _packages(monkeypatch) == KAFKA_PACKAGE
    assert _packages(monkeypatch, f"spark.jars.packages={aws}") == f"{aws},{KAFKA_PACKAGE}"
    assert _packages(monkeypatch, "spark.jars=/x/a.jar") == KAFKA_PACKAGE
    assert _packages(monkeypatch, "spark.driver.extraClassPath=/x/*") == KAFKA_PACKAGE


def test_the_source_for_topics_is_fetched_only_where_the_user_does_not_name_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.1"
    jar = tmp_path / "spark-sql-kafka-0-10_2.13-4.0.0.jar"
    jar.touch()

    assert _packages(monkeypatch, f"spark.jars.packages={own}") == own
    for given in (f"spark.jars=/x/a.jar,{jar}", f"spark.jars=file:{tmp_path}/*.jar", f"spark.driver.extraClassPath=/x/a.jar:{tmp_path}/*"):
        assert _packages(monkeypatch, given) is None


def test_a_fault_of_the_audit_itself_ends_with_cannot_say_and_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def no_session(**_: Any) -> Iterator[None]:
        yield

    def job(*_: Any) -> None:
        raise ValueError("ours")

    monkeypatch.setattr(command, "session", no_session)

    assert command.told_by(job, kafka=False, conf=[]) is None
    assert capsys.readouterr().err.startswith("cannot say: the audit itself failed\nTraceback")


TOLD = """
import sys
from contextlib import contextmanager
from delaybridge.spark_jobs import command, {job}

@contextmanager
def no_session(**_):
    yield

command.session = no_session
{job}.{function} = lambda *_: {{"exit_code": 0}}
sys.exit({job}.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("closed", "why"), [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor"), ("| true", "")])
@pytest.mark.parametrize(("job", "words"), [("reconcile", "--ledger x --json"), ("forecast", "--export x --json")])
def test_what_cannot_be_printed_is_told_in_a_line_with_exit_code_2(job: str, words: str, closed: str, why: str) -> None:
    script = TOLD.format(job=job, function=job)
    shell = f'"$0" -c "$1" {words} {closed}'
    done = subprocess.run(
        ["bash", "-c", f"{shell}; exit ${{PIPESTATUS[0]}}", sys.executable, script], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (2, f"cannot say: standard output: {why}\n" if why else "")


@pytest.fixture
def said(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by each command that goes to Java."""
    commands: list[str] = []
    client = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
    send = client.send_command

    def heard(command: str, *more: Any, **rest: Any) -> Any:
        commands.append(command)
        return send(command, *more, **rest)

    monkeypatch.setattr(client, "send_command", heard)
    return commands


def test_python_does_not_tell_java_for_each_column_who_made_it(said: list[str]) -> None:
    F.col("a")

    assert any("functions" in command for command in said)
    assert not any("PySparkCurrentOrigin" in command for command in said)


def test_what_a_name_means_is_asked_of_java_once(spark: SparkSession, said: list[str]) -> None:
    rows = spark.range(1)
    for _ in range(2):
        del said[:]
        rows.select(F.upper(F.lit("a")), F.when(F.col("id") > 0, 1))

    assert any("upper" in command for command in said)
    assert [command for command in said if command.startswith("r\n")] == []  # reflection
