"""What the ledger's files and those of what was observed have in common: Parquet in `date=YYYY-MM-DD/hour=HH` (UTC), and the marks in `_reach`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ..durable import put_in_place, replace_text, sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa


def write(root: Path, hour: int, name: str, tables: Sequence[pa.Table]) -> None:
    """Write one file, of the hour with this number since the epoch. Durable on return, with its folders: a mark that is written then tells the truth.

    OSError where it cannot be written; it may be there all the same, and whole.
    """
    import pyarrow as pa  # noqa: PLC0415 - a third of a second that the start need not wait for
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    file = path(root, hour, name)
    folder = file.parent
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".{name}.tmp"
    pq.write_table(pa.concat_tables(tables), unfinished, compression="zstd")
    put_in_place(unfinished, file)
    for directory in folder.parents[:3]:  # each may have got an entry: the day, `root`, and what that is in
        sync_directory(directory)


def path(root: Path, hour: int, name: str) -> Path:
    """Where the file of that name is whose rows are of the hour with this number since the epoch."""
    return root / datetime.fromtimestamp(hour * 3600, UTC).strftime("date=%Y-%m-%d/hour=%H") / name


def mark_of(root: Path, writer: str) -> Path:
    """Where the mark of a bridge or an observer is: what its files hold by now."""
    return root / "_reach" / f"{writer}.json"


def write_mark(root: Path, writer: str, told: Mapping[str, object]) -> None:
    """Replace the mark; durable on return. The ledger may have been moved away, or be another one now: its folder is made. OSError where that fails."""
    mark = mark_of(root, writer)
    mark.parent.mkdir(parents=True, exist_ok=True)
    replace_text(mark, json.dumps(told))


def schema(columns: Iterable[tuple[str, str, bool]]) -> pa.Schema:
    """Columns, each with its name, its type and whether it may be null, as an Arrow schema. `timestamp_ms` is a UTC instant in milliseconds."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    types = {"string": pa.string(), "int64": pa.int64(), "bool": pa.bool_(), "timestamp_ms": pa.timestamp("ms", tz="UTC")}
    return pa.schema([pa.field(name, types[kind], nullable) for name, kind, nullable in columns])
