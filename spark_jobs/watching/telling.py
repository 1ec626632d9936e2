"""Alerts on their way out.

Lines are numbered, and `told.json` below the checkpoint has the number of the last one that went out. A process that is killed between telling and noting
tells again: a file is read for the last number of the same watch first, so that nothing stands in it twice, whoever else tells there; on standard output
and in a topic the watch and the number give it away.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ..columns import UnusableInput
from ..reading import kafka_client
from ..reading.places import address_of
from ..session import cause
from .state import ANEW, TOLD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from pyspark.sql import DataFrame, SparkSession

    from .state import State

_BLOCK = 1 << 20

PORTION = 50_000
"""So many lines are in this process at once, some 30 MB: a dead destination has millions."""


class Teller:
    """Tells lines (see `alerts.lines`) to a file or to standard output, and to a topic if there is one. `alerted` counts the alerts among them."""

    def __init__(self, spark: SparkSession, state: State, file: Path | None, topic: str | None, options: Mapping[str, str]) -> None:
        self.alerted = 0
        self._state = state
        self._file = file
        self._topic = topic
        self._options = {name: value for name, value in options.items() if name.startswith("kafka.")}
        self._check(spark)

    def _check(self, spark: SparkSession) -> None:
        """Where alerts go is seen at the start, and not when there is the first one. Raises UnusableInput, or OSError, where that cannot be."""
        if self._file is not None:
            self._file.open("ab+").close()  # as it will be: a pipe cannot be read back
        if self._topic is not None:
            kafka_client.require_writable(spark, self._topic, self._options)

    def require_older(self) -> None:
        """Raises UnusableInput where more was told than the state knows, as if it was put back from a copy: its next lines would count as told."""
        holds = self._state.holds
        if max(self._told(), self._last() if holds.watch else 0) > holds.number:
            self._state.require_own()  # another watch may have gone on
            raise UnusableInput(f"{self._state.folder.url} is older than what it has told: was it put back from a copy? {ANEW}")

    def _last(self) -> int:
        """The number of this watch's last line in the file."""
        if self._file is None:
            return 0
        with _locked(self._file) as output:
            return _last_of(self._state.holds.watch, output)

    def tell(self) -> None:
        """What was not told yet, in portions. On return all sinks have it, and that is noted. OSError where the file cannot be written."""
        told = self._told()
        if told == self._state.holds.number:
            return
        lines = self._state.table("lines").where(f"number > {told}")
        [(first, last)] = lines.agg(F.min("number"), F.max("number")).collect()
        for begin in range(first, last + 1, PORTION) if first else ():
            self._tell(lines.where(F.col("number").between(begin, begin + PORTION - 1)).orderBy("number"))

    def _tell(self, portion: DataFrame) -> None:
        rows = portion.collect()
        text = [(row["number"], row["line"]) for row in rows]
        self._print(text) if self._file is None else _append(self._file, self._state.holds.watch, text)
        self._publish(portion)  # last: a topic that has gone must not keep an alert from everybody
        self._state.folder.replace(TOLD, json.dumps({"number": text[-1][0]}))
        self.alerted += sum(row["event"] == "alert" for row in rows)

    def _told(self) -> int:
        folder = self._state.folder
        if TOLD not in folder.names():
            return 0
        try:
            return int(json.loads(folder.read(TOLD))["number"])
        except (ValueError, LookupError, TypeError) as error:
            raise UnusableInput(f"{folder.at(TOLD)} does not say what was told: remove it, and the last alerts are told again") from error

    def _publish(self, waiting: DataFrame) -> None:
        """Each alert and its end have one key, so they stay in order in one partition. Raises UnusableInput where Kafka does not take them."""
        if self._topic is None:
            return
        servers, topic = address_of(self._topic)
        key = "concat_ws('/', get_json_object(line, '$.kind'), get_json_object(line, '$.bridge'), get_json_object(line, '$.id'))"
        writer = waiting.selectExpr(f"{key} AS key", "line AS value").write.format("kafka").option("kafka.bootstrap.servers", servers)
        try:
            writer.options(**self._options).option("topic", topic).save()
        except (PySparkException, Py4JJavaError) as error:
            raise UnusableInput(
                f"topic {topic} at {servers} took no alerts: {cause(error)}; they are told there at the next start"
            ) from error

    @staticmethod
    def _print(lines: Iterable[tuple[int, str]]) -> None:
        sys.stdout.writelines(f"{line}\n" for _, line in lines)
        sys.stdout.flush()


def _append(file: Path, watch: str, lines: Iterable[tuple[int, str]]) -> None:
    """Those lines that are not there yet, behind what is there. Watches that tell to one file wait for each other."""
    with _locked(file) as output:
        last = _last_of(watch, output)
        output.writelines(f"{line}\n".encode() for number, line in lines if number > last)
        output.flush()
        _sync(output.fileno())


@contextmanager
def _locked(file: Path) -> Iterator[BinaryIO]:
    with file.open("ab+") as output:
        fcntl.flock(output, fcntl.LOCK_EX)
        yield output


def _sync(descriptor: int) -> None:
    """Durable on return. What is no file, as /dev/null where a topic gets the alerts, has nothing to be durable on."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


def _last_of(watch: str, content: BinaryIO) -> int:
    """Cut off a last line that a crash left unfinished; returns the number of the watch's last line, 0 where there is none."""
    backwards = _backwards(content)
    if unfinished := next(backwards):
        content.truncate(content.seek(0, os.SEEK_END) - len(unfinished))
    return next((number for line in backwards for number in _numbers(line, watch)), 0)


def _backwards(content: BinaryIO) -> Iterator[bytes]:
    """Its lines, the last one first; before that what stands behind the last end of a line."""
    end, rest = content.seek(0, os.SEEK_END), b""
    while end:
        start = max(0, end - _BLOCK)
        content.seek(start)
        first, *lines = (content.read(end - start) + rest).split(b"\n")
        yield from reversed(lines)
        end, rest = start, first
    yield rest


def _numbers(line: bytes, watch: str) -> Iterator[int]:
    """The number of a line that this watch told."""
    if watch.encode() not in line:
        return
    try:
        told = json.loads(line)
    except ValueError:
        return
    if isinstance(told, dict) and told.get("watch", "") == watch:
        yield int(told["number"])
