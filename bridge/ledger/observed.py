"""What arrived at a destination, as Parquet files beside the ledger's: the audit compares the two.

Columns are the ledger's own, less those that only the bridge knows; `event` is `observed`, `event_time` when it was seen here, `size_bytes` that of
the body. `id`, `occurrence` and `due_time` are null for messages that no bridge delivered, a number also where it is none that a bridge writes. Files stand
in `date=…/hour=…` of the event, each written whole, synced and renamed.

`_reach/observed-<observer>.json` is the observer's mark: what arrived from `since_ms`, when it began to listen, to `at_ms` it has seen, and that is in files.
A delivery before or after that which is not there is no loss: the observer had not begun yet, or may be behind. `latest_ms` is when it saw the last message
that is in its files, perhaps later than `at_ms`; null if it saw none. `copies` is false if it takes messages away: what it sees, no other observer sees.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ...core.durations import HOUR_MS, LATEST_INSTANT
from . import parquet
from .files import arrow_schema
from .taken import Left, Taken, left_behind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_COLUMNS = ("event", "event_time", "id", "occurrence", "due_time", "destination_broker", "destination", "size_bytes")
_NULLABLE = frozenset({"id", "occurrence", "due_time"})
SCHEMA = pa.schema([arrow_schema().field(name).with_nullable(name in _NULLABLE) for name in _COLUMNS])
ROWS_PER_FILE = 100_000
"""Bounds the memory that an observation takes."""

_MOST = (1 << 63) - 1
"""As much as a column holds."""

INTERVAL_MS = 60_000
"""A file is written at least so often, where something arrived."""

AGAIN_MS = 10_000
"""What could not be written is tried again so soon."""

QUIET_MS = 1_000
"""A broker is expected to hand a message to an observer that has room for it within so many milliseconds."""


class Look(NamedTuple):
    """What came from `began` to `ended` (epoch ms), as the API tells of deliveries: something, or nothing for `QUIET_MS`.

    `full`: more may have arrived than came. It may be all that could be held at once, or the rest may be behind somebody's open transaction.
    """

    began: int
    ended: int
    deliveries: Sequence[dict[str, Any]]
    full: bool


class Reach:
    """From when to when an observer has seen everything that arrived: `since` and `until`. It must be given every look.

    While nothing else is known, that is the moment when it began. At a queue, where it gets no `copies`, not even that: older ones may wait for it.

    An empty look tells that everything has been seen that arrived before it. If traffic never pauses for that long, it is known only after `QUIET_MS` without
    a full look, and only up to the due time of a message that a bridge delivered: that arrived no earlier, and behind everything that had arrived before.
    """

    def __init__(self, *, copies: bool) -> None:
        self.since = self.until = -1
        self._copies = copies
        self._with_room: int | None = None
        self._latest_due = -1
        self._now = 0

    def looked(self, look: Look) -> None:
        """Account for the next look."""
        self._keep_time(look.began)
        self._keep_time(look.ended)
        if self.since < 0:
            self.since, self.until = look.began, look.began if self._copies else 0
        self._latest_due = max(self._latest_due, *map(_due_by_then, look.deliveries), -1)
        if look.full or look.ended < look.began:
            self._with_room = None
            return
        if self._with_room is None:
            self._with_room = look.began
        if not look.deliveries:
            self.until = max(self.until, look.began)
        elif look.ended - self._with_room >= QUIET_MS and self._latest_due >= 0:
            self.until = max(self.until, min(look.ended - QUIET_MS, self._latest_due))

    def _keep_time(self, now: int) -> None:
        """If the clock was set back, what was seen by then is told by the clock as it is now: the old one's time to come was not seen."""
        if now < self._now:
            self.until = max(0, self.until - self._now + now)
            self._with_room, self._latest_due = None, -1
        self._now = now


def _due_by_then(delivery: dict[str, Any]) -> int:
    """When a delivery was due; -1 if no bridge says so, or it arrived before that."""
    due: int = delivery.get("due", -1)
    return due if due <= delivery["at"] else -1


