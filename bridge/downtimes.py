"""Since when, and when before, no run of this bridge was alive: from the ledger's last mark to the next beginning. Kept beside the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import structlog

from ..core.downtimes import Downtimes
from .ledger.durable import replace_text
from .ledger.files import marked

if TYPE_CHECKING:
    from pathlib import Path

    from ..core.time_index import TimeIndex
    from .config import Config

log = structlog.get_logger()


def at_the_start(config: Config, journal: TimeIndex, started: int) -> Downtimes:
    """All downtimes up to this beginning, durably noted for the runs that follow.

    Where it is not known what was before, as with a new store, all that is due before this beginning counts as missed, as if the bridge had been
    down since ever. So it does where the store is older than the ledger's mark: it was restored, and what happened since is not in it.
    """
    file = config.store.path / "downtimes.json"
    known, mark = _kept(file), marked(config.ledger_path, config.bridge)
    begin = 0 if known is None or mark is None or mark.sequence >= journal.outbox_start() else mark.at_ms
    downtimes = (known or Downtimes()).then(begin, started)
    try:
        replace_text(file, msgspec.json.encode(downtimes.spans).decode())
    except OSError as error:  # no space, perhaps: what is delivered gives it back
        log.warning("downtimes_not_noted", path=str(file), error=str(error), meaning="the next run does not know when this one began")
    return downtimes


def _kept(file: Path) -> Downtimes | None:
    try:
        return Downtimes(msgspec.json.decode(file.read_bytes(), type=tuple[tuple[int, int], ...]))
    except (OSError, msgspec.DecodeError) as error:
        if not isinstance(error, FileNotFoundError):
            log.warning("downtimes_unreadable", path=str(file), error=str(error), meaning="all that fell due before now counts as missed")
        return None
