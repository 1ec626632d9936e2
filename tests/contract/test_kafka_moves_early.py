"""A move that is handed over before it is due is begun then, and nobody can tell."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from brokers.common import wait_until
from brokers.kafka import create_topic, delete_topic
from kafka import KafkaConsumer, TopicPartition
from msgspec.structs import replace

from contract.kafka_user import bodies, named
from contract.kafka_world import KINDS, Bridge, World, taken, world_with
from contract.test_kafka_levels import now
from delaybridge.adapters.base import BackOff
from delaybridge.adapters.kafka.cluster import Cluster, opened
from delaybridge.adapters.kafka.transactions import transactor
from delaybridge.adapters.kafka.transactions.state import Moving, ended
from delaybridge.adapters.moves import Move
from delaybridge.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.kafka import Broker

AHEAD = 5_000
"""Milliseconds; a few in reality, in which a test could not look at anything."""


@pytest.fixture(params=KINDS)
def world(kafka: Broker, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(transactor, "LEAD", AHEAD)
    with world_with(request.param, kafka.url, monkeypatch) as made:
        made.levels.put("a", "b", "c")
        yield made


class Reader:
    """Reads from a topic what is written from now on, whether committed or not."""

    def __init__(self, url: str, topic: str) -> None:
        self._consumer = KafkaConsumer(bootstrap_servers=url, isolation_level="read_uncommitted")
        self._consumer.assign([TopicPartition(topic, 0)])
        self._consumer.seek_to_end()
        self._consumer.position(TopicPartition(topic, 0))
        self.timestamps: list[int] = []

    def sees(self) -> bool:
        found = [each for records in self._consumer.poll(20).values() for each in records]
        self.timestamps += [each.timestamp for each in found]
        return bool(found)

    def close(self) -> None:
        self._consumer.close()


def begin_early(world: World) -> tuple[Bridge, int]:
    """A bridge that has moved one message already, so that its producer and its group are known, and when the two are due that it has just begun to move."""
    bridge = world.bridge()
    first, *others = taken(bridge, 3)
    bridge.move([first], world.destination)
    assert bridge.words(1) == ["confirmed"]
    due = now() + AHEAD
    bridge.mover.move([replace(each, due=due) for each in bridge.moves(others, world.destination)])
    return bridge, due


def is_open(cluster: Cluster, bridge: Bridge) -> bool:
    """Whether the cluster says that a transaction of this bridge has begun, and not ended."""
    assert bridge.mover._transactor is not None
    last = cluster.transactions.last(bridge.mover._transactor._numbers.transactional_id)
    return last is not None and last.state == "Ongoing"


def test_its_transaction_begins_at_once_and_what_it_publishes_is_seen_by_nobody_before_it_is_due(world: World) -> None:
    with contextlib.closing(Reader(world.url, world.destination)) as reader, opened(world.levels.user.options()) as cluster:
        bridge, due = begin_early(world)
        wait_until(reader.sees, "the first message")
        wait_until(lambda: is_open(cluster, bridge), "the transaction")
        assert now() < due, "this test would show nothing"

        wait_until(reader.sees, "another message")

        assert now() >= due
        assert reader.timestamps[1] >= due, "the audit would call it early"
    assert bridge.words(2) == ["confirmed"] * 2
    assert sorted(world.read()) == ["a", "b", "c"]


def test_one_that_fails_before_it_is_due_is_taken_back_and_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[Moving] = []

    def once(numbers: Moving, *args: Any) -> None:
        if numbers._current_state.name == "IN_TRANSACTION" and not failed:
            failed.append(numbers)
            numbers.give_up(BackOff(Reason.REFUSED_BY_BROKER, "a coordinator that is overloaded"))
        ended(numbers, *args)

    monkeypatch.setattr(transactor, "ended", once)
    bridge, _ = begin_early(world)
    assert bridge.words(2) == ["confirmed"] * 2
    assert failed
    assert sorted(world.read()) == ["a", "b", "c"]


def test_where_one_goes_to_a_topic_that_was_deleted_the_others_go_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Kafka 4 the coordinator refuses such a transaction's first step, and no batch waits yet that could be told why."""
    monkeypatch.setattr(transactor, "LEAD", 300)
    gone, bridge = named("gone"), world.bridge()
    create_topic(world.url, gone)
    first, lost, other = taken(bridge, 3)
    bridge.move([first], gone)
    assert bridge.words(1) == ["confirmed"]
    delete_topic(world.url, gone)

    moves = bridge.moves([lost], gone) + bridge.moves([other], world.destination)
    due = now() + 300
    bridge.mover.move([replace(each, due=due) for each in moves])

    assert sorted(bridge.words(2)) == ["confirmed", "unroutable"]
    assert other.message.body is not None
    assert world.read() == [other.message.body.decode()]


def test_a_message_that_its_destination_refuses_ends_and_those_in_its_batch_are_moved(world: World) -> None:
    """Kafka refuses the batch, and names the one at fault: here neither the first nor the last."""
    compacted = named("compacted")
    create_topic(world.url, compacted, cleanup_policy="compact")
    bridge = world.bridge()
    messages = taken(bridge, 3)
    keys = [b"k", None, b"k"]
    moves = [Move(each.token, ((compacted, replace(each.message, key=key)),), each.token) for each, key in zip(messages, keys, strict=True)]
    bridge.mover.move(moves)
    assert sorted(bridge.words(3)) == ["confirmed", "confirmed", "rejected_by_broker"]
    assert sorted(world.read(compacted)) == sorted(bodies([messages[0], messages[2]]))
