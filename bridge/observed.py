"""What arrived at a destination, as Parquet files beside the ledger's: the audit compares the two.

Columns are the ledger's own, less those that only the bridge knows; `event` is `observed`, `event_time` when it was seen here, `size_bytes` that of
the body. `id`, `occurrence` and `due_time` are null for messages that no bridge delivered. Files stand in `date=…/hour=…` of the event, each
written whole, synced and renamed.

`_reach/observed-<observer>.json` is the observer's mark: at `at_ms` nothing waited for it, and all that it saw until then is in files. What was delivered
later and is not there is no loss: the observer may be behind.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from .durable import put_in_place
from .ledger_files import HOUR_MS, arrow_schema

if TYPE_CHECKING:
    from pathlib import Path

_COLUMNS = ("event", "event_time", "id", "occurrence", "due_time", "destination_broker", "destination", "size_bytes")
_NULLABLE = frozenset({"id", "occurrence", "due_time"})
SCHEMA = pa.schema([arrow_schema().field(name).with_nullable(name in _NULLABLE) for name in _COLUMNS])
ROWS_PER_FILE = 100_000
"""Bounds the memory that an observation takes."""

INTERVAL_MS = 60_000
"""A file is written at least so often, where something arrived."""


class ObservedFiles:
    """Collects deliveries at one address and writes them below `root`. One thread. `observer` tells apart the files of several observations."""

    def __init__(self, root: Path, broker: str, address: str, observer: str) -> None:
        self._root = root
        self._broker = broker
        self._address = address
        self._observer = observer
        self._hours: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
        self._files = 0
        self._next_flush: int | None = None
        self._caught_up: int | None = None

    def add(self, delivery: dict[str, Any]) -> None:
        """One delivery as the API tells of it."""
        row = {
            "event": "observed",
            "event_time": delivery["at"],
            "id": delivery.get("id"),
            "occurrence": delivery.get("occurrence"),
            "due_time": delivery.get("due"),
            "destination_broker": self._broker,
            "destination": delivery["address"],
            "size_bytes": _body_bytes(delivery),
        }
        self._hours[delivery["at"] // HOUR_MS].append(row)

    def caught_up(self, now: int) -> None:
        """Everything that has arrived was added: nothing waited at `now` (epoch ms). The next flush says so in the mark."""
        self._caught_up = now

    def flush_if_due(self, now: int) -> None:
        """Write where it is time, also if nothing arrived, or where enough has come together."""
        if self._next_flush is None:
            self._next_flush = now + INTERVAL_MS
        if now >= self._next_flush or sum(map(len, self._hours.values())) >= ROWS_PER_FILE:
            self.flush()
            self._next_flush = now + INTERVAL_MS

    def flush(self) -> None:
        """Write what there is. OSError where that fails; the rows that are in no file are kept."""
        for hour in list(self._hours):
            self._write(self._root / datetime.fromtimestamp(hour * 3600, UTC).strftime("date=%Y-%m-%d/hour=%H"), self._hours[hour])
            del self._hours[hour]
        self._mark()

    def _mark(self) -> None:
        if self._caught_up is None:
            return
        folder, name = self._root / "_reach", f"observed-{self._observer}"
        unfinished = folder / f".{name}.tmp"
        folder.mkdir(parents=True, exist_ok=True)
        told = {"observer": self._observer, "broker": self._broker, "address": self._address, "at_ms": self._caught_up}
        unfinished.write_text(json.dumps(told))
        put_in_place(unfinished, folder / f"{name}.json")

    def _write(self, folder: Path, rows: list[dict[str, Any]]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"observed-{self._observer}-{self._files:06d}.parquet"
        self._files += 1
        unfinished = folder / f".{name}.tmp"
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), unfinished, compression="zstd")
        put_in_place(unfinished, folder / name)


def _body_bytes(delivery: dict[str, Any]) -> int:
    if "body_base64" in delivery:
        return len(base64.b64decode(delivery["body_base64"]))
    return len((delivery.get("body") or "").encode())
