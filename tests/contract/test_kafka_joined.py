"""What a batch from a topic becomes is published, and the batch forgotten, together on Kafka, or not at all."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pytest
from brokers.common import wait_until
from brokers.kafka import create_topic, delete_topic

from contract.kafka_user import User, named
from contract.kafka_world import World
from contract.test_kafka_levels import bodies
from contract.test_kafka_moves import unreachable
from delaybridge.adapters.base import NotConnected
from delaybridge.adapters.kafka import Endpoint, adapter
from delaybridge.adapters.kafka.transactions.state import Moving
from delaybridge.core.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from brokers.kafka import Broker

    from delaybridge.adapters.base import Batch, Confirm, Outcome
    from delaybridge.adapters.kafka.level_queues.joined import JoinedSource
    from delaybridge.adapters.moves import Move


class Door:
    """A topic from which bridges take, and what they publish where."""

    def __init__(self, url: str) -> None:
        self.world = World(url)
        self.user = User(url, partitions=2)
        self.bridges: list[JoinedSource] = []
        self.entered: list[str] = []

    def bridge(self, name: str = "bridge", **options: object) -> JoinedSource:
        """Another one, connected."""
        settings = self.user.options(**{"session_timeout": 10} | options)
        source = adapter.source(settings, Endpoint(topic=self.user.topic, group=self.user.group))
        joined = adapter.transactional_levels(settings, self.world.levels.levels, name).joined(source, "route")
        assert joined is not None
        self.bridges.append(joined)
        joined.connect()
        return joined

    def onwards(self, bridge: JoinedSource, batch: Batch) -> None:
        found = bodies(batch.messages)
        bridge.publish([(self.world.destination, Message(body.encode())) for body in found], lambda: self.entered.extend(found))

    def pass_on(self, bridge: JoinedSource, limit: int = 100) -> Batch:
        """All that is done with a batch."""
        batch = received(bridge, limit)
        self.onwards(bridge, batch)
        batch.ack()
        return batch

    def fill(self, count: int, partition: int = 0) -> None:
        self.user.send(*[b"%d" % number for number in range(count)], partition=partition)

    def committed(self) -> int:
        return sum(self.user.committed().values())

    def close(self) -> None:
        for bridge in self.bridges:
            bridge.close()
        self.user.close()
        self.world.close()


@pytest.fixture
def door(kafka: Broker) -> Iterator[Door]:
    with contextlib.closing(Door(kafka.url)) as made:
        yield made


def received(bridge: JoinedSource, limit: int = 100) -> Batch:
    batch = bridge.receive(limit, 30)
    assert batch is not None
    return batch


def test_what_a_batch_becomes_is_there_when_its_offsets_are_committed(door: Door) -> None:
    door.fill(10)
    bridge = door.bridge()
    batch = received(bridge, 6)
    door.onwards(bridge, batch)
    assert door.committed() == len(batch.messages)
    # Kafka ends a transaction in each partition by itself, after it has said that it will.
    wait_until(lambda: sorted(door.world.read()) == sorted(bodies(batch.messages)), "what the batch became")
    batch.ack()
    door.pass_on(bridge)
    assert len(door.world.read()) == len(door.entered) == 10
    bridge.close()
    assert door.committed() == 10
    door.user.send(b"new", partition=0)
    assert bodies(received(door.bridge()).messages) == ["new"]


def test_a_batch_of_which_nothing_becomes_is_committed_with_its_acknowledgement(door: Door) -> None:
    door.user.send(b"a", b"b", partition=0)
    bridge = door.bridge()
    received(bridge).ack()
    assert door.committed() == 2


def test_a_batch_of_which_nothing_becomes_undoes_nothing_that_was_committed_after_it(door: Door) -> None:
    door.fill(10)
    bridge = door.bridge()
    for number in range(5):
        if number % 2:
            door.pass_on(bridge, 2)
        else:
            received(bridge, 2).ack()
    assert door.committed() == 10
    bridge.close()
    assert door.committed() == 10


def test_what_was_not_published_comes_again_and_what_was_does_not(door: Door) -> None:
    door.fill(10, partition=1)
    bridge = door.bridge()
    first = door.pass_on(bridge, 5)
    second = received(bridge, 5)
    assert len(second.messages) == 5
    with pytest.raises(NotConnected, match="were not taken"):
        bridge.publish([(named("nowhere"), Message(b"x"))], lambda: door.entered.append("x"))
    bridge.connect()
    assert bodies(received(bridge, 10).messages) == bodies(second.messages)
    assert sorted(door.world.read()) == sorted(door.entered) == sorted(bodies(first.messages))


def test_a_bridge_whose_name_another_has_taken_over_publishes_nothing_more(door: Door) -> None:
    """As one that was stopped for a while, or killed and started elsewhere."""
    door.fill(10)
    ghost = door.bridge()
    batch = received(ghost, 10)
    bridge = door.bridge()
    with pytest.raises(NotConnected):
        door.onwards(ghost, batch)
    assert (door.world.read(), door.committed()) == ([], 0)
    ghost.close()
    again = received(bridge, 10)
    door.onwards(bridge, again)
    assert sorted(door.world.read()) == sorted(bodies(batch.messages))


@pytest.mark.parametrize("broken", [False, True], ids=["and it hears so", "and its producer is broken"])
def test_a_batch_of_which_a_part_has_gone_to_another_bridge_is_not_published(door: Door, broken: bool) -> None:
    door.user.send(b"before", b"a", b"b", partition=0)
    bridge = door.bridge()
    door.pass_on(bridge, 1)
    batch = received(bridge, 10)
    poller, transactor = bridge.poller, bridge._transactor
    assert poller is not None
    assert transactor is not None
    poller.drop(set(poller.consumer.assignment()))
    if broken:
        transactor._break(NotConnected("broken"))
    with pytest.raises(NotConnected, match="another bridge"):
        door.onwards(bridge, batch)
    bridge.connect()
    assert bodies(received(bridge).messages) == bodies(batch.messages)
    assert door.world.read() == door.entered == ["before"]


def test_a_bridge_that_its_group_has_forgotten_publishes_nothing_of_what_it_fetched_before(door: Door) -> None:
    door.user.send(b"a", b"b", partition=0)
    bridge = door.bridge()
    batch = received(bridge, 10)
    poller = bridge.poller
    assert poller is not None
    poller._member = "who-it-was"  # it has joined again as somebody else
    with pytest.raises(NotConnected):
        door.onwards(bridge, batch)
    with pytest.raises(NotConnected, match="has forgotten"):
        bridge.receive(1, 5)
    assert door.world.read() == []


def test_a_producer_that_makes_no_more_transactions_is_noticed_at_once(door: Door) -> None:
    door.user.send(b"a", partition=0)
    bridge = door.bridge()
    batch, transactor = received(bridge), bridge._transactor
    assert transactor is not None
    transactor._break(NotConnected("broken"))
    began = time.monotonic()
    with pytest.raises(NotConnected, match="broken"):
        door.onwards(bridge, batch)
    assert time.monotonic() - began < 5, "a transaction is waited for twice as long"


def test_what_could_not_be_told_is_told_again(door: Door) -> None:
    """As where the disk is full at that moment."""
    door.user.send(b"a", partition=0)
    bridge, told = door.bridge(), list[str]()

    def full_at_first() -> None:
        told.append("tried")
        if len(told) == 1:
            raise OSError("no space left")

    received(bridge)
    with pytest.raises(OSError, match="no space left"):
        bridge.publish([(door.world.destination, Message(b"a"))], full_at_first)
    bridge.connect()
    assert bridge.receive(1, 1) is None
    assert (told, door.world.read()) == (["tried", "tried"], ["a"])


@pytest.mark.parametrize("happened", [True, False])
def test_what_was_in_doubt_is_told_when_it_is_known(door: Door, monkeypatch: pytest.MonkeyPatch, happened: bool) -> None:
    """As where a broker goes away in the middle of a transaction's end."""
    door.user.send(b"a", b"b", partition=0)
    bridge = door.bridge()
    batch, transactor = received(bridge), bridge._transactor
    assert transactor is not None
    begin = transactor.begin

    def begun(moves: Sequence[Move], confirm: Confirm) -> None:
        def silent(outcomes: Sequence[Outcome]) -> None:
            confirm([(tag, NotConnected("no answer")) for tag, _ in outcomes])

        if happened:
            begin(moves, silent)
        else:
            silent([(each.tag, None) for each in moves])

    monkeypatch.setattr(transactor, "begin", begun)
    with pytest.raises(NotConnected, match="no answer"):
        door.onwards(bridge, batch)
    assert door.entered == []
    bridge.connect()
    door.user.send(b"new", partition=0)
    wait_until(lambda: bridge.receive(10, 1) is not None, "what comes then", 30)
    assert door.entered == door.world.read() == (bodies(batch.messages) if happened else [])
    assert door.committed() == (2 if happened else 0)


