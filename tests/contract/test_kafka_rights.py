"""`plan`, `apply`, `apply --undo` and `doctor` for a user of Kafka who may not do all that they need, or whom the cluster refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from brokers.kafka import create_topic
from kafka.admin import ACLOperation, ACLResourcePatternType, ResourceType

from contract.kafka_user import GUARDED, PLAIN, alice, allow, named, private
from contract.test_kafka_levels import Levels
from delaybridge.adapters.base import AdapterError, NotConnected
from delaybridge.adapters.kafka import Endpoint, Kafka, adapter
from delaybridge.adapters.kafka.cluster import opened
from delaybridge.adapters.kafka.interception import KafkaInterception

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from brokers.kafka import Broker, Native


@pytest.fixture(scope="module")
def guarded() -> Iterator[Native]:
    """A private broker, on which alice has the rights that she is given."""
    with private(GUARDED, PLAIN) as broker:
        yield broker


class Orders:
    """A topic and the name of its ingress topic. `hers`: as alice may prepare them; `prepared`: as who may do everything does."""

    def __init__(self, broker: Native) -> None:
        self.broker = broker
        self.name = named("orders")
        self.ingress = f"{self.name}.delayed"
        create_topic(broker.url, self.name)
        self.hers = KafkaInterception(Kafka.model_validate(alice(broker)), [Endpoint(topic=self.ingress)])
        self.prepared = KafkaInterception(Kafka(bootstrap_servers=broker.url), [Endpoint(topic=self.ingress)])

    def allow(self, topic: str, *operations: ACLOperation) -> None:
        allow(self.broker, ResourceType.TOPIC, topic, *operations)


@pytest.fixture
def orders(guarded: Native) -> Orders:
    return Orders(guarded)


def refused(ask: Callable[[], object]) -> str:
    """How it is told that the cluster refuses: not as that it does not answer."""
    with pytest.raises(AdapterError) as caught:
        ask()
    assert not isinstance(caught.value, NotConnected)
    return str(caught.value)


def test_a_topic_that_may_not_be_seen_is_not_taken_for_one_that_is_not_there(orders: Orders) -> None:
    """`apply --undo` said that it was gone."""
    orders.prepared.apply()
    orders.allow(orders.name, ACLOperation.DESCRIBE)
    for ask in (orders.hers.undo, orders.hers.plan, orders.hers.apply):
        assert refused(ask) == f"whether there is a topic {orders.ingress} may not be seen: grant DESCRIBE on it"


def test_a_topic_that_may_not_be_seen_keeps_nothing_from_being_told_of_the_others(orders: Orders, guarded: Native) -> None:
    other = Orders(guarded)
    other.allow(other.name, ACLOperation.DESCRIBE)
    other.allow(other.ingress, ACLOperation.DESCRIBE)
    hers = KafkaInterception(Kafka.model_validate(alice(guarded)), [Endpoint(topic=(orders.ingress, other.ingress), group=named("group"))])
    told = [each.what for each in hers.check() if not each.ok]
    assert f"whether there is a topic `{orders.ingress}` may not be seen" in told
    assert f"topic `{other.ingress}` does not exist" in told
    assert not any(f"topic `{orders.ingress}` does not exist" in what for what in told)


def test_nor_is_one_to_which_a_route_leads(orders: Orders) -> None:
    options = Kafka.model_validate(alice(orders.broker))
    told = [each.what for each in adapter.standstills(options, [], [orders.name], []) if not each.ok]
    assert told == [f"whether there is topic `{orders.name}`, to which a route leads, may not be seen"]
    orders.allow(orders.name, ACLOperation.DESCRIBE)
    assert [each.ok for each in adapter.standstills(options, [], [orders.name], [])] == [True]


def test_who_may_not_see_the_group_is_told_what_was_found_of_the_topics_all_the_same(orders: Orders) -> None:
    group = named("group")
    hers = KafkaInterception(Kafka.model_validate(alice(orders.broker)), [Endpoint(topic=orders.ingress, group=group)])
    orders.allow(orders.name, ACLOperation.DESCRIBE)
    orders.allow(orders.ingress, ACLOperation.READ)
    assert [each.what for each in hers.check()] == [f"topic `{orders.ingress}` does not exist", f"group `{group}` may not be seen"]


def test_levels_that_may_not_be_seen_are_not_taken_for_deleted(guarded: Native) -> None:
    levels = Levels(guarded.url, 0).apply()
    hers = Levels(guarded.url, 0, **alice(guarded))
    hers.levels[:] = levels.levels
    assert "grant DESCRIBE" in refused(hers.queues.undo)
    levels.close()


def test_who_may_create_no_topic_is_told_so_in_few_words(orders: Orders) -> None:
    orders.allow(orders.name, ACLOperation.DESCRIBE)
    orders.allow(orders.ingress, ACLOperation.READ)
    assert refused(orders.hers.apply).startswith(f"topic {orders.ingress} was not created: TopicAuthorizationFailedError")


def test_who_may_not_do_what_an_undo_needs_is_told_what_was_refused_and_at_once(orders: Orders) -> None:
    orders.prepared.apply()
    orders.allow(orders.name, ACLOperation.DESCRIBE)
    orders.allow(orders.ingress, ACLOperation.READ)
    (step,) = orders.hers.undo()
    assert (step.done, "its settings may not be read" in step.what) == (False, True)
    orders.allow(orders.ingress, ACLOperation.DESCRIBE_CONFIGS)
    assert "was not changed: [Error 29] TopicAuthorizationFailedError" in refused(orders.hers.undo)
    orders.allow(orders.ingress, ACLOperation.ALTER_CONFIGS)
    (step,) = orders.hers.undo()
    assert (step.done, "group `delaybridge` may not be seen" in step.what) == (False, True)
    allow(orders.broker, ResourceType.GROUP, "delaybridge", ACLOperation.DESCRIBE)
    assert refused(orders.hers.undo).startswith(f"topic {orders.ingress} was not deleted: TopicAuthorizationFailedError")
    with opened(Kafka(bootstrap_servers=orders.broker.url)) as cluster:
        assert "max.message.bytes" not in cluster.topics([orders.ingress])[orders.ingress].own, "it takes messages again"


def test_a_name_that_the_cluster_does_not_tell_from_another_one_is_refused_in_its_words(kafka: Broker) -> None:
    """To Kafka's metrics `.` and `_` are the same."""
    name = named("a").replace("-", "_")
    create_topic(kafka.url, name)
    like = name.replace("_", ".")
    interception = KafkaInterception(Kafka(bootstrap_servers=kafka.url), [Endpoint(topic=like)])
    assert (
        refused(interception.apply)
        == f"topic {like} was not created: InvalidTopicError: Topic '{like}' collides with existing topic: {name}"
    )


def test_a_topic_that_somebody_else_makes_at_the_same_moment_is_no_failure(kafka: Broker) -> None:
    """Bridges that start together make the same levels."""
    name = named("level")
    with opened(Kafka(bootstrap_servers=kafka.url)) as cluster:
        for partitions in (2, 3):
            cluster.create(name, partitions, -1, {})
        assert cluster.topics([name])[name].partitions == 2


def test_who_may_not_write_to_an_ingress_topic_is_told_that_by_the_probe(orders: Orders) -> None:
    """What was told was `Concurrent access to net.poll!`."""
    orders.prepared.apply()
    orders.allow(orders.ingress, ACLOperation.READ)
    every = (ACLOperation.CREATE, ACLOperation.READ, ACLOperation.WRITE, ACLOperation.DELETE)
    allow(orders.broker, ResourceType.TOPIC, "delaybridge.doctor.", *every, pattern=ACLResourcePatternType.PREFIXED)
    with pytest.raises(AdapterError, match="TopicAuthorizationFailedError"):
        orders.hers.probe()
