"""Which routes are paused. Survives a restart: a route paused at three in the morning must not resume after a crash."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import msgspec

from ...core.store import StoreError
from ..durable import replace_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Pauses:
    """A set of route names, kept in `file`. Lanes look at `routes`; `resumed` is called when one may go on. Any thread.

    Raises StoreError if the file cannot be read as such a set, or cannot be written: then nothing has changed.
    """

    def __init__(self, file: Path, resumed: Callable[[], None]) -> None:
        self._file = file
        self._resumed = resumed
        self._lock = threading.Lock()
        self.routes = _kept(file) if file.exists() else set()

    def pause(self, route: str) -> None:
        """Publish no more of this route; durable on return."""
        with self._lock:
            self._save(self.routes | {route})
            self.routes.add(route)

    def resume(self, route: str) -> None:
        """Publish again; durable on return."""
        with self._lock:
            self._save(self.routes - {route})
            self.routes.discard(route)
        self._resumed()

    def _save(self, routes: set[str]) -> None:
        try:
            self._write(routes)
        except OSError as error:
            with contextlib.suppress(OSError):  # it may have taken its place already, and only not be durable
                self._write(self.routes)
            raise StoreError(f"which routes are paused cannot be written, so nothing was changed: {error}") from error

    def _write(self, routes: set[str]) -> None:
        replace_text(self._file, msgspec.json.encode(sorted(routes)).decode())


def _kept(file: Path) -> set[str]:
    try:
        return set(msgspec.json.decode(file.read_bytes(), type=list[str]))
    except ValueError as error:  # no JSON, no such list, or no UTF-8
        raise StoreError(f"{file} does not tell which routes are paused ({error}): write them there as a JSON list, [] for none") from error
