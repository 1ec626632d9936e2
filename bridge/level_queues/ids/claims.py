"""Ids in level queues, on a broker with a log of them: which messages claim one, which may be delivered, and what becomes of the others.

Without a log no message claims an id, and every message may be delivered.
"""

from __future__ import annotations

import threading
import uuid
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ....core.store import LedgerEvent, Put, Withdraw
from .register import Cancelling, Claiming, Register
from .replica import Replica

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....adapters.base import Holding
    from ....adapters.clock import Clock
    from ....adapters.id_log import IdLog
    from ....core.ledger import Event
    from ....core.store import Answer, Change, Due, Record
    from ...workers import Wake
    from ..entries import Entry
    from ..envelope import Envelope
    from ..exits import Exits
    from ..late_rows import LateRows
    from ..passage import Finish, Taken
    from ..waiting import Waiting
    from .known import Fate
    from .lines import Claim


class Claims:
    """Any thread. `memory` is for how long a cancel waits for its message (ms); `wake` tells a lane that something is due again."""

    def __init__(self, log: IdLog | None, waiting: Waiting, exits: Exits, rows: LateRows, wake: Wake, clock: Clock, memory: int) -> None:
        self.register = None if log is None else Register(Replica(log, clock, self._decided, self.release), clock, memory)
        self._waiting = waiting
        self._exits = exits
        self._rows = rows
        self._wake = wake
        self._clock = clock
        self._memory = memory
        self._lock = threading.Lock()
        self._uncertain: list[Entry] = []

    def enter(
        self, changes: Sequence[Change], claiming: Sequence[bool], marks: Sequence[bytes], now: int, holder: Holding | None = None
    ) -> tuple[list[Claim | None], list[Answer]]:
        """Claim and cancel for one intake batch: a claim for each change that needs one, and the answers to cancels. Raises NotConnected.

        `claiming` is what `needed` says of each as its source gave it. `marks` identify messages that their source may give again, where it can tell;
        `holder` is that source, where it can tell whether it has them still. A message that has ended already gets `lines.ENDED`: do not take it in.
        """
        found = [self._entry(*each, now) for each in zip(changes, claiming, marks, strict=True)]
        entries = [entry for entry in found if entry is not None]
        if self.register is None or not entries:
            return [None] * len(changes), []
        claims, answers = self.register.enter(entries, now, holder)
        left = iter(claims)
        return [next(left) if isinstance(entry, Claiming) else None for entry in found], answers

    def needed(self, change: Change) -> bool:
        """Whether this, as its source gave it, claims an id: one that its producer chose, or, as a series, that on its deliveries, by which it is stopped."""
        if self.register is None or not isinstance(change, Put):
            return False
        return bool(change.record.id) or change.record.schedule.recurrence is not None

    def doubt(self) -> None:
        """Some messages that claimed ids were not taken in, and come again."""
        if self.register is not None:
            self.register.replica.doubt()

    def _entry(self, change: Change, claiming: bool, mark: bytes, now: int) -> Claiming | Cancelling | None:
        if isinstance(change, Withdraw):
            return Cancelling(change.id, now + self._memory, mark)
        return Claiming(change.record.id, change.record.schedule.due, mark) if claiming else None

    def fate(self, envelope: Envelope) -> Fate | None:
        """Why a message goes no further, None if it may, as far as this bridge knows yet."""
        if self.register is None or envelope.claim is None:
            return None
        return self.register.fate(envelope.record.id, envelope.claim)

    def standing(self, found: Sequence[Due]) -> list[Due]:
        """Those that may be delivered now. The others are handed out again once this bridge has read enough of the log, or are withdrawn."""
        return list(found) if self.register is None else [due for due in found if self._stands(due, self.register)]

    def _stands(self, due: Due, register: Register) -> bool:
        entry = self._waiting.find(due.key)
        if entry is None or entry.claim is None:
            return entry is not None
        if not register.replica.certain(entry.claim, entry.since):
            with self._lock:
                self._uncertain.append(entry)
            return False
        fate = register.fate(entry.record.id, entry.claim)
        if fate is not None and self._waiting.take(entry.key) is not None:
            self._withdraw(entry, entry.claim, fate)
        return fate is None

    def ended(self, record: Record, claim: Claim | None, event: Event, now: int, upcoming: Record | None = None) -> None:
        """An occurrence has ended; `upcoming` is the next."""
        if self.register is None or claim is None:
            return
        if upcoming is None:
            self.register.ended(record.id, claim, event, now)
        else:
            self.register.goes_on(record.id, claim, upcoming.schedule.due, now)

    def release(self) -> None:
        """Hand out again what this bridge did not know enough about, for it has read more of the log."""
        with self._lock:
            uncertain, self._uncertain = self._uncertain, []
        if uncertain:
            self._waiting.release([entry.key for entry in uncertain])
        for entry in uncertain:
            self._wake(entry.record.lane, entry.record.schedule.due)

    def _decided(self, ids: set[str]) -> None:
        """Withdraw messages in memory whose end the log has decided.

        At once: a destination that refuses may keep them here for long, and by then the log may have forgotten how they ended.
        """
        assert self.register is not None
        for entry, claim in self._waiting.bearing(ids):
            fate = self.register.fate(entry.record.id, claim)
            if fate is not None and self._waiting.withdraw(entry.key) is not None:
                self._withdraw(entry, claim, fate)

    def _withdraw(self, entry: Entry, claim: Claim, fate: Fate) -> None:
        self.end(entry.record, claim, fate, entry.origin, entry.finish)

    def end(self, record: Record, claim: Claim, fate: Fate, taken: Taken, done: Finish) -> None:
        """Let the broker forget a message that must not be delivered, because it was cancelled or replaced. It is not in `Waiting` (any more).

        Whichever bridge does so tells the ledger, where nobody has.
        """
        told = None if fate[0] == "over" else partial(self._tell, record, claim, fate[0])
        self._exits.leave((), taken, done, told)

    def _tell(self, record: Record, claim: Claim, event: Event) -> None:
        now = self._clock()
        self._rows.tell(LedgerEvent(event, now, record))
        self.ended(record, claim, event, now)


def named(change: Change, source: str, token: bytes | None) -> Change:
    """The same change with an id, also where the producer chose none."""
    if isinstance(change, Withdraw) or change.record.id:
        return change
    return replace(change, record=replace(change.record, id=_id_of(source, token) if token else uuid.uuid4().hex))


def _id_of(source: str, token: bytes) -> str:
    """An id made from a token: whichever bridge reads the message gives it the same one."""
    return blake2b(token, digest_size=16, key=source.encode()[:64]).hexdigest()
