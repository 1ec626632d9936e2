"""Sources that share a group: what is committed, and what becomes of a partition that changes hands."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from brokers.common import wait_until
from brokers.kafka import admin, create_topic

from contract.kafka_user import Intake, User, bodies, named, receive
from delaybridge.adapters.base import NotConnected
from delaybridge.adapters.kafka import Endpoint, adapter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.kafka import Broker

    from delaybridge.adapters.kafka.sources.source import KafkaSource


@pytest.fixture
def user(kafka: Broker) -> Iterator[User]:
    one = User(kafka.url, partitions=6)
    yield one
    one.close()


def fill(user: User, start: int, count: int) -> None:
    with user.producer() as producer:
        for number in range(start, start + count):
            producer.send(user.topic, b"%d" % number, partition=number % 6)
        producer.flush(20)


def test_only_what_is_acknowledged_is_committed(user: User) -> None:
    user.send(*[b"%d" % number for number in range(10)], partition=0)
    source = user.source()
    first, second = (source.receive(4, 10) for _ in range(2))
    assert first is not None
    assert second is not None
    assert user.committed() == {}
    second.ack()
    first.ack()
    wait_until(lambda: user.committed() == {0: 8}, "the commit")


def test_nothing_is_committed_behind_a_batch_that_is_not_acknowledged(user: User) -> None:
    user.send(*[b"%d" % number for number in range(10)], partition=0)
    source = user.source()
    first, second = (source.receive(4, 10) for _ in range(2))
    assert first is not None
    assert second is not None
    second.ack()
    source.close()  # which commits whatever may be committed
    assert user.committed() == {}


def test_closing_commits_what_was_acknowledged(user: User) -> None:
    user.send(*[b"%d" % number for number in range(10)], partition=3)
    source = user.source()
    receive(source, 6)
    receive(source, 2, ack=False)
    source.close()
    assert user.committed() == {3: 6}


def test_a_source_that_stood_still_for_longer_than_its_session_gives_nothing_that_came_meanwhile(kafka: Broker) -> None:
    """As a bridge on a machine that was suspended: its partitions are others' by then."""
    with contextlib.closing(User(kafka.url, session_timeout=1.5)) as user:
        asleep = user.apart()
        user.send(b"before")
        assert bodies(receive(asleep, 1)) == ["before"]
        assert asleep._process is not None
        os.kill(asleep._process._process.pid, signal.SIGSTOP)
        awake = user.source()
        user.send(*[b"%d" % number for number in range(50)])
        receive(awake, 50)
        os.kill(asleep._process._process.pid, signal.SIGCONT)
        with pytest.raises(NotConnected):
            asleep.receive(100, 15)


def test_partitions_change_hands_in_the_middle_of_intake_without_loss_or_doubles(user: User) -> None:
    intakes = [Intake(user.source())]
    sent = 0
    for _ in range(2):
        intakes.append(Intake(user.source()))
        for _ in range(100):
            fill(user, sent, 600)
            sent += 600
            if intakes[-1].stored:
                break
    wait_until(lambda: len({token for intake in intakes for token in intake.stored}) == sent, "all messages", 60)
    for intake in intakes:
        intake.stop()
    assert all(intake.stored for intake in intakes)
    assert Counter(Counter(token for intake in intakes for token in intake.stored).values()) == {1: sent}


def test_nothing_of_a_partition_is_committed_after_it_went_to_another(user: User) -> None:
    fill(user, 0, 60)
    first = user.source()
    messages = [first.receive(10, 10) for _ in range(6)]
    poller = first._poller
    assert poller is not None
    second = user.source()
    wait_until(lambda: second._poller is not None and len(second._poller.consumer.assignment()) == 3, "the second's partitions", 40)
    theirs = {partition.partition for partition in second._poller.consumer.assignment()} if second._poller else set()
    for batch in messages:
        assert batch is not None
        batch.ack()
    first.close()
    assert user.committed().keys().isdisjoint(theirs)
    assert len(receive(second, 30)) == 30


