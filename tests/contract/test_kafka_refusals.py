"""What a topic on Kafka refuses for good costs a transaction, and keeps nothing else waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from brokers.kafka import create_topic

from contract.kafka_user import named
from contract.kafka_world import World, taken
from contract.test_kafka_levels import bodies

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.kafka import Broker


@pytest.fixture
def world(kafka: Broker) -> Iterator[World]:
    made = World(kafka.url)
    yield made
    made.close()


def test_many_messages_that_are_too_large_for_one_topic_keep_none_for_another_waiting(world: World) -> None:
    small = named("small")
    create_topic(world.url, small, max_message_bytes="1000")
    world.levels.put(*[f"{number}" for number in range(60)])
    bridge = world.bridge()
    messages = taken(bridge, 60)
    bridge.move(messages[:1], small)
    bridge.move(messages[1:2], world.destination)
    assert bridge.words(2) == ["confirmed"] * 2, "both topics are known now"
    bridge.mover.move([*bridge.moves(messages[2:50], small, size=5000), *bridge.moves(messages[50:], world.destination)])
    told = bridge.words(58)
    assert told.count("too_large") == 48
    assert told.index("confirmed") < 10, "they waited for one transaction that was taken back, or for a few"
    assert sorted(world.read()) == sorted(bodies([messages[1], *messages[50:]]))
