"""The commands of Kafka's own tools that `plan` and `doctor` print."""

from __future__ import annotations

import shlex
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from unit.kafka.cluster import asked_by

from delaybridge.adapters.kafka import Endpoint, Kafka, commands, interception
from delaybridge.adapters.kafka.interception import KafkaInterception
from delaybridge.adapters.kafka.level_queues import queues
from delaybridge.adapters.kafka.level_queues.queues import KafkaLevelQueues
from delaybridge.adapters.levelled import Level

READS = ["--command-config", "$KAFKA_COMMAND_CONFIG"]
WAYS_IN: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"tls": True}, READS),
    ({"sasl": "PLAIN", "username": "bridge", "password": "secret"}, READS),
]


@pytest.mark.parametrize(("given", "told"), WAYS_IN)
def test_where_a_client_must_be_told_how_to_get_in_commands_read_it_from_a_file_before_what_they_do(
    given: dict[str, Any], told: list[str]
) -> None:
    options = Kafka(bootstrap_servers="a:1", **given)

    assert shlex.split(commands.delete(options, "orders.delayed"))[3:] == [*told, "--delete", "--topic", "orders.delayed"]
    assert shlex.split(commands.abort(options, TopicPartition("t", 0), 5))[3 : 4 + len(told)] == [*told, "abort"]


@pytest.mark.parametrize(("given", "told"), WAYS_IN)
def test_a_step_names_the_variable_that_its_command_reads(monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], told: list[str]) -> None:
    nothing = SimpleNamespace(topics=lambda _: {}, version=(4, 0))
    asked_by(monkeypatch, interception, nothing)
    asked_by(monkeypatch, queues, nothing)
    options = Kafka(bootstrap_servers="a:1", **given)

    steps = [*KafkaInterception(options, [Endpoint(topic="in")]).plan(), *KafkaLevelQueues(options, [Level("lv.1s", 1000)]).plan()]

    assert [step.reads for step in steps] == [tuple(name.removeprefix("$") for name in told[1:])] * 2
    assert all(("$KAFKA_COMMAND_CONFIG" in step.command) == bool(told) for step in steps)
