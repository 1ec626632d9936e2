"""From a time index to level queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ...adapters.base import AdapterError, NotConnected, Rejected
from ...core.time_index.keys import arrival_of
from ..level_queues.ids.lines import ENDED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...adapters.clock import Clock
    from ...core.time_index import TimeIndex
    from ..outlet import Outlet
    from .place import Place, Tell

OUT = 100
"""Records of a batch towards level queues: so many at most may be delivered twice after a move that was killed."""


class MovedOut(msgspec.Struct):
    """What went to level queues.

    `withdrawn`: cancellations that are remembered for schedules that have not come; they stay behind. `refused`: messages that the broker never takes, and
    why; these stay behind, too.
    """

    records: int = 0
    dead_letters: int = 0
    withdrawn: int = 0
    refused: list[str] = []


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


def _insist(errors: Iterable[AdapterError]) -> None:
    """Go on where there are none, or only messages that the broker never takes. Raises AdapterError."""
    lasting = [error for error in errors if not isinstance(error, Rejected)]
    lost = next((error for error in lasting if isinstance(error, NotConnected)), None)
    if lasting:
        hint = "if the queue is not there, delaybridge apply makes it"
        raise lost or AdapterError(f"the level queues did not take {len(lasting)} messages: {lasting[0]} ({hint})")
