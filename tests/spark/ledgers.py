"""Ledgers and observations as the daemon and `delaybridge observe` write them, made by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from delaybridge.bridge.ledger.files import table_of
from delaybridge.bridge.ledger.observed import SCHEMA
from delaybridge.core.durations import HOUR_MS
from delaybridge.core.ledger import Event, Row
from delaybridge.spark_jobs.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterable

T0 = 1_750_000_000_000 // HOUR_MS * HOUR_MS
"""The begin of the window that the tests look at."""

QUESTION = Question(since=T0, until=T0 + 2 * HOUR_MS, as_of=T0 + 30 * HOUR_MS, sla=1_000, skew=50, grace=60_000)
QUIET = T0 + 5 * HOUR_MS
"""Long after the window: a bridge that writes a row then has written everything before."""


@dataclass
class Bridge:
    """Writes the ledger of one bridge, row by row."""

    name: str = "b"
    destination: str = "orders"
    rows: list[Row] = field(default_factory=list)

    def row(self, event: Event, at: int, id_: str, due: int, *, occurrence: int = 1, taken: int | None = None, **more: Any) -> None:
        told: dict[str, Any] = {
            "kind": "once", "dialect": "own", "route": "r", "source_broker": "kafka", "source": "in", "destination_broker": "kafka",
            "destination": self.destination, "lateness_ms": at - due if event == "delivered" else None,
            "taken_time": due - 10_000 if taken is None else taken,
        }  # fmt: skip
        self.rows.append(Row(event, at, id_, occurrence, due, **{**told, **more}, bridge=self.name, sequence=len(self.rows) + 1))

    def scheduled(self, id_: str, due: int, **more: Any) -> None:
        self.row("scheduled", due - 10_000, id_, due, **more)

    def delivered(self, id_: str, due: int, late: int = 3, **more: Any) -> None:
        self.row("delivered", due + late, id_, due, **more)

    def both(self, id_: str, due: int, late: int = 3, **more: Any) -> None:
        """Scheduled and delivered."""
        self.scheduled(id_, due, **more)
        self.delivered(id_, due, late, **more)

    def quiet(self, at: int = QUIET) -> None:
        """A message far outside of the window, which tells that all before is written."""
        self.row("scheduled", at, f"quiet-{self.name}", at + 100 * HOUR_MS, kind="once")

    def write(self, root: Path, *, files: int = 1) -> str:
        """Parquet files below `root`; returns its path."""
        size = -(-len(self.rows) // files)
        for number in range(files):
            write_ledger(root, f"{self.name}-{number}", self.rows[number * size : (number + 1) * size])
        return str(root)


def write_ledger(root: Path, name: str, rows: Iterable[Row]) -> None:
    folder = root / "date=2025-06-15" / "hour=15"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table_of(list(rows)), folder / f"{name}.parquet")


@dataclass
class Observer:
    """What arrived."""

    destination: str = "orders"
    rows: list[dict[str, Any]] = field(default_factory=list)

    def saw(self, id_: str | None, due: int | None, late: int = 5, occurrence: int | None = 1, destination: str | None = None) -> None:
        told = {
            "event": "observed",
            "event_time": (due or T0) + late,
            "id": id_,
            "occurrence": occurrence if id_ else None,
            "due_time": due,
        }
        place = {"destination_broker": "kafka", "destination": destination or self.destination, "size_bytes": 1}
        self.rows.append({**told, **place})

    def saw_all(self, bridge: Bridge) -> None:
        """Everything that this bridge delivered so far."""
        for row in bridge.rows:
            if row.event == "delivered":
                self.saw(row.id, row.due_time, (row.lateness_ms or 0) + 2, row.occurrence, row.destination)

    def write(self, root: Path) -> str:
        root.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(self.rows, schema=SCHEMA), root / "observed.parquet")
        return str(root)
