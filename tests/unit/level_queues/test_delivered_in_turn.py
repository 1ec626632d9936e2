"""Two bridges that deliver a series in turn, each killed at any point of that: no occurrence is lost, and what is said of its id meanwhile holds."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from contract.level_queues import Immediate, Stepped
from contract.stores import MINUTE, T0, bodies, give, record, take
from msgspec.structs import replace
from unit.level_queues.sharing import Killed, Sharing, killed
from unit.level_queues.test_series import due_next

from delaybridge.bridge.level_queues.ids import replica as module
from delaybridge.bridge.level_queues.ids.register import Register
from delaybridge.bridge.level_queues.passage import Finish
from delaybridge.core.schedule import Recurrence, Schedule
from delaybridge.core.time_index import TimeIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from delaybridge.core.store import Record

POINTS: dict[str, Sequence[tuple[Any, str]]] = {
    "its rows are written": [(TimeIndex, "tell")],
    "the log hears of it": [(Register, "ended"), (Register, "goes_on")],
    "what follows is at its level": [(Immediate, "submit")],
    "the broker may forget it": [(Finish, "__call__")],
    "nothing": [],
}
"""Before what a bridge is killed that has delivered an occurrence."""
OCCURRENCES = [1, 2, 3]
BETWEEN = T0 + 3 * MINUTE // 2


class Bridge:
    """Killed and started again, on a disk of its own. `ids`: the broker keeps a log of them."""

    def __init__(self, directory: Path, broker: str, *, ids: bool = True) -> None:
        self._directory = directory
        self._broker = broker
        self._ids = ids
        self.delivered: list[Delivered] = []
        self._start()

    def _start(self) -> None:
        self.store = Sharing(self._directory, self._broker).start() if self._ids else Stepped(self._directory, name=self._broker)

    def delivers(self, minute: int, killed_before: str = "nothing") -> None:
        """Whatever is due at that minute."""
        now = T0 + minute * MINUTE
        self.store.move_on(now)
        if isinstance(self.store, Sharing):
            self.store.read()
        if not (found := take(self.store, now)):
            return
        self.delivered += (Delivered(minute, body, due.record.schedule.occurrence) for body, due in zip(bodies(found), found, strict=True))
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
            for owner, name in POINTS[killed_before]:
                patch.setattr(owner, name, killed)
            self.store.settle([due_next(due) for due in found], now)
            return
        for passage in self.store.passages:
            passage._acknowledge(at_once=True)  # by then the broker has forgotten what it may
        self.store.die()
        self._start()


class Delivered(NamedTuple):
    """In which minute, what, and which occurrence of it."""

    minute: int
    body: str
    occurrence: int


def series(body: str, start: int) -> Record:
    schedule = Schedule(due=start, recurrence=Recurrence(start=start, period=MINUTE, repeat=len(OCCURRENCES) - 1))
    return replace(record(body, chosen_id="a", kind="period"), schedule=schedule)


@pytest.fixture
def bridges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[tuple[Bridge, Bridge]]:
    monkeypatch.setattr(module, "LOOK", 0.005)
    one, two = (Bridge(tmp_path / str(number), str(tmp_path), ids=getattr(request, "param", True)) for number in range(2))
    give(one.store, series("old", T0 + MINUTE))
    yield one, two
    one.store.die()
    two.store.die()


def in_turn(one: Bridge, two: Bridge, first: str, second: str, between: Callable[[Bridge], object]) -> set[Delivered]:
    """What both deliver, each killed once."""
    one.delivers(1, first)
    two.delivers(1)
    between(two)
    two.delivers(2, second)
    for minute in range(2, 7):
        one.delivers(minute)
        two.delivers(minute)
    return {*one.delivered, *two.delivered}


@pytest.mark.parametrize("bridges", [True, False], ids=["a log of ids", "none"], indirect=True)
@pytest.mark.parametrize("first", POINTS)
@pytest.mark.parametrize("second", POINTS)
def test_no_occurrence_is_lost(bridges: tuple[Bridge, Bridge], first: str, second: str) -> None:
    delivered = in_turn(*bridges, first, second, lambda _: None)
    assert {(each.minute, each.occurrence) for each in delivered} == set(zip(OCCURRENCES, OCCURRENCES, strict=True))


@pytest.mark.parametrize("first", POINTS)
@pytest.mark.parametrize("second", POINTS)
def test_what_is_cancelled_after_its_first_occurrence_has_no_second(bridges: tuple[Bridge, Bridge], first: str, second: str) -> None:
    def cancelled(by: Bridge) -> None:
        by.store.move_on(BETWEEN)
        assert isinstance(by.store, Sharing)
        assert by.store.register.cancel("a", BETWEEN, 0.0).outcome in ("done", "in_flight")

    assert {each.minute for each in in_turn(*bridges, first, second, cancelled)} == {1}
    assert sum(bridge.store.left() for bridge in bridges if isinstance(bridge.store, Sharing)) == 0


@pytest.mark.parametrize("first", POINTS)
@pytest.mark.parametrize("second", POINTS)
def test_what_replaces_it_after_its_first_occurrence_comes_in_its_place(bridges: tuple[Bridge, Bridge], first: str, second: str) -> None:
    delivered = in_turn(*bridges, first, second, lambda by: give(by.store, series("new", T0 + 2 * MINUTE), now=BETWEEN))

    assert {each.minute for each in delivered if each.body == "old"} == {1}
    assert [each.occurrence for each in sorted(delivered) if each.body == "new"] == OCCURRENCES
