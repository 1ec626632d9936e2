"""Which number a store's next ledger row gets if another store wrote the ledger so far: this one is new, from a backup, or another bridge's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from .. import downtimes
from ..config.file import ConfigError
from . import marks
from .files import highest, reach

if TYPE_CHECKING:
    from pathlib import Path

    from ...core.ledger import BridgeNames
    from ..config import Config

log = structlog.get_logger()


def next_row(config: Config, row: int, before: BridgeNames) -> int:
    """The number for the store's next ledger row: `row`, or a higher one where files hold rows up to there.

    `before` says which bridge wrote the store's latest rows. ConfigError where the ledger has rows of another bridge under this one's name. The names of all
    files are read only where the store is new.
    """
    new, root, name = row == 1, config.ledger_path, config.bridge
    last = highest(root, name, whole=new)
    if not new and last and name != before.bridge and not _is_ours(root, name, row, before):
        others = f"the ledger in {root} has rows up to number {last} of another bridge that is called {name!r}"
        ours = f"and this store those of {before.bridge!r}, up to {row - 1}"
        raise ConfigError([f"{others}, {ours}: give this one a `bridge` name of its own, or another `ledger.path`"])
    if last < row:
        return row
    ledger, rows_only = {"ledger": str(root), "bridge": name, "rows": last}, config.store.kind == "level_queues"
    if new:
        waited = "" if rows_only else "what waited there and "
        meaning = f"the store is new: the one that wrote these rows is lost, with {waited}rows in no file yet"
        log.warning("ledger_without_its_store", **ledger, meaning=meaning)
    else:
        downtimes.forget(config.store.path)  # before the store goes on: whoever opens it next cannot tell any more
        messages = "what has ended since is delivered again, and what was taken in since is lost"
        lost = "rows are lost that were in no file yet" if rows_only else messages
        log.warning("ledger_ahead_of_its_store", **ledger, meaning=f"the store is an older one, as from a backup: {lost}")
    return last + 1


def _is_ours(root: Path, name: str, row: int, before: BridgeNames) -> bool:
    """Whether the rows under a name are of this store, whose next one is `row`: it had that name once, or it is from before it got it."""
    had = [end for (one, _), end in marks.lineage(root, before).items() if one == name]
    return (bool(had) and not reach(root, name, max(had))) or row <= marks.known(root, name).get((before.bridge, before.since), 0)