def test_a_source_that_is_not_read_keeps_its_partitions(user: User) -> None:
    fill(user, 0, 3000)
    source = user.source(prefetch=10, session_timeout=6)
    poller = source._poller
    assert poller is not None
    wait_until(lambda: len(poller.consumer.assignment()) == 6, "the partitions", 20)
    heartbeat = poller.consumer._coordinator.heartbeat
    heartbeat.config["max_poll_interval_ms"] = 2000
    generation = poller.consumer.group_metadata().generation_id
    later = time.monotonic() + 8  # more than the session and the poll interval
    wait_until(lambda: heartbeat.last_send > later, "a heartbeat after that time")
    assert poller.consumer.group_metadata().generation_id == generation
    assert poller.inbox._count <= 10 + 10, "no more is fetched than the prefetch window and what was under way"
    assert len(receive(source, 3000)) == 3000


def test_a_member_that_comes_back_under_its_instance_finds_partitions_that_appear_later(user: User) -> None:
    """Kafka tells it that it leads no more, and nobody else does."""

    def opened() -> KafkaSource:
        source = adapter.source(user.options(), Endpoint(topic=user.topic, group=user.group, instance="one"))
        user._opened.append(source)
        source.connect()
        return source

    user.send(b"1", partition=0)
    source = opened()
    receive(source, 1)
    source.close()
    source = opened()
    user.send(b"2", partition=0)
    receive(source, 1)
    with contextlib.closing(admin(user.url)) as client:
        client.create_partitions({user.topic: 7})
        wait_until(lambda: len(client.describe_topics([user.topic])[0]["partitions"]) == 7, "the new partition")
    assert source._poller is not None
    source._poller.consumer._cluster.request_update()  # as it does once a minute
    user.send(b"3", partition=6)
    assert bodies(receive(source, 1)) == ["3"]


def test_a_member_without_a_partition_is_well_and_takes_over(user: User) -> None:
    topic = named("narrow")
    create_topic(user.url, topic)
    first, second = user.source(topic), user.source(topic)
    poller = second._poller
    assert poller is not None
    wait_until(lambda: poller.consumer.group_metadata().generation_id > 0, "the second to be a member", 20)
    user.send(b"1", topic=topic)
    owners = [source for source in (first, second) if source.receive(1, 5)]
    assert len(owners) == 1
    owners[0].close()
    (other,) = {first, second} - set(owners)
    assert bodies(receive(other, 1)) == ["1"]


def test_of_several_topics_each_is_spread_over_all_members(user: User) -> None:
    prefix = named("p")
    for topic in ("a", "b", "c"):
        create_topic(user.url, f"{prefix}.{topic}", 4)
    first = user.source(f"^{prefix}\\..*")
    user.send(b"1", topic=f"{prefix}.a")
    receive(first, 1)  # it has all of them
    second = user.source(f"^{prefix}\\..*")

    def shares(source: KafkaSource) -> list[int]:
        source.receive(1, 0.1)
        assert source._poller is not None
        return sorted(Counter(partition.topic for partition in source._poller.consumer.assignment()).values())

    wait_until(lambda: shares(first) == shares(second) == [2, 2, 2], "half of each topic at either", 30)


def test_a_pattern_finds_topics_that_appear_later(user: User) -> None:
    prefix = named("p")
    create_topic(user.url, prefix + ".a.delayed")
    create_topic(user.url, prefix + ".a.delayed.not")
    source = user.source(f"^{prefix}\\..*\\.delayed", session_timeout=2)
    poller = source._poller
    assert poller is not None
    wait_until(lambda: {partition.topic for partition in poller.consumer.assignment()} == {prefix + ".a.delayed"}, "the first topic", 20)
    create_topic(user.url, prefix + ".b.delayed")
    poller.consumer._cluster.request_update()  # else within a minute
    user.send(b"late", topic=prefix + ".b.delayed")
    (one,) = receive(source, 1)
    assert (one.message.body, one.address) == (b"late", prefix + ".b")