def test_sources_of_other_kinds_are_not_joined(door: Door) -> None:
    source = adapter.source(door.user.options(), Endpoint(topic=door.user.topic))
    levels = door.world.levels.levels
    assert adapter.transactional_levels(door.user.options(exactly_once=False), levels).joined(source, "route") is None
    assert (
        adapter.transactional_levels(door.user.options(), levels).joined(adapter.tap(door.user.options(), door.user.topic), "route") is None
    )


def test_a_topic_that_was_created_again_is_read_from_its_beginning(door: Door) -> None:
    """A transaction commits of which topic its offsets are, as a plain commit does."""
    door.fill(4)
    bridge = door.bridge()
    door.pass_on(bridge)
    bridge.close()
    delete_topic(door.user.url, door.user.topic)
    create_topic(door.user.url, door.user.topic, 2)
    door.user.send(b"new", partition=0)
    assert bodies(received(door.bridge(), 10).messages) == ["new"]


def test_what_never_began_is_not_told_as_entered_where_another_bridge_did_it(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last transaction that the cluster knows of is the one before, and was committed; and the offsets are as far as they would be."""
    door.user.send(b"before", b"a", b"b", partition=0)
    bridge = door.bridge("one")
    door.pass_on(bridge, 1)
    batch = received(bridge, 10)
    with monkeypatch.context() as patched:
        patched.setattr(Moving, "all_in_one", unreachable)
        with pytest.raises(NotConnected):
            door.onwards(bridge, batch)
    bridge.close()
    door.pass_on(door.bridge("two"), 10)
    assert door.entered == ["before", "a", "b"]

    bridge.connect()
    bridge.receive(1, 5)

    assert door.entered == ["before", "a", "b"]
    assert sorted(door.world.read()) == ["a", "b", "before"]
