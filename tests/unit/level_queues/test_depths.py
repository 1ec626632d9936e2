"""How much waits in level queues, of what the broker counts and what a bridge has taken; and when what is finished is deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from delaybridge.adapters.base import AdapterError, NotConnected
from delaybridge.bridge.level_queues import depths as module
from delaybridge.bridge.level_queues.depths import TRIM_EVERY, DepthWorker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delaybridge.adapters.preparing import Step


class Queues:
    """Level queues of which the broker counts these, and whose worker is then stopped."""

    held_after_a_kill = 0.0

    def __init__(self, depths: list[int], *, counts_taken: bool) -> None:
        self.counts_taken = counts_taken
        self._depths = depths
        self.worker = DepthWorker(self, lambda *_: None)

    def depths(self) -> list[int]:
        self.worker.stopping.set()
        return self._depths

    def plan(self) -> list[Step]:
        return []

    apply = undo = plan


@pytest.mark.parametrize(("counts_taken", "pending"), [(True, 12), (False, 17)], ids=["counts what is taken", "leaves it out"])
def test_what_a_bridge_has_taken_is_pending_once_whether_the_broker_counts_it_or_not(counts_taken: bool, pending: int) -> None:
    worker = Queues([7, 5], counts_taken=counts_taken).worker

    worker.run()
    assert worker.pending(5) == pending


def test_as_long_as_the_broker_does_not_say_how_much_waits_nobody_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    queues = Queues([7, 5], counts_taken=True)
    assert queues.worker.pending(5) is None
    queues.worker.run()
    assert queues.worker.pending(5) == 12

    def unknown(_: Queues) -> list[int]:
        raise AdapterError("no statistics")

    monkeypatch.setattr(Queues, "depths", unknown)
    queues.worker._ask()
    assert queues.worker.pending(5) is None


class Kept(Queues):
    """Level queues of a broker that keeps what is finished. Their worker is stopped after so many questions; `answers` are those of `trim`, at last none."""

    def __init__(self, questions: int, answers: Sequence[AdapterError | None] = ()) -> None:
        super().__init__([0], counts_taken=True)
        self.trimmed = 0
        self._left = questions
        self._answers = list(answers)

    def depths(self) -> list[int]:
        self._left -= 1
        if not self._left:
            self.worker.stopping.set()
        return [0]

    def trim(self) -> None:
        self.trimmed += 1
        error = self._answers.pop(0) if self._answers else None
        if error is not None:
            raise error


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits between two questions."""
    monkeypatch.setattr(module, "EVERY", 0.0)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("questions", "times"), [(TRIM_EVERY - 1, 0), (TRIM_EVERY, 1), (3 * TRIM_EVERY, 3)])
def test_what_is_finished_is_deleted_after_every_so_many_questions(questions: int, times: int) -> None:
    queues = Kept(questions)
    queues.worker.run()
    assert queues.trimmed == times


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ("-++", []),  # the queues were not made yet
        ("---", ["level_depths_unknown"]),
        ("+--+-", ["level_depths_unknown", "level_depths_known", "level_depths_unknown"]),
        ("--+", ["level_depths_unknown", "level_depths_known"]),
    ],
)
def test_depths_that_the_broker_does_not_say_are_told_of_once_and_when_they_are_known_again(answers: str, told: list[str]) -> None:
    queues, left = Kept(1), list(answers)

    def depths() -> list[int]:
        answer = left.pop(0)
        if not left:
            queues.worker.stopping.set()
        if answer == "-":
            raise AdapterError("grant it")
        return [0]

    queues.depths = depths  # type: ignore[method-assign]  # the broker answers as the case says
    with capture_logs() as logs:
        queues.worker.run()

    assert [line["event"] for line in logs] == told


@pytest.mark.usefixtures("at_once")
def test_a_broker_that_does_not_answer_is_told_of_once_and_asked_again() -> None:
    lost = NotConnected("no broker")
    queues = Kept(5 * TRIM_EVERY, [lost, lost, None, lost])
    with capture_logs() as logs:
        queues.worker.run()
    assert queues.trimmed == 5
    assert [line["event"] for line in logs] == ["levels_not_trimmed"] * 2


@pytest.mark.usefixtures("at_once")
def test_a_broker_that_does_not_allow_it_is_told_of_once_and_not_asked_again() -> None:
    queues = Kept(5 * TRIM_EVERY, [NotConnected("no broker"), AdapterError("grant DELETE")])
    with capture_logs() as logs:
        queues.worker.run()
    assert queues.trimmed == 2
    assert [line["error"] for line in logs] == ["no broker", "grant DELETE"]
    assert queues.worker.depths == [0]
