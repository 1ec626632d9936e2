"""The time index's rules on plain dictionaries and lists: what the model test compares it with."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from zlib import crc32

from msgspec.structs import replace

from delaybridge.core.ledger import EVENTS, Event
from delaybridge.core.recurrence import moved
from delaybridge.core.schedule import Schedule
from delaybridge.core.store import Answer, Counts, Held, Pending, Put, Record, Refuse, Settled, Withdraw
from delaybridge.core.targets import Partition, Target

Change = Put | Withdraw | Refuse

SET_BACK = 60_000
"""A time that is earlier by more than this (ms) is that of a clock which was set back."""


PARTITIONS = 2


def partition_of(record: Record, total: int) -> int:
    """See `by_target.PartitionOf`."""
    return len(record.message.body or b"") % total


@dataclass(eq=False)
class Item:
    """One record that waits, is in flight or is held back."""

    record: Record
    instant: int
    arrival: int
    flying: bool = False
    held: tuple[int, str] | None = None
    target: Target = ""
    doomed: Event | None = None

    @property
    def carrier(self) -> bool:
        return self.record.kind == "dead_letter"

    @property
    def place(self) -> tuple[int, int]:
        return self.instant, self.arrival

    @property
    def targets(self) -> tuple[str, Partition]:
        """Where it may be held back."""
        address = self.record.address
        return address, Partition(address, partition_of(self.record, PARTITIONS), PARTITIONS)

    def hold(self, target: Target, attempts: int, error: str) -> None:
        self.target, self.held = target, (attempts, error)

    def pending(self) -> Pending:
        attempts, error = self.held or (0, "")
        return Pending(self.record, "in_flight" if self.flying else "held" if self.held else "waiting", attempts, error)


@dataclass
class Model:
    """`known` tells of each id: the item that bears it, or how it ended and when; a withdrawal before its record has no event.

    `owners` are the addresses of each lane that have a track, `tracks` at most, in the order in which they came up; the others share one with one of these.
    `last` is the owner whose turn it was last. `forgot` says whether any id was remembered long enough.
    """

    memory: int
    latest: int = 0
    arrival: int = 0
    items: list[Item] = field(default_factory=list)
    known: dict[str, Item | tuple[Event | None, int]] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    events: Counter[Event] = field(default_factory=Counter)
    shelf: list[Record] = field(default_factory=list)
    owners: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    last: dict[str, str] = field(default_factory=dict)
    tracks: int = 256
    forgot: bool = False

    def told(self, now: int) -> None:
        self.latest = now if now < self.latest - SET_BACK else max(self.latest, now)
        for one, state in list(self.known.items()):
            if not isinstance(state, Item) and state[1] + self.memory < self.latest:
                del self.known[one]
                self.forgot = True

    def add(self, record: Record, now: int) -> Item:
        self.arrival += 1
        item = Item(record, max(record.schedule.due, now), self.arrival)
        self.items.append(item)
        owners = self.owners[record.lane]
        if record.address not in owners and len(owners) < self.tracks:
            owners.append(record.address)
        return item

    def owner(self, record: Record) -> str:
        """Whose track a record waits on."""
        owners = self.owners[record.lane]
        return record.address if record.address in owners else owners[crc32(record.address.encode()) % self.tracks]

    def schedule(self, record: Record, now: int) -> None:
        self.events["scheduled"] += 1
        self.known[record.id] = self.add(record, now)

    def end(self, item: Item, event: Event, at: int) -> None:
        """The item is over; its id remembers how, if it still stands for this item."""
        self.items.remove(item)
        if not item.carrier:
            self.events[event] += 1
        if self.known.get(item.record.id) is item:
            if item.record.id in self.made:
                del self.known[item.record.id]
            else:
                self.known[item.record.id] = event, at

    def put(self, changes: list[Change], made_ids: list[str], now: int) -> list[Answer]:
        fresh = iter(made_ids)
        answers = []
        for change in changes:
            if isinstance(change, Withdraw):
                answers.append(self._withdraw(change.id, now))
            elif isinstance(change, Refuse):
                self._refuse(change, change.record.id or next(fresh), now)
            else:
                self._put(change.record if change.record.id else replace(change.record, id=next(fresh)), now)
        return answers

    def _put(self, record: Record, now: int) -> None:
        known = self.known.get(record.id)
        if isinstance(known, Item):
            if known.flying:
                known.doomed = known.doomed or "replaced"
            else:
                self.end(known, known.doomed or "replaced", now)
        elif known is not None and known[0] is None:
            self.events.update(["scheduled", "cancelled"])
            self.known[record.id] = "cancelled", now
            return
        self.schedule(record, now)

    def _withdraw(self, chosen: str, now: int) -> Answer:
        known = self.known.get(chosen)
        if isinstance(known, Item) and known.flying:
            known.doomed = known.doomed or "cancelled"
            return Answer("in_flight")
        answer = self.cancel(chosen, now)
        if answer.outcome == "unknown":
            self.known[chosen] = None, now
        return answer

    def _refuse(self, change: Refuse, chosen: str, now: int) -> None:
        self.arrival += 1
        self.events.update(["scheduled", "dead_lettered"])
        known = self.known.get(chosen)
        waits = isinstance(known, Item) or (known is not None and known[0] is None)
        if chosen not in self.made and not waits:
            self.known[chosen] = "dead_lettered", now
        if change.forward is None:
            self.shelf.append(replace(change.record, id=chosen, kind="refused", schedule=Schedule(due=now)))
        else:
            self.add(replace(change.forward, id=chosen, kind="dead_letter"), now)

    def held(self, lane: str) -> list[Item]:
        return [item for item in self.items if item.record.lane == lane and item.held is not None]

    def waiting(self, lane: str) -> list[Item]:
        found = (item for item in self.items if item.record.lane == lane and not item.flying and item.held is None)
        return sorted(found, key=lambda item: item.place)

    def turns(self, lane: str) -> list[str]:
        """The owners of tracks, beginning behind the one whose turn it was last."""
        owners = self.owners[lane]
        start = owners.index(self.last[lane]) + 1 if lane in self.last else 0
        return owners[start:] + owners[:start]

    def walked(self, lane: str, owner: str) -> list[Item]:
        """What handing out comes by: all from the first that waits on, what is held back already among it."""
        idle = [item for item in self.items if item.record.lane == lane and self.owner(item.record) == owner and not item.flying]
        first = min((item.place for item in idle if item.held is None), default=None)
        return sorted((item for item in idle if first is not None and item.place >= first), key=lambda item: item.place)

    def due(self, lane: str, now: int, limit: int) -> list[Item]:
        behind = {item.target for item in self.held(lane) if not item.flying}
        found, aside = list[Item](), 0
        for owner in self.turns(lane):
            for item in self.walked(lane, owner):
                if item.instant > now or len(found) == limit or aside == (limit + 1) // 2:
                    break
                self.last[lane] = owner
                if item.doomed:
                    self.end(item, item.doomed, now)
                    aside += 1
                elif item.held is not None:
                    aside += 1
                elif target := next((target for target in item.targets if target in behind), None):
                    item.hold(target, 0, "")
                    aside += 1
                else:
                    item.flying = True
                    found.append(item)
        return found

    def due_held(self, lane: str, target: Target, now: int, limit: int) -> list[Item]:
        self._line_up(lane, target, now)
        held = [item for item in self.held(lane) if item.target == target and not item.flying]
        found = list[Item]()
        for item in sorted(held, key=lambda item: item.place):
            if len(found) == limit:
                break
            if item.doomed:
                self.end(item, item.doomed, now)
            else:
                item.flying = True
                found.append(item)
        return found

    def _line_up(self, lane: str, target: Target, now: int) -> None:
        """What waits before something that is held at its target is held there, too."""
        last = max((item.place for item in self.held(lane) if item.target == target), default=(0, 0))
        for item in [item for item in self.waiting(lane) if target in item.targets and item.place < last]:
            if item.doomed:
                self.end(item, item.doomed, now)
            else:
                item.hold(target, 0, "")

    def settle(self, item: Item, outcome: Settled, now: int) -> None:
        doomed, ours = item.doomed, self.known.get(item.record.id) is item
        if doomed and outcome.event != "delivered":
            self.end(item, doomed, now)
            return
        self.end(item, outcome.event, outcome.at)
        if outcome.forward is not None:
            self.add(replace(outcome.forward, id=item.record.id), now)
        elif outcome.event == "dead_lettered":
            self.shelf.append(item.record)
        if outcome.next is not None and not doomed:
            assert ours
            self.schedule(outcome.next, now)

    def hold(self, item: Item, held: Held, now: int) -> None:
        item.flying = False
        if item.doomed:
            self.end(item, item.doomed, now)
        else:
            item.hold(held.partition or item.record.address, held.attempts, held.error)

    def put_back(self, item: Item) -> None:
        item.flying = False
        if item.doomed:
            self.end(item, item.doomed, self.latest)

    def restart(self) -> None:
        for item in self.items:
            item.flying = False
        self.last.clear()
        self.latest = 0

    def _idle(self, chosen: str) -> Item | Answer:
        known = self.known.get(chosen)
        if isinstance(known, Item):
            return Answer("in_flight") if known.flying else known
        if known is not None and known[0] is not None:
            return Answer("too_late", *known)
        return Answer("too_late" if chosen in self.made else "unknown")

    def cancel(self, chosen: str, now: int) -> Answer:
        item = self._idle(chosen)
        if isinstance(item, Answer):
            return item
        self.end(item, "cancelled", now)
        return Answer("done")

    def reschedule(self, chosen: str, due: int, now: int) -> Answer:
        item = self._idle(chosen)
        if isinstance(item, Answer):
            return item
        if item.doomed:
            self.end(item, item.doomed, now)
            return Answer("too_late", "cancelled", now)
        self.events.update(["replaced", "scheduled"])
        item.instant, item.held = max(due, now), None
        item.record = replace(item.record, schedule=moved(item.record.schedule, item.instant))
        return Answer("done")

    def find(self, chosen: str) -> Pending | Answer:
        known = self.known.get(chosen)
        if isinstance(known, Item):
            return known.pending()
        answer = self._idle(chosen)
        assert isinstance(answer, Answer)
        return answer

    def retry(self, number: int, made: str | None, now: int, address: str) -> None:
        old = self.shelf.pop(number)
        old = replace(old, address=address or old.address)
        record = replace(old, kind="once" if old.is_carrier else old.kind, schedule=Schedule(due=now, occurrence=old.schedule.occurrence))
        if made is not None:
            record = replace(record, id=made)
        self.schedule(record, now)

    def counts(self) -> Counts:
        real = [item.record for item in self.items if not item.carrier]
        return Counts(
            pending=len(real),
            held=sum(item.held is not None for item in self.items),
            shelved=len(self.shelf),
            events={event: self.events[event] for event in EVENTS},
            by_address=dict(Counter((one.lane, one.address) for one in real)),
            by_hour=dict(Counter(one.schedule.due // 3_600_000 for one in real)),
        )
