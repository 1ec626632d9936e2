"""The ledger on disk: `date=YYYY-MM-DD/hour=HH/<bridge>-<first>-<last>.parquet` (UTC, by event time), each file written whole, each row once.

A flush first notes in the store which rows it is going to write, then writes and renames the files, then forgets the rows and the note in one write.
Each file is named by the first and the last row that its bridge has in the flush: it shall not seem to hold those of the bridge's other names. After a crash
the noted range is written again under the same names: no row is lost, none stands twice.

How far they reach is told in a mark beside them, see `marks`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import structlog

from ...core.durations import HOUR_MS
from ...core.ledger import COLUMNS, Row
from . import marks, parquet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from ...core.time_index.unfiled import Unfiled
    from .marks import Mark

log = structlog.get_logger()

ROWS_PER_FLUSH = 50_000
"""Bounds the memory that one flush takes; what is left goes with the next."""

_DAYS = 2
"""So many of the ledger's latest folders are looked into in any case: a clock may have been set back since the mark."""

ROWS_AT_ONCE = 250
"""Rows that are read and turned into columns in one go: a fraction of a millisecond, for which a message that falls due may wait."""


class LedgerFiles:
    """Moves the store's unfiled rows into Parquet files below `root`. One thread; `rest` is called between two portions of work."""

    def __init__(self, root: Path, unfiled: Unfiled, bridge: str, rest: Callable[[], object] = lambda: None) -> None:
        self.root = root
        self._unfiled = unfiled
        self._bridge = bridge
        self._rest = rest
        self._continued = False
        self._there = marks.read(root, bridge)

    def flush(self) -> int:
        """Write what there is, at most `ROWS_PER_FLUSH` rows; returns how many. OSError where the files cannot be written: nothing is forgotten."""
        intent = self._unfiled.intent()
        tables, spans = self._gather(intent[1] if intent else None)
        if not spans:
            return 0
        first, last = min(first for first, _ in spans.values()), max(last for _, last in spans.values())
        if intent is None:
            self._unfiled.intend(first, last)
        for (bridge, hour), parts in tables.items():
            name = _name(bridge, first, last)  # as earlier versions named it: what one of them wrote before a crash must not stand twice
            if intent is None or not parquet.path(self.root, hour, name).exists():
                name = _name(bridge, *spans[bridge])
            parquet.write(self.root, hour, name, parts)
        self._unfiled.forget(last)
        return last - first + 1

    def _gather(self, last: int | None) -> tuple[dict[tuple[str, int], list[pa.Table]], dict[str, tuple[int, int]]]:
        """What the files will hold, by bridge and hour, and the first and the last row of each bridge. For `last` see `_pages`."""
        tables: defaultdict[tuple[str, int], list[pa.Table]] = defaultdict(list)
        spans: dict[str, tuple[int, int]] = {}
        for rows in self._pages(last):
            for (bridge, hour), part in by_bridge_and_hour(rows).items():
                tables[bridge, hour].append(table_of(part))
                least, most = spans.get(bridge, (part[0].sequence, 0))
                spans[bridge] = min(least, part[0].sequence), max(most, part[-1].sequence)
            self._rest()
        return tables, spans

    def _pages(self, last: int | None) -> Iterator[list[Row]]:
        """The oldest rows, `ROWS_AT_ONCE` each: up to and with `last` where a crash left that noted, else as many as one flush takes."""
        start, end = 0, last
        while rows := self._unfiled.rows(ROWS_AT_ONCE, start):
            if end is None:
                end = rows[0].sequence + ROWS_PER_FLUSH - 1
            page = [row for row in rows if row.sequence <= end]
            if page:
                yield page
            if len(page) < len(rows):
                return
            start = rows[-1].sequence + 1

    def flush_all(self) -> int:
        """Write everything that is there when it begins; returns the number of rows. What comes meanwhile would make many small files."""
        total = self.flush() if self._unfiled.intent() else 0
        if not self._continued:
            self._continue()
        while (written := self.flush()) >= ROWS_PER_FLUSH:
            total += written
        return total + written

    def _continue(self) -> None:
        """Forget the rows that stand in files: the store is a copy, as a volume's snapshot, and the one that it is of has written them since."""
        last, first = highest(self.root, self._bridge), self._unfiled.first()
        if first <= last:
            log.info("ledger_rows_in_files_already", ledger=str(self.root), bridge=self._bridge, first=first, last=last)
            self._unfiled.forget(last)
        self._continued = True

    def mark(self, at: int) -> None:
        """Say that the files hold all that happened until `at`, an instant before the latest `flush_all` began. Silent before the bridge's first row.

        A bridge that got another name is told by the old one until a row bears the new one. OSError where the mark cannot be written.
        """
        last, named = self._unfiled.first() - 1, self._unfiled.named
        if last < named.since and named.before is not None:
            there = marks.read(self.root, named.before.bridge)
            if there is not None and there.sequence <= last:  # else another bridge has that name by now
                marks.of(named.before, there, last, at).write(self.root)
            return
        if self._there is not None or last >= named.since:
            marks.of(named, self._there, last, at).write(self.root)