class ObservedFiles:
    """Collects deliveries at one destination and writes them below `root`, under this `address`, whatever they say. One thread.

    `observer` tells apart the files of several observations.

    `copies`: other observers of that address see the same messages. If not, they are durable, but not in files yet, as soon as they were added: see Taken.
    """

    def __init__(self, root: Path, broker: str, address: str, observer: str, *, copies: bool = True) -> None:
        self.root = root
        self._broker = broker
        self._address = address
        self._observer = observer
        self._copies = copies
        self._taken = None if copies else Taken(root, observer)
        self._latest: int | None = None
        self._hours: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
        self._files = 0
        self._next_flush = 0
        self.error = ""
        self._since: int | None = None
        self._until: int | None = None

    def add(self, *deliveries: dict[str, Any]) -> None:
        """Deliveries as the API tells of them. OSError where they are taken away and cannot be made durable: then none was added."""
        rows = [self._row(each) for each in deliveries]
        if self._taken is not None and rows:
            self._taken.keep(rows, self._files)
        self._hold(rows)

    def _hold(self, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            self._hours[row["event_time"] // HOUR_MS].append(row)
            self._latest = max(row["event_time"], self._latest or 0)

    def _row(self, delivery: dict[str, Any]) -> dict[str, Any]:
        return {
            "event": "observed",
            "event_time": delivery["at"],
            "id": delivery.get("id"),
            "occurrence": _within(delivery.get("occurrence"), 1, _MOST),
            "due_time": _within(delivery.get("due"), 0, LATEST_INSTANT),
            "destination_broker": self._broker,
            "destination": self._address,
            "size_bytes": _body_bytes(delivery),
        }

    def seen(self, since: int, until: int) -> None:
        """Everything that arrived between these instants (epoch ms) was added. The next flush says so in the mark."""
        self._since, self._until = since, until

    @property
    def unwritten(self) -> int:
        """How many are in no file yet, or in one that is written again."""
        return sum(map(len, self._hours.values()))

    def flush_if_due(self, now: int) -> None:
        """Write where it is time, also if nothing arrived, or where enough has come together. The first time is at once: what cannot be written shows early.

        Later a disk may be full for a while: then `error` says so, the rows are kept, and it is tried again soon. OSError the first time, and where more would
        be kept than goes into a file.
        """
        full = self.unwritten >= ROWS_PER_FILE
        if not full and self._next_flush - INTERVAL_MS <= now < self._next_flush:  # else it is due, or the clock was set back
            return
        first, self._next_flush = not self._next_flush, now + AGAIN_MS
        try:
            self.flush()
        except OSError as error:
            if first or full:
                raise
            self.error = str(error)
        else:
            self.error = ""
            self._next_flush = now + INTERVAL_MS

    def flush(self) -> None:
        """Write what there is. OSError where that fails: all of it is kept then.

        Also what is in files by then: it is written to the same ones again, over what may be there, and so it is by whoever finds it after a kill.
        """
        for number, (hour, rows) in enumerate(self._hours.items(), self._files):
            table = pa.Table.from_pylist(rows, schema=SCHEMA)
            parquet.write(self.root, hour, f"observed-{self._observer}-{number:06d}.parquet", [table])
        if self._taken is not None:
            self._taken.written()
        self._files += len(self._hours)
        self._hours.clear()
        self._mark()

    @classmethod
    def recover(cls, root: Path) -> int:
        """Write what observers below `root` had taken from queues when they were killed; returns how many. OSError where that fails."""
        return sum(cls._write_again(root, each) for each in left_behind(root))

    @classmethod
    def _write_again(cls, root: Path, left: Left) -> int:
        files = cls(root, "", "", left.observer)
        files._files = left.number
        files._hold(left.rows)
        files.flush()
        return len(left.rows)

    def _mark(self) -> None:
        if self._until is None:
            return
        told = {
            "observer": self._observer,
            "broker": self._broker,
            "address": self._address,
            "since_ms": self._since,
            "at_ms": self._until,
            "latest_ms": self._latest,
            "copies": self._copies,
        }
        parquet.write_mark(self.root, f"observed-{self._observer}", told)


def _within(told: int | None, least: int, most: int) -> int | None:
    """Anybody can write headers: a value that no bridge writes becomes null, or the file could not be read at all."""
    return told if told is not None and least <= told <= most else None


def _body_bytes(delivery: dict[str, Any]) -> int:
    if "body_base64" in delivery:
        return len(base64.b64decode(delivery["body_base64"]))
    return len((delivery.get("body") or "").encode())
