"""The Spark session of the command: quiet, UTC, and with the Kafka source where a topic is read."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from .columns import UnusableInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

KAFKA_SOURCE = "spark-sql-kafka"
KAFKA_PACKAGE = f"org.apache.spark:{KAFKA_SOURCE}-0-10_2.13:{pyspark.__version__}"
"""The source for topics, of the same version as Spark."""

_PACKAGES = "spark.jars.packages"
_JARS = (_PACKAGES, "spark.jars", "spark.driver.extraClassPath")
"""Where a user names jars."""

ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
"""Settings that win over the user's and the cluster's: every instant in the reports, the tables and the alerts is UTC, and says so. And what is in a file that
cannot be read, or went meanwhile, is not taken for what never happened."""

SETTINGS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.maxPlanStringLength": "65536",  # Spark writes every plan down for an interface that nobody opens
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # for errors, each column asks Java several times more to tell who made it
    "spark.sql.dataFrameQueryContext.enabled": "false",  # as above: Java looks through its own stack
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # others read an instant, and in UTC; what Spark writes else is deprecated and has no zone
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "4096",  # percentiles and lists of so many buckets, before they are sorted
    "spark.sql.codegen.cache.maxEntries": "1000",  # an audit has more than the hundred programs that Spark keeps by default
}
COMPILING = (
    "-XX:Tier4InvocationThreshold=100000",
    "-XX:Tier4MinInvocationThreshold=12000",
    "-XX:Tier4CompileThreshold=300000",
    "-XX:Tier4BackEdgeThreshold=800000",
)
"""Most of what an audit runs it runs for a moment, as the planning of each query: Java's thorough compiler takes longer than that. So only what runs twenty
times as often as it asks for by default is given to it: a fifth less processor time for 1 M events, a quarter for 10 M."""
_JAVA = ("-XX:+UseParallelGC", *COMPILING)
"""Nobody waits for a single row: a third less processor time than with G1."""
LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.ui.explainMode": "simple",  # what would be shown there is made all the same, after each stage
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.files.maxPartitionBytes": "32m",  # both cores of a small machine have something to do until the end
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": " ".join(_JAVA),
}
"""What a laptop's run needs, where nobody says otherwise. A cluster's own settings stand."""


_PLAINLY = {"PATH_NOT_FOUND": "there is nothing of that name", "UNABLE_TO_INFER_SCHEMA": "the folder holds none"}
"""What Spark's conditions mean for a path: it tells of SQL, and that a schema must be specified."""
_COLON = "Relative path in absolute URI"
"""What Java says where it takes what stands before a colon for the kind of a URL."""

_CLASS = re.compile(r"^(?:[a-z]\w*\.)+[A-Z][\w$]*: (?=.)")
"""The class of an error, which Java says before what it has to say."""

_DYING = 0.2  # seconds that a Java whose connection is lost may take to end
_ENDING = 5.0  # and one that is told to


class _Members:
    """A class of Java whose members are looked up once. Any thread: whoever comes second finds the same."""

    def __init__(self, java_class: Any) -> None:
        self._java_class = java_class

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._java_class, name)
        setattr(self, name, member)
        return member


@contextmanager
def session(*, kafka: bool, conf: Sequence[str] = ()) -> Iterator[SparkSession]:
    """A session; under spark-submit, its own. `conf` are further `key=value`.

    What Java prints is shown only where it does not start, or ends before we do: that is UnusableInput.
    """
    os.environ["TZ"] = "UTC"  # a timestamp that is collected becomes local time
    time.tzset()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("delaybridge audit")
    for name, value in _settings(kafka=kafka, conf=conf).items():
        builder = builder.config(name, value)
    with tempfile.TemporaryDirectory() as folder:
        printed = Path(folder) / "java.log"
        spark = _started(builder, printed)
        _interruptible()
        try:
            with _living(printed):
                _remember(spark)
                yield spark
        except BaseException as error:
            if _interrupted(error):  # the answer to what was being asked is still to come: this connection takes no further question
                _end(getattr(SparkContext._gateway, "proc", None))  # noqa: SLF001 - as in _ended
                raise KeyboardInterrupt from error
            raise
        finally:
            _stop(spark)


def _interruptible() -> None:
    """Let Ctrl-C be a KeyboardInterrupt. PySpark asks Java first to cancel all jobs, amid another question, and takes the one answer for the other."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupted(error: BaseException | None) -> bool:
    """Whether an error came of Ctrl-C. PySpark asks Java on its way out, too, and what Java does not answer then hides the KeyboardInterrupt."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _stop(spark: SparkSession) -> None:
    """End the session, unless its Java is ending by itself: all that was asked of it has been answered."""
    with suppress(Py4JError, OSError), warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        if _ended(0) is None:
            spark.stop()


