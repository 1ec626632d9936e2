"""One partition of a topic has no leader, because its only node has died. The others take messages, and get theirs."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from brokers.common import wait_until
from brokers.kafka import Native
from brokers.private import running
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from contract.kafka_user import private

from delaybridge.adapters.kafka import adapter
from delaybridge.core.message import Message
from integration.daemon import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC, INGRESS = "orders", "orders.delayed"
LEADERLESS = 1
LEVELS = {"store": {"kind": "level_queues", "broker": "cluster"}}
KEYS = [b"%d" % number for number in range(24)]


class Half:
    """Two nodes, of which the second one is dead at first. It alone has one of the topic's three partitions."""

    def __init__(self, first: Native, second: Native) -> None:
        self.url = first.url
        self._second = second
        there = AdminClient({"bootstrap.servers": self.url, "log_level": 0})
        where = {TOPIC: [[1], [2], [1]], INGRESS: [[1]]}
        created = there.create_topics([NewTopic(name, num_partitions=len(on), replica_assignment=on) for name, on in where.items()])
        for each in created.values():
            each.result(30)
        wait_until(lambda: self._leaders() == [1, 2, 1], "the topic to be there", 60)
        second.kill()
        wait_until(lambda: self._leaders() == [1, -1, 1], "the second node to be missed", 60)

    def _leaders(self) -> list[int]:
        there = AdminClient({"bootstrap.servers": self.url, "log_level": 0}).list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
        return [there[number].leader for number in sorted(there)]

    def heal(self) -> None:
        self._second.start()
        wait_until(lambda: self._leaders() == [1, 2, 1], "the second node to be back", 60)

    def send(self, number: int, delay: int) -> None:
        """One message for each key, and one without, as a producer does."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.url, "log_level": 0})
        for key in [*KEYS, None]:
            producer.produce(INGRESS, f"{(key or b'none').decode()} {number}", key, headers={"x-delay": str(delay)})
        assert producer.flush(30) == 0

    def read(self) -> dict[str, list[int]]:
        """Of all that can be read, for each key the numbers of its messages, in their order. Those without a key are in several partitions, and have none."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.url, "group.id": "none", "enable.partition.eof": True, "log_level": 0}
        )
        with contextlib.closing(consumer):
            readable = [number for number, leader in enumerate(self._leaders()) if leader >= 0]
            consumer.assign([confluent_kafka.TopicPartition(TOPIC, number, confluent_kafka.OFFSET_BEGINNING) for number in readable])
            ends = 0
            while ends < len(readable):
                polled = consumer.poll(10)
                assert polled is not None
                if polled.error():
                    ends += 1
                else:
                    key, number = (polled.value() or b"").decode().split()
                    found[key].append(int(number))
        found["none"].sort()
        return found


@pytest.fixture
def half() -> Iterator[Half]:
    with private() as first, running(Native(first=first)) as second:
        yield Half(first, second)


STORES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "time index": ({}, {}),
    "level queues": (LEVELS, {"exactly_once": False}),
    "level queues, exactly once": (LEVELS, {}),
}
"""Where messages wait, and the broker's section for it."""


@pytest.fixture(params=STORES)
def daemon(request: pytest.FixtureRequest, half: Half, tmp_path: Path) -> Iterator[Daemon]:
    """Its level queues are made while the second node is dead, and so on the first one."""
    store, section = STORES[request.param]
    broker = {"type": "kafka", "bootstrap_servers": half.url, "level_instance": "the-one"} | section
    route = {"name": "orders", "from": {"broker": "cluster", "topic": INGRESS}, "to": {"broker": "cluster"}}
    config = {"brokers": {"cluster": broker}, "routes": [route], "retry": {"first": "1s", "cap": "1s"}, "limits": {"levels": "100ms 1s"}}
    with Daemon(tmp_path, config | store) as daemon:
        yield daemon.start()


def _held(daemon: Daemon) -> list[int | None]:
    """Which partitions of the topic are held back; None stands for all of it."""
    (lane,) = daemon.get("/status")["lanes"]
    return [held["partition"] for held in lane["held"] if held["address"] == TOPIC]


def test_what_is_for_partitions_that_take_messages_does_not_wait_for_one_that_takes_none(half: Half, daemon: Daemon) -> None:
    waiting = {key.decode() for key in KEYS if adapter.partition(Message(b"", key=key), 3) == LEADERLESS}
    others = {key.decode() for key in KEYS} - waiting | {"none"}
    assert waiting
    half.send(1, 500)
    daemon.wait_for(lambda: _held(daemon) == [LEADERLESS], "the partition without a leader, and no other, to be held")
    half.send(2, 500)
    daemon.wait_for(lambda: half.read() == {key: [1, 2] for key in others}, "the other partitions to get theirs")
    assert f"{TOPIC} (partition {LEADERLESS})" in daemon.run("status").stdout
    assert f"{TOPIC} (partition {LEADERLESS}) takes no messages" in daemon.run("doctor").stdout

    daemon.kill()
    daemon.start()
    half.send(3, 500)
    daemon.wait_for(lambda: half.read() == {key: [1, 2, 3] for key in others}, "the other partitions to get theirs after a restart")

    half.heal()
    daemon.wait_for(lambda: half.read() == {key: [1, 2, 3] for key in others | waiting}, "the partition to get its messages in order")
    daemon.wait_for(lambda: not _held(daemon), "nothing to be held any more")
