"""One topic has too few replicas in sync to be written to: a broker of its cluster has died. Whatever goes elsewhere goes on."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from brokers.common import wait_until
from brokers.kafka import Native, create_topic
from brokers.private import running
from confluent_kafka.admin import AdminClient

from contract.kafka_user import User, named, out, private, slowest_of_others
from contract.kafka_world import Bridge, World, moving, taken
from contract.outcomes import word
from contract.test_kafka_levels import bodies
from delaybridge.adapters.base import BackOff, NotConnected
from delaybridge.adapters.kafka import Kafka, adapter
from delaybridge.adapters.kafka.cluster import opened
from delaybridge.adapters.kafka.level_queues.queues import group
from delaybridge.adapters.moves import Move
from delaybridge.core.message import Message, Properties

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delaybridge.adapters.base import Received

SHORT = "short"
"""The topic, with one partition."""

WIDE = "wide"
"""Another one, with three."""


class Pair:
    """Two nodes. The second one has only copies of `SHORT` and `WIDE`, which need both; it is dead at first."""

    def __init__(self, first: Native, second: Native) -> None:
        self.url = first.url
        self._second = second
        create_topic(self.url, SHORT, replicas=2, min_insync_replicas="2")
        create_topic(self.url, WIDE, 3, replicas=2, min_insync_replicas="2")
        self.bereave()

    def bereave(self) -> None:
        self._second.kill()
        wait_until(lambda: self._in_sync() == [1], "the second node to be missed", 60)

    def heal(self) -> None:
        self._second.start()
        wait_until(lambda: len(self._in_sync()) == 2, "the second node to follow the first", 60)

    def _in_sync(self) -> list[int]:
        found = AdminClient({"bootstrap.servers": self.url, "log_level": 0}).list_topics(SHORT, timeout=10)
        return list(found.topics[SHORT].partitions[0].isrs)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with private() as first, running(Native(first=first)) as second:
        yield Pair(first, second)


def test_a_sink_holds_up_no_other_topic_also_where_one_refuses_for_as_long_as_a_delivery_may_take(pair: Pair) -> None:
    with contextlib.closing(User(pair.url)) as user:
        sink = user.sink(delivery_timeout=6)
        for tag in ("short", "short again", "short once more"):
            sink.publish([out(tag, SHORT)])
            assert slowest_of_others(user, sink, until=tag) < 6
            error = dict(user.outcomes)[tag.encode()]
            answer = word(error)
            if answer != "NotConnected":  # in doubt: its time was up in the very moment of another try; a bridge sends it again
                break
        assert answer == "refused_by_broker"
        assert isinstance(error, BackOff)
        assert error.partitions == 1  # only the message's, of so many


def test_once_a_transaction_cannot_be_ended_no_other_partition_with_too_few_replicas_costs_a_producer(pair: Pair) -> None:
    with contextlib.closing(World(pair.url)) as world:
        world.levels.put(*[f"{number}" for number in range(4)])
        bridge = world.bridge("it")
        to_partition(bridge, taken(bridge, 4)[0], 0)
        assert bridge.words(1) == ["refused_by_broker"]
        wait_until(lambda: gone(bridge), "the producer to be given up")
        bridge.connect()
        messages = taken(bridge, 4)
        for number in (1, 2):
            to_partition(bridge, messages[number], number)
            assert partitions_of(bridge) == 3, "only the message's, of so many"
            assert bridge.words(1) == ["refused_by_broker"]
        bridge.move(messages[1:2], WIDE, (world.destination, Message(b"and this")))
        assert partitions_of(bridge) == 0, "nobody says whose"
        assert bridge.words(1) == ["refused_by_broker"]
        bridge.move(messages[3:], world.destination)
        assert bridge.words(1) == ["confirmed"]
        assert not gone(bridge)


def test_a_bridge_that_was_killed_in_such_a_transaction_goes_on_when_it_comes_back(pair: Pair) -> None:
    """Kafka takes that one back for its successor, and lets no other producer of that id in until it can."""
    with contextlib.closing(World(pair.url)) as world:
        name = named("bridge")
        left_open(pair.url, f"{group(world.levels.levels[0].name)}-{name}")
        transactional = adapter.transactional_levels(world.levels.user.options(connection_timeout=1000), world.levels.levels, name)
        mover = moving(transactional)
        with pytest.raises(NotConnected, match="not written everywhere within 3 s"):
            mover.connect(lambda _: None)
        mover.connect(lambda _: None)
        assert transactional._identities.last.name.endswith(f"{name}::1")
        mover.close()


def left_open(url: str, name: str) -> None:
    """Let a transaction under this id begin, with a partition of `SHORT` in it, and nobody end it."""
    killed = confluent_kafka.Producer({"bootstrap.servers": url, "transactional.id": name, "log_level": 0})
    killed.init_transactions(20)
    killed.begin_transaction()
    killed.produce(SHORT, b"never")
    with opened(Kafka(bootstrap_servers=url)) as cluster:
        wait_until(lambda: bool((owner := cluster.transactions.last(name)) and owner.partitions), "the transaction to begin")
    killed.purge()


def partitions_of(bridge: Bridge) -> int:
    """Of the one refusal that is to come."""
    wait_until(lambda: bool(bridge.outcomes), "an outcome")
    ((_, error),) = bridge.outcomes
    assert isinstance(error, BackOff)
    return error.partitions


def to_partition(bridge: Bridge, message: Received, number: int) -> None:
    body = Message(message.message.body, properties=Properties(partition=number))
    bridge.mover.move([Move(message.token, ((WIDE, body),), message.token)])


def persistently(bridge: Bridge, count: int, address: str) -> None:
    """Move what the source gives until so much is confirmed, connecting anew where that is asked for, as a bridge does."""
    while count:
        messages = taken(bridge, count)
        bridge.move(messages, address)
        words = bridge.words(count)
        assert set(words) <= {"confirmed", "NotConnected"}
        count -= words.count("confirmed")
        if count:
            bridge.connect()


def test_movers_go_on_although_kafka_cannot_even_take_back_the_transaction_with_a_message_for_it(pair: Pair) -> None:
    """And lets its producer begin no other one until it can."""
    with contextlib.closing(World(pair.url)) as world:
        world.levels.put(*[f"{number}" for number in range(9)])
        bridge = world.bridge("it")
        own = bridge.transactional._identities.last.name
        bridge.move(taken(bridge, 9)[:2], SHORT)
        assert bridge.words(2) == ["refused_by_broker"] * 2
        wait_until(lambda: gone(bridge), "the producer to be given up")
        bridge.connect()
        messages = taken(bridge, 9)
        bridge.move(messages[:2], SHORT)
        bridge.move(messages[2:], world.destination)
        assert sorted(bridge.words(9)) == ["confirmed"] * 7 + ["refused_by_broker"] * 2
        assert sorted(world.read()) == sorted(bodies(messages[2:]))
        pair.heal()
        wait_until(lambda: gone(bridge), "the producer to make room for the first one")
        bridge.connect()
        assert bridge.transactional._identities.last.name == own
        persistently(bridge, 2, SHORT)
        assert sorted(world.read(SHORT)) == sorted(bodies(messages[:2]))


def gone(bridge: Bridge) -> bool:
    producer = bridge.transactional._transactor
    return producer is not None and producer.broken
