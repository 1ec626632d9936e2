"""What people ask for: cancel, reschedule, find, and the shelf."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..recurrence import moved
from ..schedule import Schedule
from ..store import Answer, EndsBefore, Pending
from . import keys
from .locate import Located, became, locate
from .state import State, encode

if TYPE_CHECKING:
    from ..ledger import Kind


class Control:
    """Applies requests that are about one record."""

    def __init__(self, state: State) -> None:
        self._state = state

    def _idle(self, record_id: str) -> Located | Answer:
        """The record if it can be moved or removed now, otherwise the answer to give."""
        found = locate(self._state, record_id)
        if not isinstance(found, Located):
            return became(self._state, record_id, found)
        return Answer("in_flight") if found.key in self._state.lanes.claimed else found

    def cancel(self, record_id: str, now: int) -> Answer:
        """See `Store.cancel`."""
        state, found = self._state, self._idle(record_id)
        if isinstance(found, Answer):
            return found
        change = state.change()
        state.cancel(change, found.key, found.record, now)
        state.commit(change)
        return Answer("done")

    def reschedule(self, record_id: str, due: int, now: int) -> Answer:
        """See `Store.reschedule`. The record keeps its arrival number. One that was withdrawn while in flight is gone.

        The ledger tells of it as of any replacement: what was due then is `replaced` by what is due now.
        """
        state, found = self._state, self._idle(record_id)
        if isinstance(found, Answer):
            return found
        change = state.change()
        if found.key in state.doomed:
            state.bury(change, found.key, found.record, now)
            state.commit(change)
            return Answer("too_late", "cancelled", now)
        due, ends = max(due, now), found.record.schedule.ends
        if ends is not None and due > ends:
            raise EndsBefore(ends, due)
        record = replace(found.record, schedule=moved(found.record.schedule, due))
        key = keys.moved(found.key, due)
        state.remove(change, found.key, found.record)
        change.due[key] = encode(record)
        change.came(state.lanes.of(key), key)
        change.event("replaced", now, found.record, record_id)
        change.event("scheduled", now, record, record_id)
        change.count(record, 1)
        state.ids.points(change, record_id, key)
        state.commit(change)
        return Answer("done")

    def find(self, record_id: str) -> Pending | Answer:
        """See `Store.find`."""
        found = locate(self._state, record_id)
        if isinstance(found, Located):
            return pending(self._state, found)
        return became(self._state, record_id, found)

    def retry(self, number: int, now: int, address: str) -> bool:
        """See `Store.retry_dead_letter`. It is scheduled once, under its own id unless a pending record bears that by now."""
        state = self._state
        letter = state.shelf.get(number)
        if letter is None:
            return False
        change = state.change()
        state.shelf.remove(change, letter)
        old = letter.record
        kind: Kind = "once" if old.is_carrier else old.kind
        record = replace(old, kind=kind, address=address or old.address, schedule=Schedule(due=now, occurrence=old.schedule.occurrence))
        if isinstance(locate(state, old.id), Located):
            made = state.made.of(state.next_key(change, record, now))
            record = replace(record, id=made)
        state.schedule(change, record, encode(record), now)
        state.commit(change)
        return True

    def drop(self, number: int) -> bool:
        """See `Store.drop_dead_letter`."""
        state = self._state
        letter = state.shelf.get(number)
        if letter is None:
            return False
        change = state.change()
        state.shelf.remove(change, letter)
        state.commit(change)
        return True


def pending(state: State, found: Located) -> Pending:
    """A record with its state."""
    held = state.held.find(found.key, found.record)
    attempts, error = held[1] if held else (0, "")
    if found.key in state.lanes.claimed:
        return Pending(found.record, "in_flight", attempts, error)
    return Pending(found.record, "held" if held else "waiting", attempts, error)
