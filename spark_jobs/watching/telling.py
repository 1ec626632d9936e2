"""Alerts on their way out.

Lines are numbered, and `told.json` below the checkpoint has the number of the last one that went out. A process that is killed between telling and noting
tells again: a file is read for its last number first, so that nothing stands in it twice; on standard output and in a topic the number gives it away.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from .. import inputs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame

    from ..hadoop import Folder

_TOLD = "told.json"


class Teller:
    """Tells lines (see `alerts.lines`) to a file or to standard output, and to a topic if there is one. `alerted` counts the alerts among them."""

    def __init__(self, folder: Folder, file: Path | None, topic: str | None, options: Mapping[str, str]) -> None:
        self.alerted = 0
        self._folder = folder
        self._file = file
        self._topic = topic
        self._options = {name: value for name, value in options.items() if name.startswith("kafka.")}

    def tell(self, lines: DataFrame) -> None:
        """What was not told yet. On return all sinks have it, and that is noted. OSError where the file cannot be written."""
        waiting = lines.where(f"number > {self._told()}").orderBy("number")
        rows = waiting.collect()
        if not rows:
            return
        self._publish(waiting)
        text = [(row["number"], row["line"]) for row in rows]
        self._print(text) if self._file is None else self._append(self._file, text)
        self._folder.replace(_TOLD, json.dumps({"number": text[-1][0]}))
        self.alerted += sum(row["event"] == "alert" for row in rows)

    def _told(self) -> int:
        return int(json.loads(self._folder.read(_TOLD))["number"]) if _TOLD in self._folder.names() else 0

    def _publish(self, waiting: DataFrame) -> None:
        """Each alert and its end have one key, so they stay in order in one partition."""
        if self._topic is None:
            return
        servers, topic = inputs.address_of(self._topic)
        key = "concat_ws('/', get_json_object(line, '$.kind'), get_json_object(line, '$.bridge'), get_json_object(line, '$.id'))"
        writer = waiting.selectExpr(f"{key} AS key", "line AS value").write.format("kafka").option("kafka.bootstrap.servers", servers)
        writer.options(**self._options).option("topic", topic).save()

    @staticmethod
    def _print(lines: Iterable[tuple[int, str]]) -> None:
        sys.stdout.writelines(f"{line}\n" for _, line in lines)
        sys.stdout.flush()

    @staticmethod
    def _append(file: Path, lines: Iterable[tuple[int, str]]) -> None:
        with file.open("ab+") as output:
            last = _whole(file)
            output.writelines(f"{line}\n".encode() for number, line in lines if number > last)
            output.flush()
            os.fsync(output.fileno())


def _whole(file: Path) -> int:
    """Cut off a last line that a crash left unfinished; returns the number of the one before, 0 where there is none."""
    with file.open("rb+") as content:
        end = content.seek(0, os.SEEK_END)
        start = max(0, end - (1 << 20))
        content.seek(start)
        lines = content.read().split(b"\n")
        if lines[-1]:
            content.truncate(end - len(lines[-1]))
    return int(json.loads(lines[-2])["number"]) if len(lines) > 1 else 0