def _end(process: subprocess.Popen[bytes] | None) -> None:
    """End a Java that this process has started: it ends by itself where we do, but not while it starts. SIGTERM lets it remove its temporary files."""
    if process is not None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDING)
        process.kill()


def _remember(spark: SparkSession) -> None:
    """For each column and each call py4j asks Java anew what a name means, which looks for it in every jar: a third of all that is said to Java."""
    view: Any = spark._jvm  # noqa: SLF001 - where PySpark itself looks its names up
    for name in ("functions", "org.apache.spark.sql.functions", "PythonUtils", "PythonSQLUtils"):
        if name not in vars(view):  # an earlier session of this process may have left its Java
            setattr(view, name, _Members(getattr(view, name)))


@contextmanager
def _living(printed: Path) -> Iterator[None]:
    """Where Java has ended meanwhile, the errors that come of it say only that nobody answers."""
    try:
        yield
    except (Py4JError, OSError):
        _check(printed, _DYING)
        raise


def _check(printed: Path, patience: float) -> None:
    if (code := _ended(patience)) is not None:
        raise UnusableInput(f"Spark's Java ended with exit code {code}{_last_words(printed)}")


def _ended(patience: float) -> int | None:
    """The exit code of the Java that this process has started, as subprocess tells it; None while it runs, and where somebody else has started it."""
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - nothing public tells
    if process is None:
        return None
    with suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    return process.returncode


def _last_words(printed: Path) -> str:
    said = printed.read_text(errors="replace").strip()[-3000:]
    return f"\n{said}" if said else ""


def _settings(*, kafka: bool, conf: Sequence[str]) -> dict[str, str]:
    submitted = "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ
    settings = dict(SETTINGS) if submitted else {**LOCAL_SETTINGS, **SETTINGS}
    for one in conf:
        name, separator, value = one.partition("=")
        if not separator:
            raise UnusableInput(f"--conf {one}: write it as NAME=VALUE")
        settings[name] = value
    settings |= ALWAYS
    if kafka and not submitted and not _has_kafka(settings):
        settings[_PACKAGES] = ",".join(filter(None, (settings.get(_PACKAGES), KAFKA_PACKAGE)))
    return settings


def _has_kafka(settings: Mapping[str, str]) -> bool:
    """Whether the source for topics is among the jars that a user names, by its name or as one of `FOLDER/*`. Others do not bring it along."""
    named = [Path(one) for name in _JARS for one in re.split("[,:]", settings.get(name, ""))]
    return any(KAFKA_SOURCE in str(path) for one in named if one.name for path in (one, *one.parent.glob(one.name)))


def _started(builder: SparkSession.Builder, printed: Path) -> SparkSession:
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        raise UnusableInput("Spark needs Java 17 or later: install it, or set JAVA_HOME")
    try:
        with _aside(printed):
            return builder.getOrCreate()
    except BaseException as error:
        frames = (frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__))
        _end(next((names["proc"] for names in frames if names.get("proc") is not None), None))  # of launch_gateway: nothing else has it yet
        if isinstance(error, Exception):
            raise UnusableInput(f"Spark does not start: {error}{_last_words(printed)}") from error
        raise


@contextmanager
def _aside(file: Path) -> Iterator[None]:
    """What this process's descriptors 1 and 2 get meanwhile goes to a file; a Java that is started meanwhile keeps it."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    with file.open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        for descriptor, original in zip((1, 2), kept, strict=True):
            os.dup2(original, descriptor)
            os.close(original)


@contextmanager
def readable_errors() -> Iterator[None]:
    """What Spark cannot read becomes UnusableInput, in one or two lines."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise UnusableInput("; ".join(_CLASS.sub("", line) for line in said(error))[:1000]) from error


@contextmanager
def named(what: str) -> Iterator[None]:
    """The same for what is done with one path, which the line begins with: Hadoop does not always tell it, and never the option."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise UnusableInput(f"{what}: {cause(error)}") from error


def said(error: PySparkException | Py4JJavaError) -> list[str]:
    """What an error of Spark says, line by line; what it is called where it says nothing, as of what a file system cannot do.

    Of Java's own, the first line of each cause, that of the last one last: what follows is Java's stack.
    """
    if not isinstance(error, Py4JJavaError):
        return _lines(str(error)) or [type(error).__name__]
    lines: list[str] = []
    cause = error.java_exception
    while cause is not None:
        lines += _lines(str(cause.toString()))[:1]
        cause = cause.getCause()
    return lines


def cause(error: PySparkException | Py4JJavaError) -> str:
    """The line of these that says most; ours where Spark's does not say it to who named a folder."""
    if _COLON in str(error):
        return "Hadoop reads no file whose name has a colon: give it another name"
    if isinstance(error, Py4JJavaError):
        return said(error)[-1]
    return _PLAINLY.get(error.getCondition() or "", said(error)[0])


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
