"""Whether the configuration's file still says what is in force: somebody may have changed it, and not restarted the bridge."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ...adapters.clock import uptime
from .changes import Changes, changes

if TYPE_CHECKING:
    from . import Config

NOTHING = Changes((), ())


_STANDS = 10.0
"""Seconds for which an answer stands while the file is the same: what it names, such as a secret's file, may change as well."""


class _Compared(NamedTuple):
    at: float
    config: Config
    mark: tuple[int, ...]
    found: Changes | None


class InForce:
    """Compares a configuration with its file, which is read after it, or the configuration, has changed, and now and then.

    For any thread: at worst two read it at once.
    """

    def __init__(self) -> None:
        self._last: _Compared | None = None

    def since(self, config: Config) -> Changes | None:
        """What the file says by now that `config`, which was read from it, does not. None where it cannot be used: `check-config` says why."""
        mark = _mark(config)
        last = self._last
        now = uptime()
        # One that cannot be used is read each time: what it names may be back.
        if last is None or last.config is not config or last.mark != mark or last.found is None or now - last.at >= _STANDS:
            last = self._last = _Compared(now, config, mark, _compared(config) if config.file else NOTHING)
        return last.found


def _mark(config: Config) -> tuple[int, ...]:
    """By what a change of the file is noticed; empty where there is none, or no more."""
    if config.file is not None:
        with suppress(OSError):
            found = config.file.stat()
            return found.st_mtime_ns, found.st_size, found.st_ino
    return ()


def _compared(config: Config) -> Changes | None:
    from .file import load  # noqa: PLC0415 - needed for a file that was changed only

    with suppress(Exception):  # a file that nobody thought of must not end what asks, as little as a reload
        return changes(config, load(config.file))
    return None
