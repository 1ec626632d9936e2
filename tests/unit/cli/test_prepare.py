"""`plan` and `apply` on a broker that needs interception and level queues: both, or one of them only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fake_daemon import alone, call

from delaybridge.adapters.base import AdapterError, NotConnected
from delaybridge.adapters.kafka.entry import KafkaAdapter
from delaybridge.adapters.preparing import Step

if TYPE_CHECKING:
    from pathlib import Path

LEVELS = """
store: {kind: level_queues, broker: kafka}
brokers:
  kafka: {type: kafka, bootstrap_servers: "127.0.0.1:1"}
  other: {type: kafka, bootstrap_servers: "127.0.0.1:2"}
routes:
  - {name: orders, from: {broker: kafka, topic: orders.delayed}, to: {broker: kafka}}
"""


class Part:
    """One part of what a broker is prepared with; tells what it was asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def plan(self) -> list[Step]:
        return [Step(f"{self._name} planned", "", True)]

    def apply(self) -> list[Step]:
        return [Step(f"{self._name} made", "", True)]

    def undo(self) -> list[Step]:
        return [Step(f"{self._name} gone", "", True)]


@pytest.fixture(autouse=True)
def _brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(tmp_path, monkeypatch)
    (tmp_path / "delaybridge.yaml").write_text(LEVELS)
    monkeypatch.setattr(KafkaAdapter, "interception", lambda *_: Part("interception"))
    monkeypatch.setattr(KafkaAdapter, "level_queues", lambda *_: Part("levels"))


def said(*command: str) -> list[Any]:
    told = call(*command, "-o", "json")
    assert told.exit_code == 0, told.output
    return [step["what"] for step in json.loads(told.stdout)]


@pytest.mark.parametrize(("command", "done"), [("plan", "planned"), ("apply", "made"), ("apply --undo", "gone")])
def test_both_parts_are_prepared_or_the_one_that_is_named(command: str, done: str) -> None:
    words = [*command.split(), "--broker", "kafka"]

    assert said(*words) == [f"interception {done}", f"levels {done}"]
    assert said(*words, "--only", "interception") == [f"interception {done}"]
    assert said(*words, "--only", "level_queues") == [f"levels {done}"]


def test_a_broker_that_holds_no_level_queues_is_left_alone_when_only_these_are_meant() -> None:
    told = call("apply", "--undo", "--only", "level_queues", "-o", "json")

    assert [(step["broker"], step["what"]) for step in json.loads(told.stdout)] == [("kafka", "levels gone")]
    assert "other: nothing to do: it holds no level queues" in told.stderr


class Gate(Part):
    """Takes a binding away, finds a queue there, makes an exchange, and cannot do one thing."""

    def plan(self) -> list[Step]:
        queue, binding, exchange = Step("a queue", "", True), Step("a binding is gone", "unbind", False), Step("an exchange", "make", False)
        return [queue, binding, exchange, Step("a file", "edit", False)]

    def apply(self) -> list[Step]:
        return [Step("a queue", "", True), Step("an exchange", "make", True), Step("a file", "edit", False)]


def test_apply_tells_what_it_did_and_what_was_so_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KafkaAdapter, "interception", lambda *_: Gate("gate"))
    words = ("apply", "--broker", "kafka", "--only", "interception")

    told, listed = call(*words), call(*words, "-o", "json")

    assert (told.exit_code, listed.exit_code) == (1, 1)
    assert told.stdout.splitlines() == [
        "was so    kafka: a queue",
        "done now  kafka: an exchange",
        "to do     kafka: a file",
        "       edit",
        "done now  kafka: a binding is gone",
    ]
    assert [(step["what"], step["done"], step["now"]) for step in json.loads(listed.stdout)] == [
        ("a queue", True, False),
        ("an exchange", True, True),
        ("a file", False, False),
        ("a binding is gone", True, True),
    ]


class Refused(Part):
    """Makes one thing, and may not make the next."""

    def __init__(self) -> None:
        super().__init__("gate")
        self._made = False

    def plan(self) -> list[Step]:
        return [Step("a queue", "", True), Step("an exchange", "make", self._made), Step("a binding", "bind", False)]

    def apply(self) -> list[Step]:
        self._made = True
        raise AdapterError("the broker does not allow the binding")


def test_what_was_made_is_told_before_what_the_broker_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KafkaAdapter, "interception", lambda *_: Refused())

    told = call("apply", "--broker", "kafka", "--only", "interception")

    assert (told.exit_code, told.stdout, told.stderr) == (
        1, "done now  kafka: an exchange\n", "the broker does not allow the binding\n"
    )  # fmt: skip


@pytest.mark.parametrize(("command", "code"), [("paste $SECRET", 0), ("", 1)])
def test_plan_fails_where_it_lists_what_apply_refuses_and_says_what_its_commands_read(
    monkeypatch: pytest.MonkeyPatch, command: str, code: int
) -> None:
    steps = [Step("there", "see $OTHER", True, ("OTHER",)), Step("missing", command, False, ("SECRET", "ADDRESS"))]
    part = Part("gate")
    monkeypatch.setattr(part, "plan", lambda: steps)
    monkeypatch.setattr(KafkaAdapter, "interception", lambda *_: part)

    told = call("plan", "--broker", "kafka", "--only", "interception")

    assert told.exit_code == code
    hint = "These commands read $ADDRESS and $SECRET from the environment: export before you paste.\n"
    assert told.stderr == (hint if command else "")


@pytest.mark.parametrize("output", ["table", "ndjson"])
def test_what_was_made_is_told_although_the_next_broker_is_away(monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    class Away(Part):
        def apply(self) -> list[Step]:
            raise NotConnected("127.0.0.1:2: Connection refused")

    parts = iter([Part("gate"), Away("gate")])
    monkeypatch.setattr(KafkaAdapter, "interception", lambda *_: next(parts))

    told = call("apply", "-o", output)

    assert (told.exit_code, told.stderr) == (69, "127.0.0.1:2: Connection refused\n")
    assert "gate made" in told.stdout
    assert "levels made" in told.stdout


def test_a_part_that_there_is_not_is_a_usage_error() -> None:
    assert call("apply", "--undo", "--only", "queues").exit_code == 2
