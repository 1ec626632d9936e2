"""A producer that comes back ends what Kafka left open of its predecessor's transactions, in the way in which they ended."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pytest
from brokers.common import wait_until
from brokers.kafka import admin, create_topic
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource

from contract.kafka_user import named
from contract.kafka_world import World, taken
from contract.test_kafka_levels import bodies
from delaybridge.adapters.kafka.level_queues.queues import group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.kafka import Broker

CHECK = "transaction.partition.verification.enable"


@contextlib.contextmanager
def unchecked(url: str) -> Iterator[World]:
    """On a broker that takes what was not announced to the coordinator of a transaction: so the coordinator can be made to leave something open."""
    with admin(url) as cluster:
        brokers = [ConfigResource("BROKER", str(each["broker_id"]), {CHECK: "false"}) for each in cluster.describe_cluster()["brokers"]]
        cluster.alter_configs(brokers)
        made = World(url)
        yield made
        made.close()
        for each in brokers:
            each.configs[CHECK] = "true"
        cluster.alter_configs(brokers)


@pytest.fixture
def world(kafka: Broker) -> Iterator[World]:
    with unchecked(kafka.url) as made:
        yield made


def end(url: str, name: str, partition: TopicPartition, *, commit: bool, age: float = 0) -> None:
    """A transaction of a producer of this name, which the cluster ends everywhere but in this partition. `age`: of its record there (s)."""
    elsewhere = named("elsewhere")
    create_topic(url, elsewhere)
    producer = KafkaProducer(bootstrap_servers=url, transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    producer._transaction_manager._partitions_in_transaction.add(partition)  # as it would be if the coordinator knew
    sent = int((time.time() - age) * 1000)
    producer.send(partition.topic, b"left open", b"key", partition=partition.partition, timestamp_ms=sent).get(30)
    producer.send(elsewhere, b"ended").get(30)
    if commit:
        producer.commit_transaction()
    else:
        producer.abort_transaction()
    producer.close()


def left_open(url: str, partition: TopicPartition) -> bool:
    """Whether less can be read than is written by those who read what is committed."""
    ends = []
    for isolation in ("read_committed", "read_uncommitted"):
        with contextlib.closing(KafkaConsumer(bootstrap_servers=url, isolation_level=isolation)) as consumer:
            ends.append(consumer.end_offsets([partition])[partition])
    return bool(ends[0] < ends[1])


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_what_was_left_open_in_a_level_is_ended_when_the_bridge_comes_back(world: World, commit: bool) -> None:
    level, name = TopicPartition(world.levels.levels[0].name, 0), named("bridge")
    end(world.url, f"{group(level.topic)}-{name}", level, commit=commit)
    assert left_open(world.url, level), "this test would show nothing"
    bridge = world.bridge(name)
    wait_until(lambda: not left_open(world.url, level), "the end of the transaction")
    world.levels.put("later", key=b"key")
    assert bodies(taken(bridge, 1 + commit)) == (["left open", "later"] if commit else ["later"])


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_what_was_left_open_at_a_destination_is_ended_before_the_bridge_writes_there(world: World, commit: bool) -> None:
    name = named("bridge")
    end(world.url, f"{group(world.levels.levels[0].name)}-{name}", TopicPartition(world.destination, 0), commit=commit)
    bridge = world.bridge(name)
    world.levels.put("moved")
    bridge.move(taken(bridge, 1), world.destination)
    assert bridge.words(1) == ["confirmed"]
    assert world.read() == (["left open", "moved"] if commit else ["moved"])
