"""Exports of pending messages as the daemon writes them, and what the bridge's own code would do with these."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fake_control import FakeControl

from delaybridge.bridge.cli.parquet import write_parquet
from delaybridge.bridge.http.streams import backlog
from delaybridge.core.downtimes import Downtimes
from delaybridge.core.message import message
from delaybridge.core.recurrence import decision, following
from delaybridge.core.schedule import Schedule
from delaybridge.core.store import Pending, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delaybridge.bridge.views import Status

NOW = 1_750_000_000_000 // 60_000 * 60_000
"""When exports are written here; a full minute."""

STARTED = NOW - 3_600_000
DOWN = Downtimes(((0, STARTED),))


@dataclass
class Exported(FakeControl):
    """One bridge, and what is pending in it."""

    name: str = "b"
    at: int = NOW
    down: Downtimes = DOWN
    records: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.downtimes = self.down

    def add(self, schedule: Schedule, address: str = "orders", id_: str = "", size: int = 100) -> None:
        name = id_ or f"m{len(self.records)}"
        self.records.append(Record(message=message(b"x" * size, {}), schedule=schedule, lane="kafka", address=address, id=name))

    def status(self) -> Status:
        from msgspec.structs import replace  # noqa: PLC0415 - one use

        return replace(super().status(), bridge=self.name, now=self.at)

    def pending(self) -> Iterator[Pending]:
        yield from (Pending(record, "waiting") for record in self.records)

    def write(self, folder: Path) -> str:
        pieces: list[bytes] = []
        backlog(self, pieces.append)
        write_parquet(iter(pieces), folder / f"{self.name}.parquet", lambda _: None)
        return str(folder / f"{self.name}.parquet")


def by_the_bridge(schedule: Schedule, since: int, until: int, exported: int = NOW, down: Downtimes = DOWN) -> list[int]:
    """The minutes in which the bridge's code delivers this message, step by step; what is overdue in the first."""
    found: list[int] = []
    upcoming: Schedule | None = schedule
    while upcoming is not None and upcoming.due < until:
        handed_out = max(upcoming.due, exported)
        if decision(upcoming, down, handed_out) == "deliver" and (upcoming.due < exported or upcoming.due >= since):
            found.append((since if upcoming.due < exported else upcoming.due) // 60_000 * 60_000)
        upcoming = following(upcoming, handed_out, down)
    return found
