"""The places in memory of what waits there: its order, for each destination broker and address. Not safe for several threads: see `waiting.Waiting`."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from typing import TYPE_CHECKING

from ...adapters.clock import uptime
from ...core.by_target import ByTarget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...core.by_target import PartitionOf
    from ...core.store import Record
    from ...core.targets import Target
    from .envelope import Envelope
    from .ids.lines import Claim
    from .passage import Finish, Taken


class Entry:
    """One record in memory.

    envelope   in which it came; `since`, when (`uptime`)
    origin     the connection that it came over
    finish     lets the broker forget it
    next       the following occurrence, where that is published together with it
    held       the target at which it waits, None where it is not held
    out        it is handed out
    gone       it has left: a heap may drop it
    """

    __slots__ = (
        "attempts",
        "envelope",
        "error",
        "finish",
        "gone",
        "held",
        "key",
        "next",
        "origin",
        "out",
        "place",
        "since",
    )

    def __init__(self, envelope: Envelope, number: int, origin: Taken, finish: Finish) -> None:
        self.envelope = envelope
        self.since = 0.0 if envelope.claim is None else uptime()
        self.next: Record | None = None
        self.origin = origin
        self.finish = finish
        self.place = (envelope.record.schedule.due, envelope.order, number)
        self.key = number.to_bytes(8, "big")
        self.attempts = 0
        self.error = ""
        self.held: Target | None = None
        self.out = self.gone = False

    @property
    def record(self) -> Record:
        """What waits."""
        return self.envelope.record

    @property
    def claim(self) -> Claim | None:
        """Where it stands in the log of ids."""
        return self.envelope.claim

    def __lt__(self, other: Entry) -> bool:
        return self.place < other.place


class Lane:
    """One destination broker.

    waiting   a heap of what is not due yet
    ready     for each address a heap of what is due, those first whose turn it is
    held      for each target a heap of what is held there
    behind    how many are held at each target, handed out or not
    holds     how many that are in all
    seen      the latest time for which `ready` was filled
    """

    def __init__(self, partition_of: PartitionOf) -> None:
        self.waiting: list[Entry] = []
        self.ready: dict[str, list[Entry]] = {}
        self.held: ByTarget[list[Entry]] = ByTarget(partition_of)
        self.behind: Counter[Target] = Counter()
        self.holds = 0
        self.seen = 0

    def ripen(self, now: int) -> None:
        """Sort what is due by address. If the clock was set back, records that were due may not be due any more."""
        if now < self.seen:
            self.waiting += itertools.chain.from_iterable(self.ready.values())
            heapq.heapify(self.waiting)
            self.ready.clear()
        self.seen = now
        while (head := first_of(self.waiting)) and head.place[0] <= now:
            heapq.heappush(self.ready.setdefault(head.record.address, []), heapq.heappop(self.waiting))

    def back(self, entry: Entry) -> None:
        """To where it waits: to its target if it is held, among what is due for its address, or for its time."""
        heapq.heappush(self._due(entry) if entry.held is None else self.held[entry.held], entry)

    def _due(self, entry: Entry) -> list[Entry]:
        return self.ready.get(entry.record.address, self.waiting) if entry.place[0] <= self.seen else self.waiting

    def put_back(self, entry: Entry) -> None:
        """The same, and to where others are held that may be later ones."""
        target = self.waits(entry.record) if entry.held is None else entry.held
        if target is None:
            self.back(entry)
        else:
            self.hold(entry, target)

    def waits(self, record: Record) -> Target | None:
        """Behind what a record has to wait, if anything waits there still."""
        return next((target for target, heap in self.held.of(record) if first_of(heap)), None)

    def heads(self) -> Iterator[Entry]:
        """The first of all heaps of what is not held."""
        return (head for heap in (self.waiting, *self.ready.values()) if (head := first_of(heap)))

    def hold(self, entry: Entry, target: Target) -> None:
        """Let an entry that stands nowhere wait until this target takes messages again."""
        if entry.held != target:
            self.let_go(entry)
            entry.held = target
            self.behind[target] += 1
            self.holds += 1
        if target not in self.held:
            self.held[target] = []
        self.back(entry)

    def gone(self, entry: Entry) -> None:
        """It has left for good."""
        entry.gone = True
        self.let_go(entry)

    def let_go(self, entry: Entry) -> None:
        """It is not held any more."""
        target = entry.held
        if target is not None:
            entry.held = None
            self.behind[target] -= 1
            self.holds -= 1
            if not self.behind[target]:
                del self.behind[target]
                del self.held[target]


def first_of(heap: list[Entry]) -> Entry | None:
    """The first that is not gone."""
    while heap and heap[0].gone:
        heapq.heappop(heap)
    return heap[0] if heap else None
