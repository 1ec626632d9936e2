"""Messages that have left their last level and wait in memory, unacknowledged, until they are due: handed out, held at their target, settled.

The answers are those of `core.store.Store` for `due`, `next_due`, `hold`, `held` and `put_back`. Any thread.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from ...core.by_target import unknown_partition
from ...core.store import Due
from .entries import Entry, Lane, first_of
from .lately import DELIVERED, Lately

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...core.by_target import PartitionOf
    from ...core.store import Held
    from ...core.targets import Target
    from .envelope import Envelope, Occurrence
    from .ids.lines import Claim
    from .passage import Finish, Taken

_SHARE = 10
"""Records that an address may hand out at least when its turn comes, if so many are due: as in the time index."""


class Waiting:
    """All lanes. Records of one address go out in order of due time, then of arrival; the addresses of a lane take turns."""

    def __init__(self, partition_of: PartitionOf = unknown_partition) -> None:
        self._lanes: defaultdict[str, Lane] = defaultdict(partial(Lane, partition_of))
        self._entries: dict[bytes, Entry] = {}
        self._claimed: defaultdict[str, list[Entry]] = defaultdict(list)  # those that bear a claim, by their ids
        self._carriers = 0  # of these
        self._delivered: Lately[Occurrence] = Lately(DELIVERED)
        self._leaving: dict[Occurrence, Entry] = {}  # those that were handed out, series aside
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def add(self, envelope: Envelope, origin: Taken, finish: Finish) -> None:
        """Wait for its due time."""
        with self._lock:
            entry = Entry(envelope, next(self._numbers), origin, finish)
            self._enter(entry)
            self._lanes[envelope.record.lane].back(entry)

    def _enter(self, entry: Entry) -> None:
        self._entries[entry.key] = entry
        self._carriers += entry.record.is_carrier
        if entry.claim is not None:
            self._claimed[entry.record.id].append(entry)

    def _leave(self, entry: Entry) -> None:
        del self._entries[entry.key]
        self._carriers -= entry.record.is_carrier
        if self._leaving and self._leaving.get(name := entry.envelope.occurrence) is entry:
            del self._leaving[name]
        if entry.claim is not None:
            bearers = self._claimed[entry.record.id]
            bearers.remove(entry)
            if not bearers:
                del self._claimed[entry.record.id]
        self._lanes[entry.record.lane].gone(entry)

    def due(self, lane: str, now: int, limit: int, max_bytes: int) -> list[Due]:
        """See `core.store.Store.due`."""
        with self._lock:
            there = self._lanes[lane]
            there.ripen(now)
            found: list[Due] = []
            while there.ready and len(found) < limit and max_bytes > 0:
                address, heap = next(iter(there.ready.items()))
                share = max(_SHARE, (limit - len(found)) // len(there.ready))
                del there.ready[address]
                some = self._hand_out(heap, min(share, limit - len(found)), max_bytes, there)
                if heap:
                    there.ready[address] = heap
                found += some
                max_bytes -= sum(due.record.message.size for due in some)
            return found

    def due_held(self, lane: str, target: Target, limit: int, max_bytes: int) -> list[Due]:
        """See `core.store.Store.due_held`."""
        with self._lock:
            return self._hand_out(self._lanes[lane].held.get(target, []), limit, max_bytes)

    def _hand_out(self, heap: list[Entry], limit: int, max_bytes: int, due: Lane | None = None) -> list[Due]:
        """Take from a heap as `core.store.Store.due` does. Entries that have left are passed over; those that another bridge has by now are let go of.

        Of what is `due` in a lane, and not held yet, some has to wait behind what is.
        """
        found: list[Due] = []
        while (entry := first_of(heap)) and len(found) < limit and max_bytes > 0:
            heapq.heappop(heap)
            if self._elsewhere(entry):
                continue
            if due and due.held and (target := due.waits(entry.record)) is not None:
                due.hold(entry, target)
                continue
            entry.out = True
            found.append(Due(entry.key, entry.record, entry.attempts, entry.error))
            max_bytes -= entry.record.message.size
        return found

    def _elsewhere(self, entry: Entry) -> bool:
        """Whether the broker gives it again, here or to another bridge: then it is dropped, because delivering it would be a second copy."""
        if entry.finish.open:
            return False
        self._leave(entry)
        entry.finish()
        return True

    def let_go(self, origin: Taken) -> None:
        """Of what came over this connection, drop what the broker gives again; what is handed out, when it comes back."""
        with self._lock:
            for entry in [entry for entry in self._entries.values() if entry.origin is origin and not entry.out]:
                self._elsewhere(entry)

    def next_due(self, lane: str) -> int | None:
        """See `core.store.Store.next_due`."""
        with self._lock:
            return min((head.place[0] for head in self._lanes[lane].heads()), default=None)

    def hold(self, failed: Sequence[Held]) -> None:
        """See `core.store.Store.hold`."""
        with self._lock:
            for one in failed:
                entry = self._handed_out(one.key)
                if entry is not None:
                    entry.attempts, entry.error = one.attempts, one.error
                    self._lanes[entry.record.lane].hold(entry, one.partition or entry.record.address)

    def put_back(self, keys: Sequence[bytes]) -> None:
        """See `core.store.Store.put_back`."""
        with self._lock:
            back = [entry for key in keys if (entry := self._handed_out(key)) is not None]
            for entry in sorted(back, key=lambda entry: entry.held is None):  # those that were held show what the others have to wait with
                self._lanes[entry.record.lane].put_back(entry)

    def release(self, keys: Sequence[bytes]) -> None:
        """As `put_back`, and not held at its target any more: where that is held still, the lane puts it there again."""
        with self._lock:
            for key in keys:
                entry = self._handed_out(key)
                if entry is not None:
                    lane = self._lanes[entry.record.lane]
                    lane.let_go(entry)
                    lane.back(entry)

    def _handed_out(self, key: bytes) -> Entry | None:
        entry = self._entries.get(key)
        if entry is None or not entry.out:
            return None
        entry.out = False
        return None if self._elsewhere(entry) else entry

    def find(self, key: bytes) -> Entry | None:
        """A record that is in memory still."""
        with self._lock:
            return self._entries.get(key)

    def take(self, key: bytes) -> Entry | None:
        """Take a record out for good; None where it is gone already."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._leave(entry)
            return entry

    def remember(self, delivered: Iterable[Entry]) -> None:
        """These were delivered, and end with that. Of the others, what follows may not have come to its level: if it comes again, it is needed."""
        self._delivered.add(entry.envelope.occurrence for entry in delivered if entry.record.schedule.recurrence is None)

    def take_copies(self, found: Iterable[Due]) -> list[Entry]:
        """Take out those of these that were delivered, as is remembered, or of which another copy is handed out: their broker has given them again."""
        with self._lock:
            copies = [entry for due in found if (entry := self._entries.get(due.key)) is not None and self._is_copy(entry)]
            for entry in copies:
                self._leave(entry)
            return copies

    def _is_copy(self, entry: Entry) -> bool:
        if entry.record.schedule.recurrence is not None:
            return False
        name = entry.envelope.occurrence
        other = self._leaving.get(name, entry)
        if name in self._delivered or (other is not entry and other.out and other.finish.open):
            return True
        self._leaving[name] = entry
        return False

    def give_back(self, entries: Iterable[Entry]) -> None:
        """What was taken is handed out still, also where the broker gives it again: it may have been delivered, and is then still to be remembered."""
        with self._lock:
            for entry in entries:
                entry.gone = False
                self._enter(entry)

    def bearing(self, ids: Iterable[str]) -> list[tuple[Entry, Claim]]:
        """Entries that bear one of these ids by a claim. Costs nothing for those that do not."""
        with self._lock:
            entries = itertools.chain.from_iterable(self._claimed.get(each, ()) for each in ids)
            return [(entry, entry.claim) for entry in entries if entry.claim is not None]

    def withdraw(self, key: bytes) -> Entry | None:
        """As `take`, but None where it is handed out, or another bridge has it."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.out or self._elsewhere(entry):
                return None
            self._leave(entry)
            return entry

    def forget(self, origin: Taken, *, handed_out: bool = False) -> list[Entry]:
        """Drop what came over this connection, but not what is handed out, unless `handed_out`; returns what was dropped."""
        with self._lock:
            dropped = [entry for entry in self._entries.values() if entry.origin is origin and (handed_out or not entry.out)]
            for entry in dropped:
                self._leave(entry)
            return dropped

    def held(self, lane: str) -> dict[Target, tuple[int, str]]:
        """See `core.store.Store.held`."""
        with self._lock:
            heads = ((target, first_of(heap)) for target, heap in self._lanes[lane].held.items())
            return {target: (head.attempts, head.error) for target, head in heads if head}

    def lanes(self) -> list[str]:
        """The lanes in which anything waits."""
        with self._lock:
            return list({entry.record.lane for entry in self._entries.values()})

    def count(self) -> tuple[int, int]:
        """How many records are in memory, dead letters on their way aside, and how many of them are held. Costs the same whatever is there."""
        with self._lock:
            return len(self._entries) - self._carriers, sum(lane.holds for lane in self._lanes.values())

    def first_due(self) -> int | None:
        """When the first of all that waits here is due, held or not."""
        with self._lock:
            held = (head for lane in self._lanes.values() for heap in lane.held.values() if (head := first_of(heap)))
            heads = itertools.chain(held, *(lane.heads() for lane in self._lanes.values()))
            return min((head.place[0] for head in heads), default=None)
