"""Takes dead letters off the shelf: to schedule or plan them again, or to drop them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ..core.store import Put, Refuse
from .views import NotPossibleError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..adapters.clock import Clock
    from ..core.store import DeadLetter, Store
    from .delivery.worker import LaneWorker
    from .intake.planner import Planner
    from .intake.worker import IntakeWorker


class Shelf:
    """Does with one dead letter what somebody asks. Any thread may call it; of two who ask for the same letter at once, one gets it."""

    def __init__(self, store: Store, intakes: Mapping[str, IntakeWorker], lanes: Mapping[str, LaneWorker], clock: Clock) -> None:
        self._store = store
        self._intakes = intakes
        self._lanes = lanes
        self._clock = clock
        self._lock = threading.Lock()

    def drop(self, number: int) -> bool:
        """See `views.ControlPort.drop_dead_letter`."""
        with self._lock:
            return self._store.drop_dead_letter(number, self._clock())

    def retry(self, number: int) -> bool:
        """See `views.ControlPort.retry_dead_letter`."""
        with self._lock:
            done = self._retry(number)
        for lane in self._lanes.values():
            lane.poke()
        return done

    def _retry(self, number: int) -> bool:
        letter = next(iter(self._store.dead_letters(1, number - 1)), None)
        if letter is None or letter.number != number:
            return False
        record = letter.record
        if not record.is_carrier:
            return self._schedule_again(letter)
        worker = self._intakes.get(record.route)
        if worker is None:
            raise NotPossibleError(f"its route {record.route!r} is no longer configured")
        planner = worker.intake.planner
        route = planner.route
        if record.kind != "dead_letter":
            return self._plan_again(planner, letter)
        if not route.dead_letter or route.lane != record.lane:
            raise NotPossibleError(
                f"its route {record.route!r} has no `dead_letter` on {record.lane!r} any more: drop it, or configure one"
            )
        return self._schedule_again(letter, route.dead_letter)

    def _schedule_again(self, letter: DeadLetter, address: str = "") -> bool:
        broker = letter.record.lane
        if broker not in self._lanes:
            raise NotPossibleError(f"no route leads to its broker {broker!r} any more: configure one and restart the bridge")
        return self._store.retry_dead_letter(letter.number, self._clock(), address)

    def _plan_again(self, planner: Planner, letter: DeadLetter) -> bool:
        """Plan a message anew that was refused on arrival. It is stored first and taken off the shelf then: after a crash in between it lies there as well.

        A later message that is pending under its id keeps the id; this one gets another.
        """
        change = planner.plan_again(letter, self._clock())
        if isinstance(change, Refuse):
            raise NotPossibleError(f"it would be refused again: {change.reason}: {change.detail}")
        if isinstance(change, Put):
            change = Put(change.record, letter.record.taken)
        self._store.put([change], self._clock())
        self._store.drop_dead_letter(letter.number, self._clock())
        return True
