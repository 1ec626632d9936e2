"""What Kafka refuses, forgets or breaks, and which messages hear of it."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from brokers.common import free_port, wait_until
from brokers.kafka import admin, create_topic, delete_topic
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import InvalidConfigurationError
from structlog.testing import capture_logs

from contract.kafka_user import Intake, User, bodies, named, out, receive, slowest_of_others
from contract.taking import until_lost
from delaybridge.adapters.base import BackOff, NotConnected, Outgoing
from delaybridge.adapters.clock import wall_clock
from delaybridge.adapters.kafka import Endpoint, Kafka, adapter
from delaybridge.adapters.kafka.sinks import sink as sink_module
from delaybridge.core.durations import HOUR_MS
from delaybridge.core.message import Message, Properties

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.kafka import Broker


@pytest.fixture
def user(kafka: Broker) -> Iterator[User]:
    one = User(kafka.url)
    yield one
    one.close()


# --- destinations that do not take messages ---


def test_a_missing_topic_is_unroutable_and_its_neighbours_are_delivered(user: User) -> None:
    addresses = {str(number): user.topic if number % 3 else named("missing") for number in range(30)}
    user.sink().publish([out(tag, address) for tag, address in addresses.items()])
    assert user.words(30) == {tag: "confirmed" if address == user.topic else "unroutable" for tag, address in addresses.items()}


def test_a_missing_topic_holds_up_neither_the_caller_nor_another_topic(user: User) -> None:
    sink = user.sink()
    sink.publish([out("warm", user.topic)])
    user.words(1)

    def took(number: int) -> float:
        began = time.monotonic()
        sink.publish([out(f"missing {number}", named("missing")), out(f"there {number}", user.topic)])
        seconds = time.monotonic() - began
        wait_until(lambda: any(tag == b"there %d" % number for tag, _ in user.outcomes), "the neighbour", 60)
        return seconds

    assert min(took(number) for number in range(5)) < 0.1, "a machine is slow now and then, a sink that waits is each time"
    assert Counter(user.words(11).values()) == {"confirmed": 6, "unroutable": 5}


def test_a_missing_topic_is_not_created(user: User) -> None:
    missing = named("missing")
    sink = user.sink()
    sink.publish([out("1", missing)])
    assert user.words(1) == {"1": "unroutable"}
    publisher = sink._publisher
    assert publisher is not None
    assert publisher._cluster.metadata_request().allow_auto_topic_creation is False


def test_a_topic_that_appears_later_takes_messages(user: User) -> None:
    topic = named("later")
    sink = user.sink()
    sink.publish([out("early", topic)])
    assert user.words(1) == {"early": "unroutable"}
    create_topic(user.url, topic)
    sink.publish([out("late", topic)])
    assert user.words(2) == {"early": "unroutable", "late": "confirmed"}


def test_a_topic_that_is_deleted_becomes_unroutable(user: User) -> None:
    gone = named("gone")
    create_topic(user.url, gone)
    sink = user.sink()
    sink.publish([out("before", gone)])
    user.words(1)
    delete_topic(user.url, gone)
    sink.publish([out("after", gone), out("other", user.topic)])
    assert user.words(3) == {"before": "confirmed", "after": "unroutable", "other": "confirmed"}


def test_a_topic_that_was_idle_is_forgotten_and_found_again(user: User) -> None:
    idle = named("idle")
    create_topic(user.url, idle)
    sink = user.sink()
    sink.publish([out("1", idle, b"1"), out("2", idle, b"2")])
    user.words(2)
    publisher = sink._publisher
    assert publisher is not None
    publisher._idle = 0
    wait_until(
        lambda: publisher._cluster.request_update() is not None and idle not in publisher._cluster._partitions, "the topic to be forgotten"
    )
    publisher._idle = 300
    sink.publish([out("3", idle, b"3")])
    assert set(user.words(3).values()) == {"confirmed"}
    assert [record.value for record in user.read(3, idle)] == [b"1", b"2", b"3"]
    sink.publish([out("4", user.topic)])
    user.words(4)
    assert len(publisher._accumulator._batches) <= 1, "partitions for which nothing waits are not kept"


def test_a_topic_made_anew_with_fewer_partitions_holds_up_no_other(user: User) -> None:
    topic = named("refuses")
    create_topic(user.url, topic, 2)
    sink = user.sink(delivery_timeout=6)
    sink.publish([to_partition("before", topic, 1)])
    assert user.words(1) == {"before": "confirmed"}
    delete_topic(user.url, topic)
    create_topic(user.url, topic, 1)
    sink.publish([to_partition("after", topic, 1)])
    assert slowest_of_others(user, sink, until="after") < 6


def to_partition(tag: str, topic: str, partition: int) -> Outgoing:
    return Outgoing(tag.encode(), topic, Message(b"body", b"", Properties(partition=partition)))


@pytest.mark.parametrize("address", ["", "no spaces", "ö", "x" * 250, ".."])
def test_a_name_that_no_topic_can_have_is_a_bad_destination(user: User, address: str) -> None:
    user.sink().publish([out("1", address), out("2", user.topic)])
    assert user.words(2) == {"1": "bad_destination", "2": "confirmed"}


def test_what_is_too_large_is_rejected_alone_and_the_rest_keeps_its_order(user: User) -> None:
    small = named("small")
    create_topic(user.url, small, max_message_bytes="20000")
    messages = [out(str(number), small, b"%d" % number if number % 10 else secrets.token_bytes(30_000)) for number in range(50)]
    user.sink().publish(messages)
    assert user.words(50) == {str(number): "confirmed" if number % 10 else "too_large" for number in range(50)}
    assert [int(record.value) for record in user.read(45, small)] == [number for number in range(50) if number % 10]


def test_what_a_topic_takes_only_compressed_as_its_producer_had_it_arrives(user: User) -> None:
    small = named("small")
    create_topic(user.url, small, max_message_bytes="20000")
    text = b"all of it, again and again; " * 10_000
    user.sink().publish([out("small", small, b"before"), out("large", small, text), out("too", small, b"after")])
    assert user.words(3) == {"small": "confirmed", "large": "confirmed", "too": "confirmed"}
    assert [record.value for record in user.read(3, small)] == [b"before", text, b"after"]


def test_a_message_that_a_topic_refuses_is_rejected_alone(user: User) -> None:
    compacted = named("compacted")
    create_topic(user.url, compacted, cleanup_policy="compact")
    sink = user.sink()
    sink.publish([out("no key", compacted)])
    assert user.words(1) == {"no key": "rejected_by_broker"}
    sink.publish([out("key", compacted, key=b"k"), out("other", user.topic)])
    assert user.words(3) == {"no key": "rejected_by_broker", "key": "confirmed", "other": "confirmed"}


def test_neighbours_of_a_refused_message_are_due_again(user: User) -> None:
    compacted = named("compacted")
    create_topic(user.url, compacted, cleanup_policy="compact")
    user.sink().publish([out("1", compacted, key=b"k"), out("2", compacted), out("3", compacted, key=b"k")])
    assert user.words(3) == {"1": "NotConnected", "2": "rejected_by_broker", "3": "NotConnected"}


def test_what_a_wrong_clock_makes_of_messages_is_due_again_and_not_refused_for_good(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka 4 takes no time of more than an hour ahead: nothing is wrong with these messages once the machine's clock is right."""
    strict = named("strict")
    try:
        create_topic(user.url, strict, message_timestamp_after_max_ms="3600000")
    except InvalidConfigurationError:
        pytest.skip("this Kafka does not look at the time of what is from the future")
    sink = user.sink()
    with monkeypatch.context() as wrong:
        wrong.setattr(sink_module, "wall_clock", lambda: wall_clock() + 2 * HOUR_MS)
        sink.publish([out("ahead", strict)])
        assert user.words(1) == {"ahead": "refused_by_broker"}
    assert isinstance(user.outcomes[0][1], BackOff)
    sink.publish([out("right", strict)])
    assert user.words(2) == {"ahead": "refused_by_broker", "right": "confirmed"}


