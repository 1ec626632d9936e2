"""Two bridges that are given the same messages in turn, and are killed at any point of taking them in: nothing is lost, and whatever bears an id comes once."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from contract.stores import bodies, take
from msgspec.structs import replace
from unit.level_queues.sharing import Killed, Sharing, killed
from unit.level_queues.test_taken_again import ASKS, DUE, ROUTE, SERIES, taking_in, written

from delaybridge.adapters.base import Batch, NotConnected
from delaybridge.bridge.level_queues.ids import replica as module

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence
    from pathlib import Path

    from delaybridge.adapters.base import Received

POINTS = ("publish", "tell", "commit", "hears", "")
"""Before what a bridge is killed: its messages enter their level, its rows are written, its source is told; `hears`: it lives, but its source does not hear
of it, for the connection is lost; or all goes well."""
INEXACT = "inexact"


class Group:
    """A partition that is given to one bridge at a time, from what is committed on; or a queue, whose messages are."""

    def __init__(self, records: Sequence[Received], *, queue: bool) -> None:
        self.committed = 0
        self.generation = 0
        self._records = records
        self._queue = queue

    def left(self) -> Sequence[Received]:
        """What nobody has committed."""
        left = self._records[self.committed :]
        return [replace(each, log=b"", redelivered=self.generation > 1) for each in left] if self._queue else left


class Member:
    """One bridge's end of it."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._known = 0
        self.deaf = False

    def connect(self) -> None:
        self._group.generation += 1
        self._known = self._group.generation

    def tenure(self) -> Hashable:
        return self._known

    def affirm(self, tenure: Hashable) -> bool:
        if tenure != self._group.generation:
            raise NotConnected("it has gone")
        return True

    def receive(self, limit: int, timeout: float) -> Batch | None:  # noqa: ARG002 - the contract's arguments
        records = self._group.left()
        return Batch(records, lambda: self.commit(len(records))) if records else None

    def commit(self, count: int) -> None:
        if self.deaf:
            raise NotConnected("it has gone")
        self._group.committed += count

    def close(self) -> None:
        pass


class Bridge:
    """Killed and started again, on a disk of its own."""

    def __init__(self, directory: Path, broker: str, group: Group, route: str) -> None:
        self._directory = directory
        self._broker = broker
        self._group = group
        self._route = route
        self._start()

    def _start(self) -> None:
        self.store = Sharing(self._directory, self._broker).start()
        self._member = Member(self._group)
        if self._route == ROUTE:
            self.store.doors.hold(ROUTE, self._member)
        self._intake = taking_in(self._member, self.store, self._route)

    def takes_in(self, killed_before: str) -> None:
        self._member.deaf = killed_before == "hears"
        with pytest.MonkeyPatch.context() as patch:
            if killed_before and not self._member.deaf:
                of = {"publish": self.store.doors, "tell": self.store.journal, "commit": self._member}[killed_before]
                patch.setattr(of, "_published" if killed_before == "publish" else killed_before, killed)
            try:
                self._intake.connect()
                with contextlib.suppress(NotConnected):
                    self._intake.step(0.0)
            except Killed:
                self.store.die()
                self._start()

    def delivers(self) -> list[str]:
        self.store.read()
        return bodies(take(self.store, DUE))


@pytest.mark.parametrize("kind", ["a log", "a queue", "a queue of look-alikes"])
@pytest.mark.parametrize("first", POINTS)
@pytest.mark.parametrize("second", POINTS)
@pytest.mark.parametrize("other", [True, False], ids=["another", "the same"])
def test_what_two_bridges_took_in_in_turn_is_not_lost_and_with_an_id_not_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, first: str, second: str, other: bool
) -> None:
    monkeypatch.setattr(module, "LOOK", 0.005)
    exact = kind != "a queue of look-alikes"
    records = [written(0, "plain", **ASKS), written(1, "named", **ASKS, **{"x-delay-id": "a"}), written(2, "series", **SERIES)]
    group = Group(records, queue=kind != "a log")
    one, two = (Bridge(tmp_path / str(number), str(tmp_path), group, ROUTE if exact else INEXACT) for number in range(2))
    one.takes_in(first)
    (two if other else one).takes_in(second)
    (one if other else two).takes_in("")

    delivered = Counter(one.delivers() + two.delivers())

    one.store.die()
    two.store.die()
    assert delivered["named"] == 1
    assert delivered["plain"] >= 1
    assert delivered["series"] == 1 or (delivered["series"] > 1 and not exact)
