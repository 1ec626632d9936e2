"""Where messages go from a level: to the next one, to the bridge's memory for the last instants, or, where nobody may deliver them, to their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from ...core.reasons import Reason
from ...core.schedule import Schedule
from ...core.store import LedgerEvent, Record
from .copies import Copies

if TYPE_CHECKING:
    from collections.abc import Container

    from ...core.message import Message
    from ..workers import Wake
    from .envelope import Envelope
    from .exits import Exits
    from .ids.claims import Claims
    from .journal import Rows
    from .passage import Finish, Taken
    from .places import Places
    from .waiting import Waiting

log = structlog.get_logger()


class Hops:
    """See `passage.Onward`. `lanes` are the brokers to which this bridge can deliver; `wake` tells a lane that something for it has come into memory."""

    def __init__(
        self,
        places: Places,
        claims: Claims,
        waiting: Waiting,
        exits: Exits,
        journal: Rows,
        lanes: Container[str],
        wake: Wake,
    ) -> None:
        self._places = places
        self._claims = claims
        self._waiting = waiting
        self._exits = exits
        self._journal = journal
        self._lanes = lanes
        self._wake = wake
        self._copies = Copies()
        self._told_of: set[str] = set()

    def leave(self, envelope: Envelope, taken: Taken, now: int, done: Finish) -> None:
        """See `passage.Onward`."""
        record = envelope.record
        fate = self._claims.fate(envelope)
        if fate is not None and envelope.claim is not None:
            self._claims.end(record, envelope.claim, fate, taken, done)
        elif (place := self._places.hop(envelope, now)) is not None:
            self._exits.leave([place], taken, done)
        elif record.lane not in self._lanes:
            self._unknown(record.lane)
            self._exits.leave([self._places.round(envelope, now)], taken, done)
        elif self._claims.register is None and (first := self._copies.first(envelope, done)) is not None:
            if first.order != envelope.order:  # else both were scheduled as one
                self._journal.tell([LedgerEvent("replaced", now, record)], now)
            self._exits.leave((), taken, done)
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
        dead = self._places.dead(strange, None, 0, Reason.REJECTED_BY_BROKER, "no bridge put this message into a level queue")
        self._exits.leave([dead], taken, done)

    def empty(self, taken: Taken) -> int:
        """See `passage.Onward`."""
        back = 0
        for entry in self._waiting.forget(taken, handed_out=True):
            if entry.finish.open:
                back += 1
            else:
                entry.finish()
        return back

    def moved(self, taken: Taken) -> None:
        """See `passage.Onward`."""
        self._waiting.let_go(taken)

    def lost(self, taken: Taken) -> None:
        """See `passage.Onward`."""
        self._claims.release()
        self._waiting.forget(taken)
