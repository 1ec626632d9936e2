"""The second place where messages wait: one queue for each delay level, on a broker that the team has already.

The broker's cluster is the storage and the replication; a bridge holds nothing that another one could not take over. A message is durable when
the broker has confirmed it at a level, and is acknowledged there only when it is confirmed at its next level, or delivered. On the disk of a
bridge is its ledger alone: rows that are in no file yet.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

import structlog
from msgspec.structs import replace

from ...adapters.base import NotConnected
from ...core.downtimes import Downtimes
from ...core.reasons import Reason
from ...core.recurrence import following
from ...core.schedule import Schedule
from ...core.store import MEMORY_MS, Answer, Counts, LedgerEvent, Put, Record, Refuse, StoreFull, Withdraw
from ..clock import Clock, wall_clock
from .claims import Claims, named
from .copies import Copies
from .countdown import Countdown
from .doors import Doors
from .ids import ENDED
from .moving import MoveItem, both
from .publisher import Item
from .register import mark_of
from .unindexed import Unindexed, unsupported
from .waiting import Waiting

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Container, Iterator, Sequence

    from ...adapters.id_log import IdLog
    from ...core.ledger import Event
    from ...core.message import Message
    from ...core.store import Change, Due, Held, Settled, SourceProgress
    from .doors import Publishing
    from .envelope import Envelope
    from .ids import Claim, Fate
    from .journal import Journal
    from .passage import Finish, Taken
    from .places import Addressed, Places
    from .waiting import Entry

log = structlog.get_logger()

ENDING = 5.0
"""Seconds that a cancel waits for what is due about now to be delivered or withdrawn."""


class LevelQueues(Unindexed):
    """`core.store.Store` on the level queues of one broker.

    It is two more things: `passage.Onward`, which takes what leaves a level; and `moving.Departures`, which tells what is finished with its delivery.

    journal   keeps the ledger's rows until they are in files, and what sources gave last; closed with this
    lanes     the brokers to which this bridge can deliver
    wake      tells a lane that something for it has come into memory
    mover     makes moves, where the broker has transactions; then what lane `moving` delivers is finished with its delivery (see moving.py)
    down      when this bridge did not run
    exact     the routes whose tokens name one message each
    pending   how many messages wait, as the broker counts, when so many are in memory
    log       the log of ids, where the broker can keep one: then messages can be cancelled and replaced
    memory    for how long a cancel waits for its message (ms)
    """

    def __init__(
        self,
        places: Places,
        publisher: Publishing,
        journal: Journal,
        *,
        lanes: Container[str],
        wake: Callable[[str, int], None],
        mover: Publishing | None = None,
        moving: str = "",
        clock: Clock = wall_clock,
        down: Callable[[], Downtimes] = Downtimes,
        exact: Container[str] = (),
        pending: Callable[[int], int] = int,
        log: IdLog | None = None,
        memory: int = MEMORY_MS,
    ) -> None:
        super().__init__(places.shelf)
        self.places = places
        self._pending = pending
        self._mover = mover
        self._moving = moving
        self._clock = clock
        self._down = down
        self.journal = journal
        self._publisher = publisher
        self._lanes = lanes
        self._wake = wake
        self._waiting = Waiting()
        self.claims = Claims(log, self._waiting, self._end, wake, clock, memory)
        self._told_of: set[str] = set()
        self._lock = threading.Lock()
        self._untold: builtins.list[LedgerEvent] = []
        self._copies = Copies()
        self.doors = Doors(publisher, journal, exact)

    @property
    def cancels(self) -> bool:
        """See `core.store.Store.cancels`: where the broker keeps a log of ids."""
        return self.claims.register is not None

    # What comes in.

    def put(self, changes: Sequence[Change], now: int, came: SourceProgress | None = None) -> list[Answer]:
        """See `core.store.Store.put`. Durable is what the broker confirmed; raises NotConnected where it did not, and some of it may be there then.

        What comes again is recognised as `Doors` says; what is not is delivered again, under the same id where tokens are exact.
        """
        items: list[Addressed] = []
        told: list[LedgerEvent] = []
        source = came.source if came else ""
        exact = came.tokens if came and self.doors.exact(source) else [b""] * len(changes)
        bearing = [named(change, source, token) for change, token in zip(changes, exact, strict=True)]
        chosen = [not isinstance(change, Withdraw) and bool(change.record.id) for change in changes]
        marks = [token and mark_of(source, token) for token in exact]
        claims, answers = self.claims.enter(bearing, chosen, marks, now, self.doors.holder(source))
        for change, claim in zip(bearing, claims, strict=True):
            if not isinstance(change, Withdraw) and claim is not ENDED:
                self._change(change, claim, now, items, told)
        try:
            self.doors.enter(items, told, now, came)
        except NotConnected:
            self.claims.doubt()
            raise
        return answers

    def _change(self, change: Put | Refuse, claim: Claim | None, now: int, items: list[Addressed], told: list[LedgerEvent]) -> None:
        record = change.record
        told.append(LedgerEvent("scheduled", now, record))
        if isinstance(change, Put):
            items.append(self.places.enter(record, claim, now))
            return
        told.append(LedgerEvent("dead_lettered", now, record, reason=change.reason))
        items.append(self.places.dead(record, change.forward, now, change.reason, change.detail))

    # From level to level: `passage.Onward`.

    def leave(self, envelope: Envelope, taken: Taken, now: int, done: Finish) -> None:
        """See `passage.Onward`."""
        record = envelope.record
        fate = self.claims.fate(envelope)
        if fate is not None and envelope.claim is not None:
            self._end(record, envelope.claim, fate, taken, done)
        elif (place := self.places.hop(envelope, now)) is not None:
            self._insist([place], taken, done)
        elif record.lane not in self._lanes:
            self._unknown(record.lane)
            self._insist([self.places.round(envelope, now)], taken, done)
        elif not self.cancels and (first := self._copies.first(envelope, done)) is not None:
            if first.order != envelope.order:  # else both were scheduled as one
                self.journal.tell([LedgerEvent("replaced", now, record)], now)
            self._insist((), taken, done)
        else:
            self._waiting.add(envelope, taken, done)
            self._wake(record.lane, record.schedule.due)

    def _unknown(self, lane: str) -> None:
        """Another bridge put it here, and may know this destination broker: it goes round the first level until a bridge that does gets it."""
        if lane not in self._told_of:
            self._told_of.add(lane)
            log.error(
                "messages_without_broker", broker=lane, action=f"they go round the first level until a bridge has a broker named {lane}"
            )

    def aside(self, message: Message, taken: Taken, done: Finish) -> None:
        """See `passage.Onward`."""
        strange = Record(message=message, schedule=Schedule(due=0), lane="", address="", kind="refused")
        self._insist(
            [self.places.dead(strange, None, 0, Reason.REJECTED_BY_BROKER, "no bridge put this message into a level queue")], taken, done
        )

    def put_again(self, envelope: Envelope, taken: Taken, now: int, done: Finish) -> None:
        """See `passage.Onward`."""
        self._insist([self.places.again(envelope, now)], taken, done)

    def empty(self, taken: Taken, now: int) -> None:
        """See `passage.Onward`."""
        for entry in self._waiting.forget(taken, handed_out=True):
            if entry.finish.open:
                self.put_again(entry.envelope, taken, now, entry.finish)
            else:
                entry.finish()

    def moved(self, taken: Taken) -> None:
        """See `passage.Onward`."""
        self._waiting.let_go(taken)

    def lost(self, taken: Taken) -> None:
        """See `passage.Onward`."""
        self.claims.release()
        self._waiting.forget(taken)

    def _insist(self, items: Sequence[Addressed], taken: Taken, done: Finish, landed: Callable[[], None] | None = None) -> None:
        """Publish, again and again, until all are confirmed or the broker redelivers the message that they come from; then that may be acknowledged.

        `landed` is called before that, where all are confirmed.
        """
        if self._mover is not None:
            self._mover.submit([MoveItem(items, done, lambda: not taken.lost, landed)])
            return
        if not items:
            done()
            return
        last = Countdown(len(items), done if landed is None else partial(both, landed, done))
        self._publisher.submit([Item([item], last.one, lambda: not taken.lost) for item in items])

    # What goes out.

    def due(self, lane: str, now: int, limit: int, max_bytes: int, held: str | None = None) -> list[Due]:
        """See `core.store.Store.due`. The last look at the log of ids: what was cancelled or replaced is not handed out."""
        while found := self._waiting.due(lane, now, limit, max_bytes, held):
            if standing := self.claims.standing(found):
                return standing
        return []

    def next_due(self, lane: str) -> int | None:
        """See `core.store.Store.next_due`."""
        return self._waiting.next_due(lane)

    def settle(self, outcomes: Sequence[Settled], now: int, *, wait: bool = True) -> bool:
        """See `core.store.Store.settle`. The broker may forget a message when the following occurrence, or its dead letter, is confirmed.

        Nor does the ledger hear of that occurrence before: if it never comes to its level, it is scheduled again when this one comes again.
        """
        del wait
        taken = [(entry, outcome) for outcome in outcomes if (entry := self._waiting.take(outcome.key)) is not None]
        try:
            self.journal.tell([row for entry, outcome in taken for row in self._rows(entry, outcome, now)], now)
        except StoreFull:
            self._waiting.give_back([entry for entry, _ in taken])
            raise
        for entry, outcome in taken:
            self.claims.ended(entry.record, entry.claim, outcome.event, now, self._upcoming(entry, outcome))
            if self._is_moved(entry, outcome):
                entry.finish()
            else:
                scheduled = None if outcome.next is None else partial(self._tell, LedgerEvent("scheduled", now, outcome.next))
                self._insist(self._follow_up(entry, outcome, now), entry.origin, entry.finish, scheduled)
        return True

    def _is_moved(self, entry: Entry, outcome: Settled) -> bool:
        """Whether its delivery, what follows it and the end of its stay were one transaction."""
        return self._mover is not None and outcome.event == "delivered" and entry.record.lane == self._moving

    def _upcoming(self, entry: Entry, outcome: Settled) -> Record | None:
        return entry.next if self._is_moved(entry, outcome) else outcome.next

    def _rows(self, entry: Entry, outcome: Settled, now: int) -> Iterator[LedgerEvent]:
        record = entry.record
        if not record.is_carrier:
            lateness = outcome.at - record.schedule.due if outcome.event == "delivered" else None
            yield LedgerEvent(outcome.event, outcome.at, record, lateness, outcome.attempts, str(outcome.reason))
        if entry.next is not None and self._is_moved(entry, outcome):
            yield LedgerEvent("scheduled", now, entry.next)

    def _follow_up(self, entry: Entry, outcome: Settled, now: int) -> list[Addressed]:
        """What is to be confirmed before this record may be forgotten."""
        items: list[Addressed] = []
        if outcome.event == "dead_lettered" or outcome.forward is not None:
            items.append(self.places.dead(entry.record, outcome.forward, now, outcome.reason, outcome.detail))
        if outcome.next is not None:
            items.append(self.places.enter(outcome.next, entry.claim, now))
        return items

    # What is finished with its delivery: `moving.Departures`.

    def departing(self, key: bytes) -> tuple[bytes, Sequence[Addressed]] | None:
        """See `moving.Departures`."""
        entry = self._waiting.find(key)
        if entry is None:
            return None
        now, schedule = self._clock(), entry.record.schedule
        upcoming = None if schedule.recurrence is None else following(schedule, now, self._down())
        entry.next = None if upcoming is None else replace(entry.record, schedule=upcoming)
        return entry.finish.token, [self.places.enter(entry.next, entry.claim, now)] if entry.next else []

    def gone(self, key: bytes) -> None:
        """See `moving.Departures`."""
        entry = self._waiting.take(key)
        if entry is not None:
            entry.finish()

    # What is cancelled or replaced.

    def cancel(self, id: str, now: int) -> Answer:  # noqa: A002 - the field's own word
        """See `core.store.Store.cancel`. Raises Unsupported where the broker keeps no log of ids, else NotConnected where it cannot be written.

        `in_flight` after some seconds: it could not be seen yet what comes first, the delivery or the cancel, which stands.
        """
        if self.claims.register is None:
            raise unsupported("cancelling")
        return self.claims.register.cancel(id, now, ENDING)

    def _end(self, record: Record, claim: Claim, fate: Fate, taken: Taken, done: Finish) -> None:
        """See `claims.Ends`. Whichever bridge lets the broker forget it tells the ledger, where nobody has."""
        event = fate[0]
        if event == "over":
            self._insist((), taken, done)
        elif self._mover is not None:
            self._mover.submit([MoveItem((), done, lambda: not taken.lost, partial(self._tell_end, record, claim, event))])
        else:
            self._tell_end(record, claim, event)
            done()

    def _tell_end(self, record: Record, claim: Claim, event: Event) -> None:
        now = self._clock()
        self._tell(LedgerEvent(event, now, record))
        self.claims.ended(record, claim, event, now)

    def _tell(self, event: LedgerEvent) -> None:
        """Any thread."""
        with self._lock:
            self._untold.append(event)
        self._tell_rest()

    def _tell_rest(self) -> None:
        """What has ended at the broker cannot be given back where the disk is full: its rows wait in memory until there is room."""
        with self._lock:
            try:
                if self._untold:
                    self.journal.tell(self._untold, self._clock())
                    self._untold = []
            except StoreFull as error:
                log.error("store_full", worker="level ids", rows=len(self._untold), error=str(error))  # noqa: TRY400 - a full disk needs no traceback

    def sync(self) -> None:
        """See `core.store.Store.sync`: of the ledger's rows; the messages are the broker's."""
        self._tell_rest()
        self.journal.sync()

    def hold(self, failed: Sequence[Held], now: int) -> None:
        """See `core.store.Store.hold`. After a restart they are tried again as if for the first time."""
        del now
        self._waiting.hold(failed)

    def put_back(self, keys: Sequence[bytes]) -> None:
        """See `core.store.Store.put_back`."""
        self._waiting.put_back(keys)

    def held(self, lane: str) -> dict[str, tuple[int, str]]:
        """See `core.store.Store.held`."""
        return self._waiting.held(lane)

    def lanes(self) -> builtins.list[str]:
        """The lanes for which anything is in memory."""
        return self._waiting.lanes()

    def first_due(self) -> int | None:
        """When the first of what is in memory is due."""
        return self._waiting.first_due()

    def came(self, source: str) -> SourceProgress:
        """See `core.store.Store.came`: of what this bridge took in itself, where its tokens are exact."""
        return self.journal.came(source)

    def counts(self) -> Counts:
        """See `core.store.Store.counts`. `pending` is of all bridges, as the broker counted last; `held` and `events` are this bridge's."""
        here, held = self._waiting.count()
        return Counts(self._pending(here), held, 0, self.journal.counts().events, {}, {})

    # The ledger's rows, and the disk that they are on.

    def room(self) -> bool:
        """See `core.store.Store.room`: for ledger rows."""
        return self.journal.room()

    def free_bytes(self) -> int:
        """See `core.store.Store.free_bytes`."""
        return self.journal.free_bytes()

    def size_bytes(self) -> int:
        """See `core.store.Store.size_bytes`: of ledger rows."""
        return self.journal.size_bytes()

    def close(self) -> None:
        """See `core.store.Store.close`. The threads have ended by then."""
        self._tell_rest()
        self.journal.close()
