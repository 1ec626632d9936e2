"""Level queues on RabbitMQ are taken away where nothing is in them, seen or unseen."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from brokers.common import Unavailable, wait_until

from contract.test_rabbitmq_levels import Stage, leaving
from delaybridge.adapters.rabbitmq import level_queues

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.rabbitmq import Broker


@pytest.fixture
def stage(rabbitmq: Broker) -> Iterator[Stage]:
    made = Stage(rabbitmq)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a RabbitMQ that tries again after a second."""
    monkeypatch.setattr(level_queues, "SECOND_LOOK", 2.5)


def retrying(stage: Stage, milliseconds: int) -> None:
    """What a queue made from now on could not hand on, RabbitMQ tries again after so long."""
    try:
        stage.broker.control("eval", f"application:set_env(rabbit, dead_letter_worker_publisher_confirm_timeout, {milliseconds}).")
    except Unavailable as reason:
        pytest.skip(str(reason))


def hold_up(stage: Stage, count: int) -> None:
    """So many messages that have waited, and that RabbitMQ could not hand on; nothing is in their way any more."""
    stage.queues().apply()
    stage.delete(f"{stage.level.name}.out")
    stage.confirmed(stage.level, *range(count))
    wait_until(lambda: stage.queues().depths() == [0, 0], "them to have waited", 60)
    stage.queues().apply()


def test_undo_takes_empty_queues_away_and_can_be_repeated(stage: Stage) -> None:
    stage.queues().apply()
    for _ in range(2):
        assert [step.done for step in stage.queues().undo()] == [True] * 3
    assert not any(stage.exists(name) for name in stage.names)


def test_undo_of_what_is_not_there_takes_no_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(level_queues, "SECOND_LOOK", 60.0)
    began = time.monotonic()
    assert [step.done for step in stage.queues().undo()] == [True] * 3
    assert time.monotonic() - began < 30


def test_undo_leaves_queues_in_which_messages_wait(stage: Stage) -> None:
    stage.queues().apply()
    stage.confirmed(stage.level, 1)
    first, waiting, out = stage.queues().undo()
    assert (first.done, waiting.done, out.done) == (True, False, False)
    assert "(1)" in waiting.what
    assert [each.number for each in leaving(stage.taking(stage.level), 1)] == [1]


def test_undo_leaves_queues_that_a_bridge_takes_from(stage: Stage) -> None:
    stage.taking(stage.level)
    _, waiting, out = stage.queues().undo()
    assert (waiting.done, out.done) == (False, False)
    assert "a bridge takes from" in waiting.what


def test_undo_leaves_a_level_from_which_nothing_could_leave(stage: Stage) -> None:
    retrying(stage, 1_000)
    stage.queues().apply()
    stage.delete(f"{stage.level.name}.out")
    stage.confirmed(stage.level, 1, 2, 3)
    wait_until(lambda: stage.queues().depths() == [0, 0], "them to have waited: then RabbitMQ counts them nowhere", 60)

    first, waiting, out = stage.queues().undo()

    assert (first.done, waiting.done, out.done) == (True, False, False)
    assert f"`{stage.level.name}.out` is missing, so what it may hold could not leave: `delaybridge apply` makes it" in waiting.what
    assert [each.number for each in leaving(stage.taking(stage.level), 3)] == [1, 2, 3]


def test_undo_finds_messages_that_a_marker_has_passed_by(stage: Stage) -> None:
    retrying(stage, 1_000)
    hold_up(stage, 3)

    _, waiting, out = stage.queues().undo()

    assert (waiting.done, out.done) == (False, False)
    assert f"messages wait in `{stage.level.name}.out` (3)" in waiting.what
    assert sorted(each.number for each in leaving(stage.taking(stage.level), 3)) == [0, 1, 2], "and no marker is among them"


def test_undo_leaves_a_level_that_lets_no_marker_through(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(level_queues, "THROUGH", 1.0)
    retrying(stage, 20_000)
    hold_up(stage, 40)  # more than RabbitMQ passes by

    first, waiting, out = stage.queues().undo()

    retrying(stage, 1_000)
    assert (first.done, waiting.done, out.done) == (True, False, False)
    assert "within 1 s nothing came through it: what else it may hold is not to be seen" in waiting.what


def test_a_marker_that_came_too_late_is_no_reason_to_stay(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.queues().apply()
    with monkeypatch.context() as hasty:
        hasty.setattr(level_queues, "THROUGH", 0.0)
        assert [step.done for step in stage.queues().undo()] == [True, False, False]
    wait_until(lambda: stage.queues().depths()[1] == 1, "the marker")

    assert [step.done for step in stage.queues().undo()] == [True] * 3
