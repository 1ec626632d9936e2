"""Migration: everything that waits goes from a time index to level queues, or back. The bridges are stopped meanwhile.

A record keeps its id, its occurrence, its due time and the time at which it was taken in, and the ledger tells nothing of it: the schedule goes on. Each batch
is durable at its new place before it is forgotten at its old one, so a move that was interrupted is simply begun again. Towards the time index
nothing is doubled by that, because ids tell what is there already; towards level queues at most the one batch that was under way, and of that nothing
whose id the log of ids there knows.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..adapters.base import AdapterError, NotConnected, Rejected
from ..adapters.id_log import IdLogging
from ..adapters.levelled import Trimmable
from ..core.levels import Levels
from ..core.reasons import Reason
from ..core.schedule import Schedule
from ..core.store import LedgerEvent, Record, Refuse, SourceProgress
from ..core.time_index.keys import arrival_of
from ..core.time_index.made import is_made
from .level_queues.build import ids, levelled, places, queues
from .level_queues.envelope import Envelope, unpack
from .level_queues.ids.known import Ids, said_by
from .level_queues.ids.lines import ENDED
from .level_queues.ids.register import Claiming, claims, mark_of
from .level_queues.ids.replica import read_all
from .outlet import Outlet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..adapters.base import Batch, Sink, Source
    from ..adapters.id_log import IdLog, Line
    from ..adapters.levelled import Level, Levelled
    from ..core.time_index import TimeIndex
    from .clock import Clock
    from .config import Config
    from .level_queues.ids.lines import Claim
    from .level_queues.places import Places

Tell = Callable[[int], None]
"""Hears now and then how many records have moved so far."""

OUT = 100
"""Records of a batch towards level queues: so many at most may be delivered twice after a move that was killed."""

IN = 500
"""The same towards the time index, where none is."""

CONFIRM = 30.0
"""Seconds within which a broker confirms a batch."""

WAKING, UNKNOWN, QUIET = 10.0, 3.0, 1.0
"""Seconds to wait for the first message of a level: where the broker says that some wait, and where it says nothing; and for each next message."""


_ENDINGS = "endings told by migrate-store"
"""In place of a route, which has no spaces in its name: of whose endings the ledger was told, so that a move that was killed tells of them once."""


class MovedOut(msgspec.Struct):
    """What went to level queues.

    `withdrawn`: cancellations that are remembered for schedules that have not come; they stay behind. `refused`: messages that the broker never takes, and
    why; these stay behind, too.
    """

    records: int = 0
    dead_letters: int = 0
    withdrawn: int = 0
    refused: list[str] = []


class MovedIn(msgspec.Struct):
    """What came to the time index.

    records   came, and were not there yet
    again     were there already, or are copies, left by a move that was killed, of what comes
    strange   no bridge had put them into the queues; they are on the shelf
    ended     had been cancelled or replaced, and ended here, or had ended already
    left      what the broker still counts, None where it does not say
    """

    records: int = 0
    again: int = 0
    strange: int = 0
    ended: int = 0
    left: int | None = None


class Place(NamedTuple):
    """The level queues of one broker, and its log of ids, if it has one, as one end of a move."""

    broker: str
    adapter: Levelled
    options: object
    sink: Sink
    queues: list[Level]
    places: Places
    log: IdLog | None

    def outlet(self) -> Outlet:
        """Connects when it is entered."""
        return Outlet(self.sink, CONFIRM, "the level queues")

    def known(self) -> Ids:
        """What the log of ids says. Raises NotConnected."""
        return Ids() if self.log is None else read_all(self.log)

    def claimed(self, records: Sequence[Record], known: Ids, now: int) -> list[Claim | None]:
        """Claims for those records that would have claimed an id if they had come from a source. Raises AdapterError."""
        found = [self.log is not None and _claims(each) for each in records]
        if self.log is None or not any(found):
            return [None] * len(records)
        entries = [Claiming(each.id, each.schedule.due, _mark(each)) for each, wanted in zip(records, found, strict=True) if wanted]
        left = iter(claims(self.log, known, entries, now))
        return [next(left) if wanted else None for wanted in found]

    def depths(self) -> list[int] | None:
        """See levelled.LevelDeclaration; None where the broker does not say. Raises NotConnected."""
        try:
            return self.adapter.level_queues(self.options, self.queues).depths()
        except NotConnected:
            raise
        except AdapterError:
            return None

    def trim(self) -> None:
        """Delete what was moved out, where the broker keeps and lets us delete it: else it might deliver it again some day."""
        queues = self.adapter.level_queues(self.options, self.queues)
        if isinstance(queues, Trimmable):
            with contextlib.suppress(AdapterError):
                queues.trim()


def _claims(record: Record) -> bool:
    """Whether a record claims an id: its producer chose that, or it is a series. See `register.claims`."""
    return not record.is_carrier and (record.schedule.recurrence is not None or not is_made(record.id))


def _mark(record: Record) -> bytes:
    """A mark for the log of ids: the same whenever this record is moved, and another one for whatever else is sent under its id for the same instant."""
    return mark_of(record.id, struct.pack(">qq", record.schedule.due, record.taken) + (record.message.body or b""))


def place(config: Config, broker: str, prefix: str) -> Place:
    """Raises plugins.UnusableAdapter where this broker cannot hold level queues."""
    adapter, options = levelled(config, broker)
    levels = Levels(config.limits.levels)
    log = adapter.id_log(options, ids(prefix)) if isinstance(adapter, IdLogging) else None
    return Place(broker, adapter, options, adapter.sink(options), queues(levels, prefix), places(adapter, options, levels, prefix), log)


def _insist(errors: Iterable[AdapterError]) -> None:
    """Go on where there are none, or only messages that the broker never takes. Raises AdapterError."""
    lasting = [error for error in errors if not isinstance(error, Rejected)]
    lost = next((error for error in lasting if isinstance(error, NotConnected)), None)
    if lasting:
        hint = "if the queue is not there, delaybridge apply makes it"
        raise lost or AdapterError(f"the level queues did not take {len(lasting)} messages: {lasting[0]} ({hint})")


def to_level_queues(index: TimeIndex, there: Place, clock: Clock, tell: Tell) -> MovedOut:
    """Move everything that waits, and the shelf. Raises AdapterError and StoreError; then call it again."""
    moved, cursor, more = MovedOut(withdrawn=index.migration.withdrawn()), "", True
    known = there.known()
    with there.outlet() as outlet:
        while more:
            now = clock()
            found, cursor = index.migration.waiting(OUT, cursor, now)
            claimed = there.claimed([due.record for due in found], known, now)
            going = [(due, claim) for due, claim in zip(found, claimed, strict=True) if claim is not ENDED]
            errors = outlet.publish([there.places.enter(due.record, claim, now, arrival_of(due.key)) for due, claim in going])
            staying = {going[number][0].key for number in errors}
            index.migration.out([due.key for due in found if due.key not in staying])
            moved.records += len(found) - len(staying)
            tell(moved.records)
            _insist(errors.values())
            moved.refused += [f"{going[number][0].record.id}: {error}" for number, error in errors.items()]
            more = bool(cursor)
        moved.dead_letters = _move_shelf(index, there, outlet, clock)
    index.maintain(clock())  # after a restart the index no longer knows how much was deleted
    return moved


def _move_shelf(index: TimeIndex, there: Place, outlet: Outlet, clock: Clock) -> int:
    count = 0
    while letters := index.dead_letters(OUT):
        now = clock()
        errors = outlet.publish([there.places.dead(each.record, None, now, each.reason, each.detail) for each in letters])
        for number, each in enumerate(letters):
            if number not in errors:
                index.drop_dead_letter(each.number, now)
        count += len(letters) - len(errors)
        _insist(errors.values())
        if errors:
            refused = ", ".join(f"{letters[number].record.id} ({error})" for number, error in errors.items())
            raise AdapterError(f"dead letters that this broker never takes stay on the shelf: {refused}; drop them, or stay")
    return count


def to_time_index(index: TimeIndex, there: Place, clock: Clock, tell: Tell) -> MovedIn:
    """Move everything that is at a level; dead letters stay where they are. Raises AdapterError and StoreError; then call it again."""
    keeper, before = _Keeper(index, there, clock, tell), -1
    while before != keeper.count:
        before = keeper.count
        depths = there.depths()
        for number, level in enumerate(there.queues):
            if depths is None or depths[number]:
                for source in there.adapter.level_contents(there.options, level):
                    _drain(source, UNKNOWN if depths is None else WAKING, keeper.keep)
                    keeper.left()
    left = there.depths()
    there.trim()
    keeper.came.left = None if left is None else sum(left)
    return keeper.came


def _drain(source: Source, patience: float, keep: Callable[[Batch], None]) -> None:
    try:
        source.connect()
        while (batch := source.receive(IN, patience)) is not None:
            keep(batch)
            batch.ack()
            patience = QUIET
    finally:
        source.close()


class _Keeper:
    """Takes what comes from level queues into the time index. What was cancelled or replaced there ends, and the ledger is told."""

    def __init__(self, index: TimeIndex, there: Place, clock: Clock, tell: Tell) -> None:
        self.came = MovedIn()
        self._index, self._there, self._clock, self._tell = index, there, clock, tell
        self._ids = there.known()
        self._orders: dict[bytes, int] = {}
        self._endings: list[Line] = []
        self._told = set(index.came(_ENDINGS).tokens)

    @property
    def count(self) -> int:
        """How many messages have come."""
        came = self.came
        return came.records + came.again + came.strange + came.ended

    def keep(self, batch: Batch) -> None:
        """Durable on return."""
        now, came = self._clock(), self.came
        going: list[Envelope] = []
        strange: list[Refuse] = []
        told: dict[bytes, LedgerEvent] = {}
        for received in batch.messages:
            try:
                self._sort(unpack(received.message), now, going, told)
            except ValueError as error:
                record = Record(
                    message=received.message, schedule=Schedule(due=now), lane=self._there.broker, address=received.address, kind="refused",
                    taken=now,
                )  # fmt: skip
                strange.append(Refuse(record, Reason.REJECTED_BY_BROKER, str(error)))
        came.strange += len(strange)
        if strange:
            self._index.put(strange, now)
        for envelope, found in zip(going, self._index.migration.take_in([each.record for each in going], now), strict=True):
            if found is None:
                came.records += 1
                self._remember(envelope)
            else:
                came.again += 1
                if self._is_scheduled_again(envelope, found) and (one := _schedule(envelope)) not in self._told:
                    told[one] = LedgerEvent("replaced", now, envelope.record)
        if told:
            self._index.tell(list(told.values()), now, SourceProgress(_ENDINGS, list(told)))
            self._index.sync()
            self._told.update(told)
        self._tell(came.records)

    def _sort(self, envelope: Envelope, now: int, going: list[Envelope], told: dict[bytes, LedgerEvent]) -> None:
        record, claim = envelope.record, envelope.claim
        fate = None if claim is None else self._ids.fate(record.id, claim)
        event = None if fate is None else fate[0]
        if event == "over":
            # If the log still knows its claim, it is a copy that a move left when it was killed, and the other one comes, too.
            is_copy = claim is not None and said_by(self._ids.words(record.id), claim.mark) is not None
            self.came.again += is_copy
            self.came.ended += not is_copy
            return
        self.came.ended += event is not None
        if event is None:
            going.append(envelope)
        elif (one := _one(record, claim)) not in self._told:
            told[one] = LedgerEvent(event, now, record)
        if claim is not None:
            self._endings += self._ids.ending(record.id, claim, event, now)

    def _remember(self, envelope: Envelope) -> None:
        """Of a series, remember the order: its copies are alike, whatever made them, and only their order tells them apart."""
        if envelope.record.schedule.recurrence is not None:
            self._orders[_digest(envelope.record)] = envelope.order

    def _is_scheduled_again(self, envelope: Envelope, found: Record) -> bool:
        """Whether it was scheduled for itself, and not together with what was here already (see `copies.Copies`).

        Of a series whose other copy came before this move was interrupted, nobody can say.
        """
        record, order = envelope.record, envelope.order
        return record.taken != found.taken or self._orders.get(_digest(record), order) != order

    def left(self) -> None:
        """The broker has forgotten what came so far: the log of ids may, too."""
        endings, self._endings = self._endings, []
        if endings and self._there.log is not None:
            self._there.log.append(endings)


def _digest(what: Record | tuple[object, ...]) -> bytes:
    return blake2b(msgspec.msgpack.encode(what), digest_size=16).digest()


def _schedule(envelope: Envelope) -> bytes:
    """Names what was scheduled for itself, whichever copy of it comes: the ledger is told of it once."""
    return _digest((envelope.record.id, envelope.order))


def _one(record: Record, claim: Claim | None) -> bytes:
    """Names one occurrence that claims an id, whichever copy of it comes."""
    return _digest((record.id, record.schedule.occurrence, claim))
