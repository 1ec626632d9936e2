"""Ledgers of a million events with planted faults: three bridges that share the work, a day, four destinations of which one takes most of it."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from delaybridge.bridge.ledger.files import arrow_schema
from delaybridge.bridge.ledger.observed import SCHEMA
from delaybridge.core.durations import HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY = 24 * HOUR_MS
T0 = 1_750_032_000_000
"""A midnight."""

BRIDGES = ("north", "south", "west")
DESTINATIONS = ("orders",) * 7 + ("bills", "mails", "reports")
FAULTS = ("missing", "duplicated", "early", "late", "never_scheduled", "not_observed", "unwanted", "unrecorded")
EACH = 7
"""So many of each fault."""


class Event(NamedTuple):
    name: str
    at: int
    id: str
    due: int
    taken: int


def make(folder: Path, messages: int, *, faults: bool = True) -> dict[str, set[str]]:
    """Write `folder`/BRIDGE and `folder`/seen; returns the ids with each fault."""
    dice = random.Random(7)
    planted = dict(zip(dice.sample(range(messages), EACH * len(FAULTS)), FAULTS * EACH, strict=True)) if faults else {}
    expected: defaultdict[str, set[str]] = defaultdict(set)
    events: dict[str, list[tuple[Event, str]]] = {name: [] for name in BRIDGES}
    seen: list[tuple[Event, str]] = []
    for number in range(messages):
        destination, due = DESTINATIONS[number % 10], T0 + number * DAY // messages
        fault = planted.get(number, "")
        told = list(_message(f"m-{number:08d}", due, fault, dice))
        for event in told:
            if event.name != "observed":
                events[_writer(number, event)].append((event, destination))
        seen += [(event, destination) for event in told if event.name == "observed"]
        if fault:
            expected[fault].add(f"m-{number:08d}")
    for name, rows in events.items():
        rows.append((Event("scheduled", T0 + 2 * DAY, "quiet", T0 + 9 * DAY, T0 + 2 * DAY), "orders"))
        _write_ledger(folder / name, name, rows)
    _write_seen(folder / "seen", seen)
    return dict(expected)


def _writer(number: int, event: Event) -> str:
    """Which bridge has this of a message in its ledger: of two thirds the end is in another one than the begin."""
    return BRIDGES[(number if event.name == "scheduled" else number + number // 3) % 3]


def _message(id_: str, due: int, fault: str, dice: random.Random) -> Iterator[Event]:
    taken = due - dice.choice((500, 4_000, 60_000, 3_000_000))
    late = {"early": -5, "late": 60_000}.get(fault, dice.choice((1, 2, 3, 5, 40)))
    if fault != "never_scheduled":
        yield Event("scheduled", taken, id_, due, taken)
    if fault == "unwanted":
        yield Event("cancelled", due - 1, id_, due, taken)
    elif fault not in {"missing", "unrecorded"}:
        yield Event("delivered", due + late, id_, due, taken)
    sightings = {"missing": 0, "not_observed": 0, "duplicated": 2}.get(fault, 1)
    for _ in range(sightings):
        yield Event("observed", due + max(late, 0) + 2, id_, due, taken)


def _write_ledger(folder: Path, bridge: str, rows: list[tuple[Event, str]]) -> None:
    folder.mkdir(parents=True)
    size = -(-len(rows) // 4)
    for first in range(0, len(rows), size):
        part = rows[first : first + size]
        count = len(part)
        columns: dict[str, object] = {
            "event": [event.name for event, _ in part],
            "event_time": [event.at for event, _ in part],
            "id": [event.id for event, _ in part],
            "due_time": [event.due for event, _ in part],
            "taken_time": [event.taken for event, _ in part],
            "lateness_ms": [event.at - event.due if event.name == "delivered" else None for event, _ in part],
            "destination": [destination for _, destination in part],
            "sequence": range(first + 1, first + count + 1),
        }
        same = {"occurrence": 1, "kind": "once", "dialect": "own", "route": "r", "source_broker": "k", "source": "in",
                "destination_broker": "kafka", "attempts": 1, "reason": "", "size_bytes": 100, "bridge": bridge}  # fmt: skip
        arrays = [pa.array(columns.get(field.name) or [same[field.name]] * count, field.type) for field in arrow_schema()]
        pq.write_table(pa.table(arrays, schema=arrow_schema()), folder / f"{bridge}-{first:09d}.parquet", compression="zstd")


def _write_seen(folder: Path, rows: list[tuple[Event, str]]) -> None:
    folder.mkdir(parents=True)
    count = len(rows)
    columns: dict[str, object] = {
        "event_time": [event.at for event, _ in rows],
        "id": [event.id for event, _ in rows],
        "due_time": [event.due for event, _ in rows],
        "destination": [destination for _, destination in rows],
    }
    same = {"event": "observed", "occurrence": 1, "destination_broker": "kafka", "size_bytes": 100}
    arrays = [pa.array(columns.get(field.name) or [same[field.name]] * count, field.type) for field in SCHEMA]
    pq.write_table(pa.table(arrays, schema=SCHEMA), folder / "observed.parquet", compression="zstd")
