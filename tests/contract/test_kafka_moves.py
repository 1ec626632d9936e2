"""What leaves a level and what becomes of it happen together on Kafka, or not at all."""

from __future__ import annotations

import threading
import time
from functools import partialmethod
from typing import TYPE_CHECKING, Any

import pytest
from brokers.common import wait_until
from brokers.kafka import create_topic, delete_topic
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition

from contract.kafka_user import named
from contract.kafka_world import KINDS, World, moving, taken, world_with
from contract.outcomes import word
from contract.test_kafka_levels import bodies
from delaybridge.adapters.base import NotConnected
from delaybridge.adapters.kafka import adapter
from delaybridge.adapters.kafka.cluster import Cluster, opened
from delaybridge.adapters.kafka.level_queues.queues import group
from delaybridge.adapters.kafka.transactions import implicit, markers, transactor
from delaybridge.adapters.kafka.transactions.state import Aborted, Moving, ended
from delaybridge.adapters.moves import Move
from delaybridge.core.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.kafka import Broker


@pytest.fixture(params=KINDS)
def world(kafka: Broker, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world_with(request.param, kafka.url, monkeypatch) as made:
        yield made


def test_what_waits_in_a_log_that_begins_anew_comes_out_whatever_was_committed_of_the_old_one(world: World) -> None:
    """As where a topic was deleted and made again, or a leader lost its end."""
    level = world.levels.levels[0].name
    consumer = KafkaConsumer(bootstrap_servers=world.url, group_id=group(level), enable_auto_commit=False)
    partitions = [TopicPartition(level, number) for number in consumer.partitions_for_topic(level)]
    consumer.assign(partitions)
    consumer.commit({each: OffsetAndMetadata(100, "", -1) for each in partitions})
    consumer.close()
    bridge = world.bridge()
    world.levels.put(*map(str, range(30)))
    assert sorted(map(int, bodies(taken(bridge, 30)))) == list(range(30))


def test_a_record_that_comes_again_while_its_move_waits_is_moved_once(world: World) -> None:
    world.levels.put("a")
    bridge = world.bridge()
    (one,) = taken(bridge, 1)
    bridge.mover.move([Move(tag, ((world.destination, Message(tag)),), one.token) for tag in (b"first", b"again")])

    assert sorted(bridge.words(2)) == ["Gone", "confirmed"]
    assert world.read() == ["again"]


def test_a_destination_that_is_deleted_holds_up_no_other(world: World) -> None:
    gone = named("gone")
    create_topic(world.url, gone)
    world.levels.put(*"abcd")
    bridge = world.bridge()
    messages = taken(bridge, 4)
    bridge.move(messages[:1], gone)
    bridge.move(messages[1:2], world.destination)
    assert bridge.words(2) == ["confirmed"] * 2

    delete_topic(world.url, gone)
    bridge.move(messages[2:3], gone)
    bridge.move(messages[3:], world.destination)

    assert sorted(bridge.words(2, 8)) == ["confirmed", "unroutable"]


def test_what_is_moved_arrives_and_does_not_come_again(world: World) -> None:
    world.levels.put(*[f"{number}" for number in range(100)])
    bridge = world.bridge()
    messages = taken(bridge, 100)
    bridge.move(messages[:60], world.destination)
    assert bridge.words(60) == ["confirmed"] * 60
    assert sorted(world.read()) == sorted(bodies(messages[:60]))
    bridge.close()
    again = world.bridge()
    assert sorted(bodies(taken(again, 40))) == sorted(bodies(messages[60:]))
    assert again.source.receive(1, 0.5) is None


def can(world: World) -> bool:
    """Whether the cluster has transactions of that kind, and this test lets the bridge know."""
    with opened(world.levels.user.options()) as cluster:
        return cluster.transactions.implicit() and cluster.version >= implicit.OLDEST


def test_each_transaction_has_an_epoch_of_its_own_where_the_cluster_can_do_that(world: World) -> None:
    world.levels.put(*"abc")
    bridge = world.bridge()
    producers = []
    for message in taken(bridge, 3):
        bridge.move([message], world.destination)
        assert bridge.words(1) == ["confirmed"]
        assert bridge.mover._transactor is not None
        numbers = bridge.mover._transactor._numbers
        producers.append(numbers.producer_id_and_epoch)
    first, epochs = producers[0], [each.epoch - producers[0].epoch for each in producers]
    assert {each.producer_id for each in producers} == {first.producer_id}
    assert epochs == ([0, 1, 2] if can(world) else [0, 0, 0])
    assert sorted(world.read()) == ["a", "b", "c"]


def test_a_worn_producer_id_is_renewed_between_two_transactions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the cluster gives each transaction an epoch. It has 32,767 of an id; here three are worn, and the cluster gives the next one."""
    monkeypatch.setattr(implicit, "WORN", 3)
    monkeypatch.setattr(markers, "AGAIN", 0.0)
    renew, renewed = implicit.Implicit.renew, []

    def counted(numbers: implicit.Implicit) -> Any:
        renewed.append(numbers.producer_id_and_epoch.epoch)
        monkeypatch.setattr(implicit, "WORN", renewed[-1] + 3)
        return renew(numbers)

    monkeypatch.setattr(implicit.Implicit, "renew", counted)
    world.levels.put(*map(str, range(10)))
    bridge = world.bridge()
    for message in taken(bridge, 10):
        bridge.move([message], world.destination)
        assert bridge.words(1) == ["confirmed"]
    assert (len(renewed) >= 3) == can(world)
    assert sorted(map(int, world.read())) == list(range(10))


def test_what_follows_is_published_with_it(world: World) -> None:
    follow = named("follow")
    create_topic(world.url, follow)
    world.levels.put("a")
    bridge = world.bridge()
    bridge.move(taken(bridge, 1), world.destination, (follow, Message(b"next")))
    assert bridge.words(1) == ["confirmed"]
    assert (world.read(), world.read(follow)) == (["a"], ["next"])


def test_a_level_through_which_all_has_gone_is_empty_and_may_be_taken_away(world: World) -> None:
    """Though what is published in transactions leaves markers in it."""
    world.levels.put("0", "1", "2")
    bridge = world.bridge()
    for _ in range(3):
        messages = taken(bridge, 3)
        bridge.move(messages, world.levels.levels[0].name)
        assert bridge.words(3) == ["confirmed"] * 3
    bridge.move(taken(bridge, 3), world.destination)
    assert bridge.words(3) == ["confirmed"] * 3
    assert world.levels.queues.depths() == [0]
    bridge.close()
    assert all(step.done for step in world.levels.queues.undo())


def test_a_message_may_be_finished_and_nothing_published(world: World) -> None:
    world.levels.put("a", "b")
    bridge = world.bridge()
    first, _ = taken(bridge, 2)
    bridge.mover.move([Move(b"1", (), first.token)])
    assert bridge.words(1) == ["confirmed"]
    bridge.close()
    assert len(taken(world.bridge(), 1)) == 1


def test_a_destination_that_is_missing_or_refuses_keeps_no_other_move(world: World) -> None:
    small = named("small")
    create_topic(world.url, small, max_message_bytes="1000")
    world.levels.put(*[f"{number}" for number in range(9)])
    bridge = world.bridge()
    messages = taken(bridge, 9)
    bridge.move(messages[:2], named("nowhere"))
    bridge.move(messages[2:4], small, size=5000)
    bridge.move(messages[4:], world.destination)
    assert sorted(bridge.words(9)) == ["confirmed"] * 5 + ["too_large"] * 2 + ["unroutable"] * 2
    assert sorted(world.read()) == sorted(bodies(messages[4:]))
    bridge.close()
    assert sorted(bodies(taken(world.bridge(), 4))) == sorted(bodies(messages[:4]))


def test_what_a_destination_refuses_is_told_at_once_also_where_nothing_else_is_on_its_way(world: World) -> None:
    small = named("small")
    create_topic(world.url, small, max_message_bytes="1000")
    world.levels.put("a", "b")
    bridge = world.bridge()
    messages = taken(bridge, 2)
    bridge.move(messages[:1], small)
    assert bridge.words(1) == ["confirmed"], "the topic is known now: nothing is asked of the cluster beside what follows"
    bridge.move(messages[1:], small, size=5000)
    assert bridge.words(1, timeout=20) == ["too_large"]


def test_a_destination_that_nobody_leads_keeps_no_other_move(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    nobodys = named("nobodys")
    create_topic(world.url, nobodys)
    world.levels.put(*[f"{number}" for number in range(9)])
    bridge = world.bridge()
    messages = taken(bridge, 9)
    bridge.move(messages[:1], nobodys)
    assert bridge.words(1) == ["confirmed"], "from now on it is one of those that are looked at"
    led, partition = Cluster.led, TopicPartition(nobodys, 0)

    def without(*asked: Any) -> tuple[set[TopicPartition], set[TopicPartition]]:
        found, leaderless = led(*asked)
        return found - {partition}, leaderless | {partition}

    monkeypatch.setattr(Cluster, "led", without)
    bridge.transactional._identities.last.doubt()
    bridge.move(messages[1:3], nobodys)
    bridge.move(messages[3:], world.destination)
    assert sorted(bridge.words(8)) == ["confirmed"] * 6 + ["refused_by_broker"] * 2
    assert sorted(world.read()) == sorted(bodies(messages[3:]))


def test_a_message_that_was_moved_already_is_gone(world: World) -> None:
    world.levels.put("a")
    bridge = world.bridge()
    (message,) = taken(bridge, 1)
    for expected in ("confirmed", "Gone"):
        bridge.move([message], world.destination)
        assert bridge.words(1) == [expected]
    assert world.read() == ["a"]


@pytest.mark.parametrize("heard", [False, True], ids=["and has not heard", "and has just heard"])
def test_a_bridge_that_lost_its_partitions_moves_nothing_of_them(world: World, heard: bool) -> None:
    """As one that stood still for longer than its session."""
    world.levels.put("a", "b", "c")
    first = world.bridge(session_timeout=1.5)
    messages = taken(first, 3)
    poller = first.transactional._hub.poller
    assert poller is not None
    poller._stopping.set()
    poller._thread.join()
    poller.consumer._coordinator._close_heartbeat()  # its group hears no more of it
    second = world.bridge()
    moved = taken(second, 3)
    if heard:
        poller.consumer._coordinator.reset_generation()  # as the answer to its next heartbeat makes it
    first.move(messages, world.destination)
    time.sleep(0.5)  # the first has time to do it, and is not always told that it may not; what decides is what is read in the end
    assert "confirmed" not in [word(error) for _, error in first.outcomes]
    second.move(moved, world.destination)
    assert second.words(3) == ["confirmed"] * 3
    assert sorted(world.read()) == ["a", "b", "c"]


def test_a_producer_that_was_fenced_off_ends_its_session_and_starts_anew(world: World) -> None:
    world.levels.put("a", "b")
    bridge = world.bridge("same")
    messages = taken(bridge, 2)
    impostor = adapter.transactional_levels(world.levels.user.options(), world.levels.levels, "same")
    mover = moving(impostor)
    mover.connect(lambda _: None)
    bridge.move(messages, world.destination)
    producer = bridge.transactional._transactor
    assert producer is not None
    wait_until(lambda: producer.broken, "the producer to hear of it")
    mover.close()
    bridge.connect()
    assert bridge.words(2) == ["NotConnected"] * 2
    bridge.move(taken(bridge, 2), world.destination)
    assert bridge.words(2) == ["confirmed"] * 2
    assert sorted(world.read()) == ["a", "b"]


@pytest.mark.parametrize(("commit", "known"), [(True, "confirmed"), (False, "NotConnected")], ids=["committed", "aborted"])
def test_a_transaction_in_doubt_is_told_by_the_next_producer(
    world: World, monkeypatch: pytest.MonkeyPatch, commit: bool, known: str
) -> None:
    world.levels.put("a", "b")
    bridge = world.bridge()
    messages = taken(bridge, 2)
    bridge.move(messages[:1], world.destination)
    assert bridge.words(1) == ["confirmed"]
    all_in_one = Moving.all_in_one

    def lost(*args: Any) -> None:
        ended(*args)
        raise NotConnected("the connection was lost before the answer came")

    with monkeypatch.context() as patched:
        patched.setattr(transactor, "ended", lost)
        patched.setattr(Moving, "all_in_one", partialmethod(all_in_one, commit=commit))
        bridge.move(messages[1:], world.destination)
        producer = bridge.transactional._transactor
        assert producer is not None
        wait_until(lambda: producer.broken, "the producer to be given up")
    bridge.source.connect()
    assert bridge.outcomes == []
    bridge.mover.connect(bridge.outcomes.extend)
    assert bridge.words(1) == [known]
    if not commit:
        bridge.move(taken(bridge, 1), world.destination)
        assert bridge.words(1) == ["confirmed"]
    assert world.read() == ["a", "b"]


@pytest.mark.parametrize("end", ["committed", "aborted", "committed, and nobody knows"])
def test_who_leaves_in_the_middle_of_a_transaction_hears_how_it_ended(world: World, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    world.levels.put("a", "b")
    bridge = world.bridge()
    other = moving(bridge.transactional)
    other.connect(lambda _: None)  # the producer goes on
    messages = taken(bridge, 2)
    begun, left, all_in_one = threading.Event(), threading.Event(), Moving.all_in_one

    def late(*args: Any) -> None:
        begun.set()
        left.wait(20)
        ended(*args)
        if end == "aborted":
            raise Aborted("as it was")
        if end != "committed":
            raise NotConnected("the connection was lost before the answer came")

    with monkeypatch.context() as patched:
        patched.setattr(transactor, "ended", late)
        patched.setattr(Moving, "all_in_one", partialmethod(all_in_one, commit=end != "aborted"))
        bridge.move(messages, world.destination)
        assert begun.wait(20)
        bridge.mover.close()
        assert bridge.outcomes == [], "nobody knows yet"
        left.set()
        producer = bridge.transactional._transactor
        assert producer is not None
        wait_until(lambda: bool(producer.broken or bridge.outcomes), "the end")
    if producer.broken:
        bridge.source.connect()
    bridge.mover.connect(bridge.outcomes.extend)
    assert bridge.words(2) == ["NotConnected" if end == "aborted" else "confirmed"] * 2
    if end == "aborted":
        bridge.move(messages, world.destination)
        assert bridge.words(2) == ["confirmed"] * 2
    assert world.read() == ["a", "b"]
    other.close()


def test_a_broker_too_old_to_tell_how_transactions_end_is_refused_with_the_way_out(world: World) -> None:
    mover = moving(adapter.transactional_levels(world.levels.user.options(api_version="2.8"), world.levels.levels))
    with pytest.raises(NotConnected, match=r"needs Kafka 3\.0 or later, and this broker speaks 2\.8: set exactly_once: false"):
        mover.connect(print)


def test_transactions_follow_one_another_quickly(world: World) -> None:
    world.levels.put(*[f"{number}" for number in range(200)])
    bridge = world.bridge()
    messages = taken(bridge, 200)
    bridge.move(messages[:1], world.destination)
    bridge.words(1)
    times = []
    for message in messages[1:51]:
        began = time.monotonic()
        bridge.move([message], world.destination)
        bridge.words(1)
        times.append(time.monotonic() - began)
    times.sort()
    print(f"one transaction after another: {times[25] * 1000:.1f} ms (p50), {times[-1] * 1000:.1f} ms at most")
    assert times[25] < 1  # how quickly is for `make bench` to say: here, other tests have the machine as well


def unreachable(*_: object, **__: object) -> None:
    """As where the coordinator is away."""
    raise NotConnected("a transaction did not end within 45 s")


def test_what_never_began_is_not_told_as_moved_where_another_bridge_did_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """See the test of the same name of joined sources."""
    world.levels.put("before")
    one = world.bridge("one")
    one.move(taken(one, 1), world.destination)
    assert one.words(1) == ["confirmed"]
    world.levels.put("a")
    messages = taken(one, 1)
    producer = one.transactional._transactor
    assert producer is not None
    with monkeypatch.context() as patched:
        patched.setattr(Moving, "all_in_one", unreachable)
        one.move(messages, world.destination)
        wait_until(lambda: producer.broken, "the producer to be given up")
    one.close()
    two = world.bridge("two")
    two.move(taken(two, 1), world.destination)
    assert two.words(1) == ["confirmed"]

    one.source.connect()
    one.mover.connect(one.outcomes.extend)

    assert one.words(1) == ["NotConnected"]
    assert world.read() == ["before", "a"]
