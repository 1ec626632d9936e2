"""Runs of a job that write tables into one folder, and the file there that names the tables of the latest result.

A run writes its tables under a name of its own, and then replaces the file: that is the moment at which its result holds. After that it removes the tables
that the file named before. Other tables stay for a day: another run may be writing them, and the file will name them when it is done. After a day they are
what a run left that died.
"""

from __future__ import annotations

import json
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from .hadoop import Folder

PATIENCE = timedelta(days=1)
_BEGUN = "%Y%m%dT%H%M%SZ"


def _name() -> str:
    return f"{time.strftime(_BEGUN, time.gmtime())}-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class Run:
    """One run. `tables` is how the names of all runs' folders begin, such as `tables-`; `file` names the tables that hold."""

    folder: Folder
    file: str
    tables: str
    own: str = field(default_factory=_name)

    def at(self, table: str) -> str:
        """The URL of a table of this run."""
        return self.folder.at(f"{self._place}/{table}")

    @property
    def _place(self) -> str:
        return f"{self.tables}{self.own}"

    def writing(self) -> AbstractContextManager[None]:
        """While this run writes: where that fails, its tables go again."""
        return self.folder.clearing(self._place)

    def hold(self, told: dict[str, Any]) -> None:
        """Make `told`, whose `tables` name this run's, the file: from now on they hold. Then remove what nobody needs any more."""
        before = self._held()
        self.folder.replace(self.file, json.dumps(told, indent=2) + "\n")
        for name in self.folder.names():
            if name.startswith(self.tables) and name != self._place and (name == before or self._is_old(name)):
                self.folder.remove(name)

    def _held(self) -> str | None:
        """The folder of the tables that the file names now; None where there is no file, or none of a run."""
        with suppress(ValueError, LookupError, TypeError, AttributeError):  # no report: it will be one
            places = json.loads(self.folder.read(self.file))["tables"].values() if self.file in self.folder.names() else ()
            return next((part for place in places for part in reversed(place.split("/")) if part.startswith(self.tables)), None)
        return None

    def _is_old(self, name: str) -> bool:
        """Whether it was begun long before this run; a name that does not say when was given by an earlier version."""
        try:
            return _begun(name.removeprefix(self.tables)) < _begun(self.own) - PATIENCE
        except ValueError:
            return True


def _begun(run: str) -> datetime:
    """When a run was begun. Raises ValueError where its name does not say so."""
    return datetime.strptime(run.partition("-")[0], _BEGUN).replace(tzinfo=UTC)
