"""A bridge's mark, `_reach/<bridge>.json`: how far its files reach, and which names its ledger had before.

An idle bridge keeps renewing it: otherwise it could not be told from a dead one. The audit reads it (`spark_jobs/reading/marks.py`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import msgspec

from ...core.durations import LATEST_INSTANT
from . import parquet

if TYPE_CHECKING:
    from pathlib import Path

    from ...core.ledger import BridgeNames


class Mark(msgspec.Struct, frozen=True):
    """The rows of `bridge`, which begin with number `first`, are in files up to `sequence`, and nothing else happened until `at_ms`.

    Rows before `first` are those of `earlier` names, the latest first, each with the number at which it began.
    """

    bridge: str
    sequence: int
    at_ms: Annotated[int, msgspec.Meta(ge=0, le=LATEST_INSTANT)]
    first: int = 1
    earlier: tuple[tuple[str, int], ...] = ()

    @property
    def names(self) -> tuple[tuple[str, int], ...]:
        """All of them, the present one first."""
        return ((self.bridge, self.first), *self.earlier)

    def write(self, root: Path) -> None:
        """Durable on return. OSError where it cannot be written."""
        parquet.write_mark(root, self.bridge, msgspec.to_builtins(self))


def read(root: Path, bridge: str) -> Mark | None:
    """None where there is none, or it is not ours."""
    try:
        return msgspec.json.decode(parquet.mark_of(root, bridge).read_bytes(), type=Mark)
    except (OSError, ValueError):  # ValueError: no JSON, no mark, or no UTF-8
        return None


def of(named: BridgeNames, there: Mark | None, sequence: int, at: int) -> Mark:
    """The mark of a ledger that goes up to row `sequence`, under this name.

    Where the store is a new one, or was put back from a backup, the mark that is `there` knows more of what was before.
    """
    mark = Mark(named.bridge, sequence, at, named.since, tuple((one.bridge, one.since) for one in named.earlier()))
    if there is not None and (not mark.earlier or there.first > mark.first):
        return msgspec.structs.replace(mark, first=there.first, earlier=there.earlier)
    return mark


def lineage(root: Path, named: BridgeNames) -> dict[tuple[str, int], int]:
    """Where the former names of a ledger end: by each name and its first row, the first row of the name after it. By `named`, and by the marks."""
    return _followed(root, tuple((one.bridge, one.since) for one in (named, *named.earlier())))


def known(root: Path, bridge: str) -> dict[tuple[str, int], int]:
    """The same of the ledger that is called `bridge` now."""
    mark = read(root, bridge)
    return _followed(root, mark.names) if mark else {}


def _followed(root: Path, names: tuple[tuple[str, int], ...]) -> dict[tuple[str, int], int]:
    """Follow the names of a ledger through the marks of all that are found on the way."""
    found: dict[tuple[str, int], int] = {}
    asked, seen = [names], set[str]()
    while asked:
        chain = asked.pop()
        found = {older: first for (_, first), older in pairwise(chain)} | found
        for name in {name for name, _ in chain} - seen:
            seen.add(name)
            mark = read(root, name)
            asked += [mark.names] if mark else []
    return found