# --- connections ---


def test_nobody_at_the_address_is_not_connected_in_time() -> None:
    options = Kafka(bootstrap_servers=f"127.0.0.1:{free_port()}", connection_timeout=1)
    began, threads = time.monotonic(), threading.active_count()
    with pytest.raises(NotConnected):
        adapter.sink(options).connect(lambda _: None)
    with pytest.raises(NotConnected):
        adapter.source(options, Endpoint(topic="t")).connect()
    assert time.monotonic() - began < 30
    wait_until(lambda: threading.active_count() <= threads, "the client's threads to end")


def test_a_source_for_a_missing_topic_says_so(user: User) -> None:
    missing = named("missing")
    with pytest.raises(NotConnected, match=missing):
        user.source(missing)


def test_records_that_kafka_dropped_before_they_were_taken_are_told(user: User) -> None:
    user.send(*[b"taken"] * 5)
    with capture_logs() as told:
        source = user.source()
        receive(source, 5)
        source.close()
        user.send(*[b"dropped"] * 5, b"there")
        with contextlib.closing(admin(user.url)) as cluster:
            cluster.delete_records({TopicPartition(user.topic, 0): 10})
        source.connect()
        assert bodies(receive(source, 1)) == ["there"]
    assert [(each["topic"], each["partition"], each["offset"]) for each in told if each["event"] == "records_gone"] == [(user.topic, 0, 5)]