def highest(root: Path, bridge: str, *, whole: bool = False) -> int:
    """The highest number of a bridge's rows that are, or were, in files; 0 where there are none.

    The mark alone does not say it: it is written after the files. But all rows in later files are of events after it. So the names of files are read from the
    day of the mark on, and of two days at least; or, if that is asked for, of the `whole` ledger. Two days with a file every ten seconds take some 40 ms.
    """
    mark = marks.read(root, bridge)
    return max([mark.sequence if mark else 0, *(last for _, _, last in _named(root, bridge, mark, whole=whole))])


def reach(root: Path, bridge: str, row: int) -> bool:
    """Whether files hold that row of a bridge, or a later one.

    Where a name says so, and begins before it, the rows are asked: earlier versions named a file by its whole flush, also where that had rows of other names.
    """
    mark = marks.read(root, bridge)
    late = ((file, first) for file, first, last in _named(root, bridge, mark) if last >= row)
    return bool(mark and mark.sequence >= row) or any(first >= row or _holds(file, row) for file, first in late)


def _named(root: Path, bridge: str, mark: Mark | None, *, whole: bool = False) -> Iterator[tuple[Path, int, int]]:
    """A bridge's files that `highest` looks at, each with the first and the last row that its name tells of."""
    name = re.compile(rf"{re.escape(bridge)}-(\d+)-(\d+)\.parquet")
    since = mark and datetime.fromtimestamp(mark.at_ms / 1000, UTC).strftime("date=%Y-%m-%d")
    folders = sorted(root.glob("date=*"), reverse=True)
    late = (folder for number, folder in enumerate(folders) if whole or number < _DAYS or (since and folder.name >= since))
    for file in (file for folder in late for file in folder.glob(f"hour=*/{bridge}-*.parquet")):
        if found := name.fullmatch(file.name):
            yield file, int(found[1]), int(found[2])


def _name(bridge: str, first: int, last: int) -> str:
    return f"{bridge}-{first:012d}-{last:012d}.parquet"


def _holds(file: Path, row: int) -> bool:
    """Whether a file has that row or a later one; what cannot be read is taken by its name."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - as below

    try:
        numbers = pq.ParquetFile(file).read(columns=["sequence"]).column("sequence")
    except (OSError, ValueError, LookupError):  # ValueError: no Parquet; LookupError: another column's
        return True
    return any(number >= row for number in numbers.to_pylist())


def by_bridge_and_hour(rows: Sequence[Row]) -> dict[tuple[str, int], list[Row]]:
    """Rows by the bridge whose they are, which may have got another name since, and by the hour of their event, counted from the epoch."""
    found: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        found[row.bridge, row.event_time // HOUR_MS].append(row)
    return found


def arrow_schema() -> pa.Schema:
    """The ledger's columns as an Arrow schema."""
    return parquet.schema(COLUMNS)


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Rows as an Arrow table in the ledger's schema."""
    import pyarrow as pa  # noqa: PLC0415 - a third of a second that the start need not wait for

    columns = zip(*(msgspec.structs.astuple(row) for row in rows), strict=True)
    schema = arrow_schema()
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema)
