"""What a Kafka source knows of its topics and their destinations, and what it may not know."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition, errors

from delaybridge.adapters.base import NotConnected
from delaybridge.adapters.kafka.sources.topics import Topics


class Cluster:
    """Tells of the topics that are `there`, by their count of partitions; `refused` may not be described. `asked`: of which topics, each time."""

    def __init__(self, **there: int) -> None:
        self.there = {name.replace("_", "."): count for name, count in there.items()}
        self.refused: set[str] = set()
        self.asked: list[list[str]] = []
        self.told: set[str] = set(self.there)
        """Of which topics kafka-python knows."""
        consumer: Any = SimpleNamespace(
            _manager=SimpleNamespace(send=self._answer, wait_for=None),
            _net=SimpleNamespace(run=lambda _, answer, __: answer),
            _cluster=SimpleNamespace(topic_id=lambda _: None, partitions_for_topic=lambda name: {0} if name in self.told else None),
        )
        self.topics = Topics(consumer, ".delayed", 1.0)

    def _answer(self, request: Any) -> Any:
        names = [topic.name for topic in request.topics]
        self.asked.append(names)
        answer = SimpleNamespace(topics=[self._told(name) for name in names])
        answer.add_callback = lambda heard: heard(answer)
        return answer

    def _told(self, name: str) -> Any:
        error: Any = errors.NoError if name in self.there else errors.UnknownTopicOrPartitionError
        if name in self.refused:
            error = errors.TopicAuthorizationFailedError
        partitions = [SimpleNamespace(partition_index=number) for number in range(self.there.get(name, 0))]
        return SimpleNamespace(name=name, error_code=error.errno, topic_id=None, partitions=partitions)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(orders=3, orders_delayed=3)


def test_a_partition_is_kept_where_the_destination_has_as_many(cluster: Cluster) -> None:
    assert cluster.topics.origin(TopicPartition("orders.delayed", 2)).keeps_partition
    cluster = Cluster(orders=4, orders_delayed=3)
    assert not cluster.topics.origin(TopicPartition("orders.delayed", 2)).keeps_partition


def test_partitions_that_were_added_are_heard_of_a_minute_later(cluster: Cluster) -> None:
    def kept(**there: int) -> bool:
        cluster.there |= {name.replace("_", "."): count for name, count in there.items()}
        cluster.topics._looked = cluster.topics._counted = float("-inf")
        cluster.topics.check()
        return cluster.topics.origin(TopicPartition("orders.delayed", 2)).keeps_partition

    assert kept()
    assert not kept(orders=6)
    assert kept(orders_delayed=6)
    assert len(cluster.asked) == 3
    cluster.topics.check()
    assert len(cluster.asked) == 3, "and not before"


def _checks(cluster: Cluster, times: int = 1) -> None:
    for _ in range(times):
        cluster.topics._looked = float("-inf")
        cluster.topics.check()


def test_a_topic_that_is_read_and_gone_ends_the_connection_and_says_what_to_do(cluster: Cluster) -> None:
    cluster.topics.require(["orders.delayed"], lasting=True)
    _checks(cluster, 3)
    assert len(cluster.asked) == 1

    del cluster.there["orders.delayed"]
    cluster.told.clear()

    with pytest.raises(NotConnected, match=r"^there is no topic orders\.delayed: create it, and the bridge will read it$"):
        _checks(cluster, 2)


def test_a_topic_of_which_kafka_python_knows_nothing_for_a_moment_is_not_gone(cluster: Cluster) -> None:
    cluster.topics.require(["orders.delayed"], lasting=True)
    cluster.told.clear()

    _checks(cluster, 3)

    assert len(cluster.asked) == 4


def test_a_destination_that_is_gone_ends_nothing_and_neither_does_one_level_of_several(cluster: Cluster) -> None:
    cluster.there["level"] = 1
    cluster.topics.require(["level"], "run `delaybridge apply`")
    cluster.topics.require(["orders.delayed"], lasting=True)
    cluster.topics.origin(TopicPartition("orders.delayed", 0))
    del cluster.there["orders"], cluster.there["level"]
    cluster.told.remove("orders")

    _checks(cluster, 3)


def test_a_destination_that_may_not_be_described_is_unknown_and_its_topic_is_read(cluster: Cluster) -> None:
    cluster.refused = {"orders"}
    origin = cluster.topics.origin(TopicPartition("orders.delayed", 2))
    assert (origin.topic, origin.address, origin.keeps_partition) == ("orders.delayed", "orders", False)


@pytest.mark.parametrize("why", ["refused", "on another broker"])
def test_a_destination_of_which_nothing_is_told_is_asked_for_again_after_a_while_and_not_before(cluster: Cluster, why: str) -> None:
    cluster.refused = {"orders"} if why == "refused" else set()
    cluster.there = {"orders.delayed": 3}
    for _ in range(3):
        cluster.topics.origin(TopicPartition("orders.delayed", 2))
    assert cluster.asked == [["orders.delayed", "orders"]]
    cluster.refused, cluster.there["orders"] = set(), 3
    cluster.topics._looked = float("-inf")
    cluster.topics.check()
    assert cluster.topics.origin(TopicPartition("orders.delayed", 2)).keeps_partition


def test_a_topic_that_is_read_must_be_described(cluster: Cluster) -> None:
    cluster.refused = {"orders.delayed"}
    for ask in (
        lambda: cluster.topics.origin(TopicPartition("orders.delayed", 2)),
        lambda: cluster.topics.identity("orders.delayed"),
        lambda: cluster.topics.require(["orders.delayed"], lasting=True),
    ):
        with pytest.raises(NotConnected, match=r"may not describe topic orders\.delayed"):
            ask()


def test_a_topic_of_which_a_broker_does_not_tell_is_not_taken_for_another_one(cluster: Cluster) -> None:
    """A broker that has just started may not know it yet. What a group had committed in it would be read from its beginning."""
    of = cluster.there.pop("orders.delayed")
    for ask in (lambda: cluster.topics.origin(TopicPartition("orders.delayed", 2)), lambda: cluster.topics.identity("orders.delayed")):
        with pytest.raises(NotConnected, match=r"does not tell of topic orders\.delayed"):
            ask()
    cluster.there["orders.delayed"] = of
    assert cluster.topics.origin(TopicPartition("orders.delayed", 2)).keeps_partition