def test_a_topic_that_is_created_again_is_read_from_its_beginning(user: User) -> None:
    user.send(*[b"old"] * 5)
    source = user.source()
    receive(source, 5)
    delete_topic(user.url, user.topic)
    create_topic(user.url, user.topic)
    user.send(*[b"new"] * 8)
    until_lost(lambda: source.receive(1, 1))
    source.connect()
    assert bodies(receive(source, 8)) == ["new"] * 8


def test_a_topic_that_is_deleted_ends_the_connection_of_who_reads_it_until_it_is_there_again(user: User) -> None:
    """Else the route is ready, and takes nothing in."""
    user.send(b"old")
    source = user.source()
    receive(source, 1)
    wait_until(lambda: bool(user.committed()), "the commit")  # one that fails ends the connection, too
    delete_topic(user.url, user.topic)
    until_lost(lambda: source.receive(1, 1), f"there is no topic {user.topic}: create it")
    create_topic(user.url, user.topic)
    user.send(b"new")
    source.connect()
    assert bodies(receive(source, 1)) == ["new"]


def test_a_commit_that_comes_after_its_topic_was_created_again_skips_nothing_of_the_new_one(user: User) -> None:
    user.send(*[b"old"] * 5)
    source = user.source()
    receive(source, 5)
    source.close()
    with contextlib.closing(KafkaConsumer(bootstrap_servers=user.url, group_id=user.group)) as late:
        partition = TopicPartition(user.topic, 0)
        committed = late.committed(partition, metadata=True)
        delete_topic(user.url, user.topic)
        create_topic(user.url, user.topic)
        user.send(*[b"new"] * 8)
        late.commit({partition: committed})
    assert committed.offset == user.committed()[0] == 5
    source.connect()
    assert bodies(receive(source, 8)) == ["new"] * 8


# --- restarts ---


def own(kafka: Broker) -> User:
    if not kafka.restartable:
        pytest.skip("this broker is not ours to stop")
    return User(kafka.url)


def publish_through(user: User, kafka: Broker, kill: bool) -> list[str]:
    """Publish while the broker goes away and comes back, as the bridge does; the tags that were confirmed, in order."""
    sink = user.sink(delivery_timeout=60, connection_timeout=40)
    back = threading.Thread(target=kafka.start if kill else kafka.restart)
    for number in range(2000):
        if number == 500:
            wait_until(lambda: len(user.outcomes) > 100, "the first confirms")
            if kill:
                kafka.kill()
            back.start()
        sink.publish([out(str(number), user.topic, b"%d" % number)])
    back.join()
    words = user.words(2000, 90)
    assert set(words.values()) == {"confirmed"}
    return [tag.decode() for tag, _ in user.outcomes]


@pytest.mark.parametrize("kill", [False, True], ids=["restart", "kill -9"])
def test_a_broker_that_comes_back_gets_everything_once_and_in_order(kafka: Broker, kill: bool) -> None:
    user = own(kafka)
    try:
        confirmed = publish_through(user, kafka, kill)
        assert confirmed == [str(number) for number in range(2000)]
        assert [int(record.value) for record in user.read(2000)] == list(range(2000))
    finally:
        user.close()


def test_a_broker_that_stays_away_gives_every_message_an_outcome(kafka: Broker) -> None:
    user = own(kafka)
    sink = user.sink(delivery_timeout=2, connection_timeout=3)
    source = user.source(connection_timeout=3)
    sink.publish([out("first", user.topic)])
    user.words(1)
    kafka.kill()
    try:
        sink.publish([out(str(number), user.topic) for number in range(100)])
        words = user.words(101)
        assert {word for tag, word in words.items() if tag != "first"} <= {"NotConnected", "refused_by_broker"}
        until_lost(lambda: sink.publish(()))
        until_lost(lambda: source.receive(1, 0.5))
        began = time.monotonic()
        user.close()
        assert time.monotonic() - began < 60
    finally:
        kafka.start()


def test_a_source_goes_on_where_it_was_after_the_broker_was_killed(kafka: Broker) -> None:
    user = own(kafka)
    try:
        user.send(*[b"%d" % number for number in range(500)])
        source = user.source(connection_timeout=60)
        intake = Intake(source)
        wait_until(lambda: len(intake.stored) >= 100, "the first messages")
        kafka.kill()
        kafka.start()
        user.send(*[b"%d" % number for number in range(500, 1000)])
        wait_until(lambda: len(set(intake.stored)) >= 1000, "all messages", 60)
        intake.stop()
        assert Counter(Counter(intake.stored).values()) == {1: 1000}
    finally:
        user.close()
