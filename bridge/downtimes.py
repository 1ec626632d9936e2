"""When this bridge did not run: from the last sign of life of one run to the beginning of the next. Kept in a file beside the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import structlog

from ..core.downtimes import NONE, Downtimes
from .durable import replace_text, sync_directory
from .workers import Failed, Worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ..adapters.clock import Clock

log = structlog.get_logger()

_NAME = "downtimes.json"

SIGN_EVERY = 10.0
"""Seconds: after a kill, what fell due since the last sign of life counts as missed."""


class _Note(msgspec.Struct, frozen=True):
    """What stands in the file. At `alive` (epoch ms) the bridge ran, and the store's rows up to and without `row` were in files of the ledger."""

    downtimes: tuple[tuple[int, int], ...]
    alive: int
    row: int


class DowntimeFile:
    """The downtimes that are `known`, and their file. All parts of a bridge share one.

    Any thread may look at `known`, which is changed as a whole, and call anything.
    """

    def __init__(self, file: Path, known: Downtimes) -> None:
        self.known = known
        self._file = file
        self._written = True

    def set_back(self, now: int) -> None:
        """The clock was set back to this: nothing that falls due from now on is missed."""
        self.known = self.known.until(now)

    def alive(self, now: int, row: int) -> None:
        """Give a sign of life: durable on return, or told in the log that it is not. `row` as `Unfiled.first` says."""
        self.set_back(now)  # an idle bridge may not have noticed
        note = _Note(self.known.spans, now, row)
        try:
            replace_text(self._file, msgspec.json.encode(note).decode())
        except OSError as error:  # no space, perhaps: what is delivered gives it back
            if self._written:
                meaning = "a restart before this works counts as missed what fell due since the last sign of life that was written"
                log.warning("sign_of_life_not_written", path=str(self._file), error=str(error), meaning=meaning)
            self._written = False
        else:
            self._written = True


class AliveWorker(Worker):
    """Gives a sign of life every ten seconds, and at the end; `row` as `DowntimeFile.alive` wants it.

    A thread of its own: what a large store gives back, and a ledger with a backlog, keep others busy for longer.
    """

    def __init__(self, down: DowntimeFile, row: Callable[[], int], clock: Clock, failed: Failed) -> None:
        super().__init__("alive", failed)
        self._down = down
        self._row = row
        self._clock = clock

    def run(self) -> None:
        """Until stopped."""
        while not self.stopping.wait(SIGN_EVERY):
            self._down.alive(self._clock(), self._row())
        self._down.alive(self._clock(), self._row())


def at_the_start(store: Path, started: int, row: int) -> DowntimeFile:
    """What is known of the store in this directory, whose ledger goes on with row `row`; notes the beginning of this run for later ones.

    If nothing is known of earlier runs, as with a new store, all that is due before this beginning counts as missed. The same if the store is older than the
    last sign of life: it was restored, and what happened since is not in it. If the clock is behind the last sign of life, this downtime is not known, and
    what fell due in it is delivered.
    """
    file = store / _NAME
    note = _read(file)
    begin = 0 if note is None or note.row > row else note.alive
    before = NONE if note is None else Downtimes(note.downtimes)
    noted = DowntimeFile(file, before.then(begin, started))
    noted.alive(started, row)
    return noted


def forget(store: Path) -> None:
    """The store was replaced by an older one: what the file says is of another one. Durable on return. OSError where it cannot be removed."""
    (store / _NAME).unlink(missing_ok=True)
    sync_directory(store)


def _read(file: Path) -> _Note | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Note)
    except (OSError, msgspec.DecodeError) as error:
        if not isinstance(error, FileNotFoundError):
            log.warning("downtimes_unreadable", path=str(file), error=str(error), meaning="all that fell due before now counts as missed")
        return None
