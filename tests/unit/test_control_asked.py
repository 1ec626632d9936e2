"""What a running bridge says of itself, and answers to what cannot be, or not yet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from contract.stores import T0, record

from delaybridge.bridge import answers as module
from delaybridge.bridge.config import Config
from delaybridge.bridge.control import Control
from delaybridge.bridge.engine import Engine
from delaybridge.bridge.metrics import Metrics
from delaybridge.bridge.views import NotKnownError, NotPossibleError
from delaybridge.core.message import message
from delaybridge.core.store import Answer, Put

if TYPE_CHECKING:
    from pathlib import Path

IN_FLIGHT, DONE = Answer("in_flight"), Answer("done")


@pytest.fixture
def answers(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[Answer]:
    """What the store answers, one after the other; nobody sleeps in between."""
    given = [IN_FLIGHT, IN_FLIGHT, DONE]
    monkeypatch.setattr(engine.store, "cancel", lambda *_: given.pop(0))
    monkeypatch.setattr(module.time, "sleep", lambda _: None)  # type: ignore[attr-defined]  # its own import
    return given


def test_whoever_cancels_what_is_being_published_hears_how_that_ended(control: Control, answers: list[Answer]) -> None:
    assert control.cancel("a") == DONE
    assert answers == []


def test_but_not_for_longer_than_a_request_may_take(control: Control, answers: list[Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", -1.0)
    assert control.cancel("a") == IN_FLIGHT
    assert len(answers) == 2


def test_nor_while_the_bridge_stops(engine: Engine, control: Control, answers: list[Answer]) -> None:
    engine.stopping = True
    assert control.cancel("a") == IN_FLIGHT
    assert len(answers) == 2


@pytest.mark.usefixtures("answers")
def test_the_store_is_left_alone_for_a_while_before_it_is_asked_again(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(module.time, "sleep", slept.append)  # type: ignore[attr-defined]  # its own import

    control.cancel("a")

    assert [0.001 < pause < 0.1 for pause in slept] == [True, True]


def test_what_is_late_is_told_by_how_much_and_what_is_not_due_yet_is_not_late(engine: Engine, control: Control) -> None:
    assert control.oldest_overdue_ms(T0) == 0
    engine.store.put([Put(record("a", T0, lane="memory"))], T0)
    assert control.oldest_overdue_ms(T0 - 5) == 0
    assert control.oldest_overdue_ms(T0 + 5) == 5


def test_a_route_is_shown_as_paused_while_it_is(control: Control) -> None:
    assert control.pause("default")
    assert [each.paused for each in control.status().routes] == [True]
    assert control.resume("default")
    assert [each.paused for each in control.status().routes] == [False]
    assert not control.pause("nope")


def test_a_bridge_whose_destination_takes_nothing_for_now_is_not_ready_and_says_why(engine: Engine, control: Control) -> None:
    lane = engine.lanes["memory"]
    lane.connected = True
    lane._sink = SimpleNamespace(blocked="memory alarm")  # only this is asked
    check = control.checks()[2]
    assert (check.name, check.ok, check.detail) == ("destination memory", False, "memory alarm")
    assert [(each.connected, each.error) for each in control.status().lanes] == [(True, "memory alarm")]


def test_what_cannot_be_observed_is_said_before_anything_is_read(control: Control) -> None:
    with (
        pytest.raises(NotKnownError, match="there is no broker 'nope'; the brokers are: memory"),
        control.observe("nope", "a", take=True),
    ):
        pass


def test_of_two_routes_somebody_who_sends_names_one(tmp_path: Path) -> None:
    routes = [{"name": name, "from": {"broker": "memory", "queue": f"in-{name}"}, "to": {"broker": "memory"}} for name in ("a", "b")]
    config = {"store": {"path": tmp_path}, "brokers": {"memory": {"type": "memory"}}, "routes": routes}
    engine = Engine(Config.model_validate(config), lambda: T0, Metrics("0.1.0"), lambda *_: None)
    with pytest.raises(NotPossibleError, match="name a route: a, b"):
        Control(engine).send(None, message(b"hello", {"x-delay": 5}), "")
    with pytest.raises(NotKnownError, match="there is no route 'c'; the routes are: a, b"):
        Control(engine).send("c", message(b"hello", {"x-delay": 5}), "")
    engine.store.close()
