"""From an id to the record that bears it, or to what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ..store import Answer, Record
from . import keys

if TYPE_CHECKING:
    from .change import Change
    from .ids import Known
    from .state import State


class Located(Struct, frozen=True):
    """A pending record and where it is."""

    key: bytes
    record: Record


def locate(state: State, record_id: str, change: Change | None = None) -> Located | Known | None:
    """The pending record with this id, as the change under way leaves it; or what is remembered of the id; or None."""
    known = state.ids.get(change, record_id)
    key = known.key if known else state.made.key(record_id)
    if key is None:
        return known
    if change is not None and key in change.due:
        record = change.fresh.get(key)
    else:
        record = state.lanes.claimed.get(key)
        if record is None and (read := state.read(key)):
            record = read[0]
    if record is None or record.id != record_id or record.is_carrier:
        return None
    return Located(key, record)


def became(state: State, record_id: str, known: Known | None) -> Answer:
    """The answer for an id that no pending record bears."""
    if known is not None:
        return Answer("too_late", known.event, known.at) if known.event else Answer("unknown")
    key = state.made.key(record_id)
    gone = key is not None and _is_number(state, keys.number_of(key)) and keys.arrival_of(key) < state.numbers.arrival
    return Answer("too_late" if gone else "unknown")


def _is_number(state: State, number: int) -> bool:
    """Whether a made id may begin with this."""
    return number == keys.NO_TRACK or number in state.lanes.tracks
