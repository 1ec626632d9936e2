"""One change of the store while it is being made: everything that one atomic write will hold, and what memory learns once it is written."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec

from .. import ledger
from ..durations import HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..ledger import Event
    from ..store import Record
    from ..targets import Target
    from .database import Puts
    from .lanes import Track
    from .numbers import Numbers

Row = tuple[str, int, str, int, int, str, str, str, str, str, str, str, int | None, int, str, int, int]
"""A ledger row less bridge and sequence, which are told once for the whole write."""

SIZE: Final = 15
"""Where its `size_bytes` stands."""
assert ledger.Row.__struct_fields__[SIZE] == "size_bytes"

OVERHEAD: Final = 300
"""About what a record takes on disk beside its body and headers: its fields, its key and its two ledger rows."""


def ledger_row(
    event: Event, at: int, record: Record, record_id: str, lateness: int | None = None, attempts: int = 0, reason: str = ""
) -> Row:
    """The row that tells that `event` happened to `record` at `at`."""
    schedule, message = record.schedule, record.message
    return (event, at, record_id, schedule.occurrence, schedule.due, record.kind, record.dialect, record.route, record.source_broker,
            record.source, record.lane, record.address, lateness, attempts, reason, len(message.body or b"") + len(message.headers),
            record.taken)  # fmt: skip


class Change:
    """Collects one write. Readers inside the same change look into `ids`, `meta` and `fresh` before they look on disk.

    numbers                             go on from the store's
    due, ids, meta                      new values of keys, by column family; None deletes
    dropped                             ranges of `meta` that are deleted, each from its first key to before the second
    seen                                what is on disk of ids that were read ahead
    fresh                               records with a producer's id that this change puts, by due key
    gone                                bytes of records that go without a closing row
    rows                                ledger rows
    totals, by_address, by_hour, held   by how much each counter changes
    arrived                             the due keys at which records are put, by track
    cursors                             where tracks begin to read after a restart from now on
    then                                called once the change is written
    """

    __slots__ = (
        "arrived",
        "by_address",
        "by_hour",
        "cursors",
        "dropped",
        "due",
        "fresh",
        "gone",
        "held",
        "ids",
        "meta",
        "numbers",
        "rows",
        "seen",
        "then",
        "totals",
    )

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = msgspec.structs.replace(numbers)
        self.due: Puts = {}
        self.ids: Puts = {}
        self.meta: Puts = {}
        self.dropped: list[tuple[bytes, bytes]] = []
        self.seen: Puts = {}
        self.fresh: dict[bytes, Record] = {}
        self.gone = 0
        self.rows: list[Row] = []
        self.totals: defaultdict[str, int] = defaultdict(int)
        self.by_address: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.by_hour: defaultdict[int, int] = defaultdict(int)
        self.held: defaultdict[tuple[Track, Target], int] = defaultdict(int)
        self.arrived: defaultdict[Track, list[bytes]] = defaultdict(list)
        self.cursors: dict[Track, bytes] = {}
        self.then: list[Callable[[], None]] = []

    def came(self, track: Track, key: bytes) -> None:
        """A record is put at `key`; its track learns of it."""
        self.arrived[track].append(key)

    def goes(self, record: Record) -> None:
        """A record goes without a closing row, as one that is moved to another store."""
        self.gone += record.message.size + OVERHEAD

    def count(self, record: Record, difference: int) -> None:
        """One more or one less pending."""
        self.totals["pending"] += difference
        self.by_address[record.lane, record.address] += difference
        self.by_hour[record.schedule.due // HOUR_MS] += difference

    def event(
        self, event: Event, at: int, record: Record, record_id: str, lateness: int | None = None, attempts: int = 0, reason: str = ""
    ) -> None:
        """Something happened to a record: one ledger row, counted."""
        self.rows.append(ledger_row(event, at, record, record_id, lateness, attempts, reason))
        self.totals[event] += 1
