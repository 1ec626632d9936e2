"""The second place where messages wait: one queue for each delay level, on a broker that the team has already.

The broker's cluster is the storage and the replication; a bridge holds nothing that another one could not take over. A message is durable when
the broker has confirmed it at a level, and is acknowledged there only when it is confirmed at its next level, or delivered. On the disk of a
bridge is its ledger alone: rows that are in no file yet.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...adapters.base import NotConnected
from ...core.store import Answer, Counts, LedgerEvent, Put, Record, Refuse, StoreFull, Withdraw
from .ids.claims import named
from .ids.lines import ENDED
from .ids.register import mark_of
from .unindexed import Unindexed, unsupported

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterator, Sequence

    from ...core.store import Change, Due, Held, Settled, SourceProgress
    from ...core.targets import Target
    from .doors import Doors
    from .entries import Entry
    from .exits import Exits
    from .ids.claims import Claims
    from .ids.lines import Claim
    from .journal import Journal
    from .late_rows import LateRows
    from .places import Addressed, Places
    from .waiting import Waiting

ENDING = 5.0
"""Seconds that a cancel waits for what is due about now to be delivered or withdrawn."""


class LevelQueues(Unindexed):
    """`core.store.Store` on the level queues of one broker. What moves between them goes by `hops`.

    waiting   what has left its last level and is in this bridge's memory
    journal   keeps the ledger's rows until they are in files, and what sources gave last; closed with this
    moving    the lane whose deliveries, where the broker has transactions, are one move with what follows them (see moving.py)
    pending   how many messages wait, as the broker counts, when so many are in memory; None while it does not say
    """

    def __init__(
        self,
        places: Places,
        claims: Claims,
        waiting: Waiting,
        doors: Doors,
        exits: Exits,
        journal: Journal,
        rows: LateRows,
        *,
        moving: str | None = None,
        pending: Callable[[int], int | None] = int,
    ) -> None:
        super().__init__(places.shelf)
        self.places = places
        self.claims = claims
        self.doors = doors
        self.journal = journal
        self._waiting = waiting
        self._exits = exits
        self._rows = rows
        self._moving = moving
        self._pending = pending

    @property
    def cancels(self) -> bool:
        """See `core.store.Store.cancels`: where the broker keeps a log of ids."""
        return self.claims.register is not None

    # What comes in.

    def put(self, changes: Sequence[Change], now: int, came: SourceProgress | None = None) -> list[Answer]:
        """See `core.store.Store.put`. Durable is what the broker confirmed.

        Raises NotConnected where it did not confirm all, and StoreFull where the ledger has no room: some or all may be there then. What comes again is
        recognised as `Doors` says; what is not is delivered again, under the same id where tokens are exact.
        """
        items: list[Addressed] = []
        told: list[LedgerEvent] = []
        source = came.source if came else ""
        exact = came.tokens if came and self.doors.exact(source) else [b""] * len(changes)
        bearing = [named(change, source, token) for change, token in zip(changes, exact, strict=True)]
        claiming = [self.claims.needed(change) for change in changes]
        marks = [token and mark_of(source, token) for token in exact]
        claims, answers = self.claims.enter(bearing, claiming, marks, now, self.doors.holder(source))
        for change, claim in zip(bearing, claims, strict=True):
            if not isinstance(change, Withdraw) and claim is not ENDED:
                self._change(change, claim, now, items, told)
        try:
            self.doors.enter(items, told, now, came)
        except (NotConnected, StoreFull):
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

    # What goes out.

    def due(self, lane: str, now: int, limit: int, max_bytes: int) -> list[Due]:
        """See `core.store.Store.due`."""
        return self._standing(lane, partial(self._waiting.due, lane, now, limit, max_bytes))

    def due_held(self, lane: str, target: Target, now: int, limit: int, max_bytes: int) -> builtins.list[Due]:
        """See `core.store.Store.due_held`."""
        del now
        return self._standing(lane, partial(self._waiting.due_held, lane, target, limit, max_bytes))

    def _standing(self, lane: str, take: Callable[[], builtins.list[Due]]) -> builtins.list[Due]:
        """The last look: what was cancelled or replaced is not handed out, as the log of ids says, nor what this bridge has delivered or handed out already."""
        while found := take():
            if standing := self.claims.standing(self._without_copies(lane, found)):
                return standing
        return []

    def _without_copies(self, lane: str, found: builtins.list[Due]) -> builtins.list[Due]:
        if lane == self._moving:
            return found  # moved once, however often it comes
        copies = {entry.key: entry for entry in self._waiting.take_copies(found)}
        for entry in copies.values():
            self._exits.leave((), entry.origin, entry.finish)
        return [due for due in found if due.key not in copies] if copies else found

    def next_due(self, lane: str) -> int | None:
        """See `core.store.Store.next_due`."""
        return self._waiting.next_due(lane)

    def settle(self, outcomes: Sequence[Settled], now: int, *, wait: bool = True) -> bool:
        """See `core.store.Store.settle`. The broker may forget a message when the following occurrence, or its dead letter, is confirmed.

        Nor does the ledger hear of that occurrence before: if it never comes to its level, it is scheduled again when this one comes again.
        """
        del wait
        taken = [(entry, outcome) for outcome in outcomes if (entry := self._waiting.take(outcome.key)) is not None]
        certain = [(entry, outcome) for entry, outcome in taken if not self._is_to_be_moved(outcome)]
        try:
            self.journal.tell([row for entry, outcome in certain for row in self._told(entry, outcome, now)], now)
        except StoreFull:
            self._waiting.give_back(entry for entry, _ in taken)
            raise
        self._waiting.remember(entry for entry, outcome in taken if outcome.event == "delivered" and not self._is_moved(entry, outcome))
        for entry, outcome in taken:
            self.claims.ended(entry.record, entry.claim, outcome.event, now, self._upcoming(entry, outcome))
            if self._is_moved(entry, outcome):
                entry.finish()
            else:
                later = list(self._told_later(entry, outcome, now))
                self._exits.leave(self._follow_up(entry, outcome, now), entry.origin, entry.finish, partial(self._tell, later))
        return True

    def _is_moved(self, entry: Entry, outcome: Settled) -> bool:
        """Whether its delivery, what follows it and the end of its stay were one transaction."""
        return outcome.event == "delivered" and entry.record.lane == self._moving

    def _is_to_be_moved(self, outcome: Settled) -> bool:
        """Whether it ends so only if its transaction succeeds: else this message comes again, here or at another bridge, which then says how it ended."""
        return self._moving is not None and outcome.event != "delivered"

    def _upcoming(self, entry: Entry, outcome: Settled) -> Record | None:
        return entry.next if self._is_moved(entry, outcome) else outcome.next

    def _told(self, entry: Entry, outcome: Settled, now: int) -> Iterator[LedgerEvent]:
        record = entry.record
        if not record.is_carrier:
            lateness = outcome.at - record.schedule.due if outcome.event == "delivered" else None
            yield LedgerEvent(outcome.event, outcome.at, record, lateness, outcome.attempts, str(outcome.reason))
        if entry.next is not None and self._is_moved(entry, outcome):
            yield LedgerEvent("scheduled", now, entry.next)

    def _told_later(self, entry: Entry, outcome: Settled, now: int) -> Iterator[LedgerEvent]:
        """What is true once `_follow_up` is confirmed."""
        if self._is_to_be_moved(outcome):
            yield from self._told(entry, outcome, now)
        if outcome.next is not None:
            yield LedgerEvent("scheduled", now, outcome.next)

    def _tell(self, rows: Sequence[LedgerEvent]) -> None:
        for row in rows:
            self._rows.tell(row)

    def _follow_up(self, entry: Entry, outcome: Settled, now: int) -> list[Addressed]:
        """What is to be confirmed before this record may be forgotten."""
        items: list[Addressed] = []
        if outcome.event == "dead_lettered" or outcome.forward is not None:
            items.append(self.places.dead(entry.record, outcome.forward, now, outcome.reason, outcome.detail))
        if outcome.next is not None:
            items.append(self.places.enter(outcome.next, entry.claim, now))
        return items

    # What is cancelled or replaced.

    def cancel(self, id: str, now: int) -> Answer:  # noqa: A002 - the field's own word
        """See `core.store.Store.cancel`. Raises Unsupported where the broker keeps no log of ids, else NotConnected where it cannot be written.

        `in_flight` after some seconds: it could not be seen yet what comes first, the delivery or the cancel, which stands.
        """
        if self.claims.register is None:
            raise unsupported("cancelling")
        return self.claims.register.cancel(id, now, ENDING)

    def sync(self) -> None:
        """See `core.store.Store.sync`: of the ledger's rows; the messages are the broker's."""
        self._rows.write()
        self.journal.sync()

    def hold(self, failed: Sequence[Held], now: int) -> None:
        """See `core.store.Store.hold`. After a restart they are tried again as if for the first time."""
        del now
        self._waiting.hold(failed)

    def put_back(self, keys: Sequence[bytes]) -> None:
        """See `core.store.Store.put_back`."""
        self._waiting.put_back(keys)

    def held(self, lane: str) -> dict[Target, tuple[int, str]]:
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

    def forget(self, source: str) -> None:
        """See `core.store.Store.forget`."""
        self.journal.forget(source)

    def wants_again(self, source: str, change: Change) -> bool:
        """See `core.store.Store.wants_again`: what claims an id, unless nobody else can have been given it.

        Another bridge may have claimed it since, and have been killed before it took it in: then no copy that waits may be delivered, because that bridge's
        would count. The claim that this makes is later than any such.
        """
        return self.doors.may_have_moved(source) and self.claims.needed(change)

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
        self._rows.write()
        self.journal.close()
