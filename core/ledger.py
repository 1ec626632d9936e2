"""The ledger: one row for each thing that happened to a message. Declared once; the daemon writes it, Spark reads it.

Every message that a source handed over gives one `scheduled` row per occurrence and exactly one closing row, so that for any window
scheduled = delivered + cancelled + replaced + expired + dead_lettered + pending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterator

Event = Literal["scheduled", "delivered", "cancelled", "replaced", "expired", "dead_lettered"]
# `dead_letter` is what carries one to its destination, and in no row: see Record.is_carrier.
Kind = Literal["pass_through", "once", "period", "cron", "refused", "dead_letter"]

EVENTS: tuple[Event, ...] = ("scheduled", "delivered", "cancelled", "replaced", "expired", "dead_lettered")
CLOSING: tuple[Event, ...] = EVENTS[1:]


class Row(msgspec.Struct, array_like=True, frozen=True):
    """One ledger row. Times are epoch milliseconds, UTC. `sequence` rises by one with each row of a bridge and never repeats.

    `taken_time` is when the bridge took the message in: `due_time` less that is how long it was asked to wait, on every row of the message.
    """

    event: Event
    event_time: int
    id: str
    occurrence: int
    due_time: int
    kind: Kind
    dialect: str
    route: str
    source_broker: str
    source: str
    destination_broker: str
    destination: str
    lateness_ms: int | None = None
    attempts: int = 0
    reason: str = ""
    size_bytes: int = 0
    taken_time: int = 0
    bridge: str = ""
    sequence: int = 0


NAMES = 16
"""How many names of one store are remembered in one place. Earlier ones are found by the marks of these."""


class BridgeNames(msgspec.Struct, array_like=True, frozen=True):
    """Which bridge the rows of one store belong to: from number `since` on to `bridge`, and before that to `before`, where the bridge had another name.

    Only the latest `NAMES` are kept: a bridge that is named after its host may get another name with every start.
    """

    bridge: str
    since: int = 1
    before: BridgeNames | None = None

    def renamed(self, bridge: str, row: int) -> BridgeNames:
        """The same under the name that the bridge has now; `row` is the number of the next row. A name under which no row was written leaves no trace."""
        if bridge == self.bridge:
            return self
        if self.since < row:
            return BridgeNames(bridge, row, self._latest(NAMES - 1))
        return self.before.renamed(bridge, row) if self.before else BridgeNames(bridge, row)

    def _latest(self, names: int) -> BridgeNames:
        """The same, with at most so many names."""
        return replace(self, before=self.before._latest(names - 1) if self.before and names > 1 else None)  # noqa: SLF001 - its own kind

    def earlier(self) -> Iterator[BridgeNames]:
        """The names before this one, the latest first."""
        if self.before:
            yield self.before
            yield from self.before.earlier()


COLUMNS: tuple[tuple[str, Literal["string", "int64", "timestamp_ms"], bool], ...] = (
    ("event", "string", False),
    ("event_time", "timestamp_ms", False),
    ("id", "string", False),
    ("occurrence", "int64", False),
    ("due_time", "timestamp_ms", False),
    ("kind", "string", False),
    ("dialect", "string", False),
    ("route", "string", False),
    ("source_broker", "string", False),
    ("source", "string", False),
    ("destination_broker", "string", False),
    ("destination", "string", False),
    ("lateness_ms", "int64", True),
    ("attempts", "int64", False),
    ("reason", "string", False),
    ("size_bytes", "int64", False),
    ("taken_time", "timestamp_ms", False),
    ("bridge", "string", False),
    ("sequence", "int64", False),
)
"""Name, type and nullability of each Parquet column, in order. `timestamp_ms` is a UTC instant in milliseconds."""

assert tuple(name for name, _, _ in COLUMNS) == Row.__struct_fields__
