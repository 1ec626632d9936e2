"""What the ledger hears of the occurrences of a series in level queues, where bridges die between them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from contract.level_queues import Stepped
from contract.stores import MINUTE, T0, give, record, take
from msgspec.structs import replace

from delaybridge.core.downtimes import NONE
from delaybridge.core.recurrence import following
from delaybridge.core.store import Settled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    from delaybridge.bridge.level_queues.publisher import Item
    from delaybridge.core.store import Due


def delivered(due: Due) -> Settled:
    """And the following occurrence goes to its level."""
    now = due.record.schedule.due
    upcoming = following(due.record.schedule, now, NONE)
    return Settled(due.key, "delivered", now, next=replace(due.record, schedule=upcoming) if upcoming else None)


def test_an_occurrence_that_never_came_to_its_level_is_not_told_as_scheduled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its series comes again with the one before, and schedules it again: told twice, and ended once, it would be called missing."""
    place = tmp_path / "store"
    store = Stepped(place)
    give(store, record("tick", T0 + MINUTE, every=MINUTE))
    (first,) = take(store, T0 + MINUTE)

    def away(_: Sequence[Item]) -> None:
        """The broker has gone."""

    monkeypatch.setattr(store.publisher, "submit", away)
    store.settle([delivered(first)], T0 + MINUTE)
    store.die()

    again = Stepped(place)
    for number in (1, 2):
        again.settle([delivered(due) for due in take(again, T0 + number * MINUTE)], T0 + number * MINUTE)
    told = Counter((row.occurrence, row.event) for row in again.journal.unfiled.rows(100))
    assert [told[2, "scheduled"], told[2, "delivered"], told[3, "scheduled"]] == [1, 1, 1]
    again.close()
