"""What a broker loads from its jars, as Java keeps it (class-data sharing, JEP 350). It starts in half the time; without, or with another Java, as ever."""

from __future__ import annotations

import shutil
import signal
from typing import TYPE_CHECKING

from brokers.private import PrivateProcess

if TYPE_CHECKING:
    from pathlib import Path

NAME = "classes.jsa"
"""Of the file, beside the jars."""


def sharing(jars: Path) -> list[str]:
    """How Java is told of them."""
    kept = jars / NAME
    return [f"-XX:SharedArchiveFile={kept}"] if kept.exists() else []


class Dumping(PrivateProcess):
    """What a broker is besides, to write down its classes beside its `jars` when it stops."""

    jars: Path

    def sharing(self) -> list[str]:
        return [f"-XX:ArchiveClassesAtExit={self._dumped}"]

    @property
    def _dumped(self) -> Path:
        return self.directory / NAME

    def stop(self) -> None:
        self._end(signal.SIGTERM)  # it dumps nothing when it is killed
        if self._dumped.exists():
            shutil.move(self._dumped, self.jars / NAME)
        super().stop()
