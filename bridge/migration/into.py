"""From level queues to a time index."""

from __future__ import annotations

import time
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from ...core.reasons import Reason
from ...core.schedule import Schedule
from ...core.store import LedgerEvent, Record, Refuse, SourceProgress
from ..level_queues.envelope import Envelope, unpack
from ..level_queues.ids.known import said_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...adapters.base import Batch, Source
    from ...adapters.clock import Clock
    from ...adapters.id_log import Line
    from ...core.time_index import TimeIndex
    from ..level_queues.ids.lines import Claim
    from .place import Place, Tell

IN = 500
"""Records of a batch from level queues: none of them is doubled by a move that was killed."""

WAKING, UNKNOWN, QUIET = 10.0, 3.0, 1.0
"""Seconds to wait for the first message of a level: where the broker says that some wait, and where it says nothing; and for each next message.

Where some wait, the first is waited for also until no bridge that was killed before the move can hold it any more.
"""

SAYING = 1.0
"""Seconds of a wait after which it is told that the move goes on."""

_ENDINGS = "endings told by migrate-store"
"""In place of a route, which has no spaces in its name: of whose endings the ledger was told, so that a move that was killed tells of them once."""


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


def to_time_index(index: TimeIndex, there: Place, clock: Clock, tell: Tell) -> MovedIn:
    """Move everything that is at a level; dead letters stay where they are. Raises AdapterError and StoreError; then call it again."""
    keeper, before = _Keeper(index, there, clock, tell), -1
    released = time.monotonic() + there.held_after_a_kill
    while before != keeper.count:
        before = keeper.count
        depths = there.depths()
        for number, level in enumerate(there.queues):
            if depths is None or depths[number]:
                for source in there.adapter.level_contents(there.options, level):
                    _drain(source, UNKNOWN if depths is None else WAKING + max(0, released - time.monotonic()), keeper)
                    keeper.left()
    left = there.depths()
    there.trim()
    keeper.came.left = None if left is None else sum(left)
    return keeper.came


def _drain(source: Source, patience: float, keeper: _Keeper) -> None:
    try:
        source.connect()
        while (batch := _next(source, patience, keeper.say)) is not None:
            keeper.keep(batch)
            batch.ack()
            patience = QUIET
    finally:
        source.close()


def _next(source: Source, patience: float, say: Callable[[], None]) -> Batch | None:
    until = time.monotonic() + patience
    while True:
        left = until - time.monotonic()
        batch = source.receive(IN, max(0, min(SAYING, left)))
        if batch is not None or left <= SAYING:
            return batch
        say()


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
        self.say()

    def say(self) -> None:
        """Tell how far it has come."""
        self._tell(self.came.records)

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
