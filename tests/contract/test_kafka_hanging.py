"""`doctor` finds where Kafka has forgotten the end of a transaction, says whose it is, and what ends it."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from brokers.common import wait_until
from brokers.kafka import Native, admin, create_topic
from kafka import KafkaAdminClient, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import AbortTransactionSpec, ACLOperation, ACLResourcePatternType, ResourceType
from kafka.producer.transaction_manager import TransactionalRequestResult, TxnOffsetCommitHandler
from kafka.structs import ConsumerGroupMetadata

from contract.kafka_user import GUARDED, PLAIN, alice, allow, named, private
from contract.kafka_world import World, taken
from contract.test_kafka_markers import CHECK, end, left_open, unchecked
from delaybridge.adapters.kafka import Endpoint, Kafka, adapter
from delaybridge.adapters.kafka.cluster import opened
from delaybridge.adapters.kafka.level_queues.queues import group
from delaybridge.adapters.preparing import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.kafka import Broker


@pytest.fixture
def world(kafka: Broker) -> Iterator[World]:
    with unchecked(kafka.url) as made:
        yield made


def found(world: World, *routes: str, **options: str) -> list[Finding]:
    """What `doctor` is told of these routes' topics, of a destination and of levels."""
    endpoints = [Endpoint(topic=topic) for topic in routes]
    return adapter.standstills(world.levels.user.options(**options), endpoints, [world.destination], world.levels.levels)


def well(findings: list[Finding]) -> bool:
    return all(finding.ok for finding in findings)


def abort(world: World, partition: TopicPartition, start: int) -> str:
    """The command for people."""
    where = f"--topic {partition.topic} --partition {partition.partition} --start-offset {start}"
    return f"kafka-transactions.sh --bootstrap-server {world.url} abort {where}"


def test_where_all_have_ended_nothing_hangs(world: World) -> None:
    world.levels.put("moved")
    bridge = world.bridge(named("bridge"))
    bridge.move(taken(bridge, 1), world.destination)
    assert bridge.words(1) == ["confirmed"]
    assert found(world) == [Finding(True, "no transaction hangs in the 3 topics that were looked at")]


def test_a_destination_that_is_not_there_is_told(world: World) -> None:
    missing = named("missing")
    first, *_ = adapter.standstills(world.levels.user.options(), [], [world.destination, missing], [])
    assert first == Finding(False, f"a route leads to topic `{missing}`, which is not there", "create it, or correct the route")


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_a_level_that_stands_still_is_named_until_the_bridge_of_that_name_has_ended_it(world: World, commit: bool) -> None:
    level, name = TopicPartition(world.levels.levels[0].name, 1), named("bridge")
    end(world.url, f"{group(level.topic)}-{name}", level, commit=commit)
    assert left_open(world.url, level), "this test would show nothing"
    (finding,) = found(world)
    assert not finding.ok
    assert f"get no further in {level.topic}-1:" in finding.what
    assert f"`{name}`" in finding.fix
    assert finding.fix.endswith(abort(world, level, 0))
    assert ("though its last transaction was committed" in finding.fix) == commit
    world.bridge(name)
    wait_until(lambda: not left_open(world.url, level), "the end of the transaction")
    assert well(found(world))


def end_but_for_offsets(url: str, name: str, group_id: str, partition: TopicPartition) -> None:
    """A transaction of a producer of this name, which the cluster commits but for the offsets of a group."""
    elsewhere = named("elsewhere")
    create_topic(url, elsewhere)
    with contextlib.closing(KafkaProducer(bootstrap_servers=url, transactional_id=name)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(elsewhere, b"ended").get(30)
        manager, result = producer._transaction_manager, TransactionalRequestResult()
        offsets = manager._pending_txn_offset_commits = {partition: OffsetAndMetadata(0, "", -1)}
        manager._enqueue_request(
            TxnOffsetCommitHandler(manager, ConsumerGroupMetadata(group_id), offsets, result)
        )  # nor was the group announced
        producer._sender.wakeup()
        assert result.wait(10_000)
        producer.commit_transaction()


def test_offsets_that_cannot_be_read_are_found_until_the_bridge_has_ended_that(world: World) -> None:
    level, name = TopicPartition(world.levels.levels[0].name, 0), named("bridge")
    world.levels.put("a", key=b"key")
    end_but_for_offsets(world.url, f"{group(level.topic)}-{name}", group(level.topic), level)
    (finding,) = found(world)
    assert "get no further in __consumer_offsets-" in finding.what
    assert f"start the bridge `{name}` again" in finding.fix
    world.bridge(name)
    wait_until(lambda: well(found(world)), "the end of the transaction")


def test_what_another_producer_left_is_found_where_a_route_reads_and_where_it_delivers(world: World) -> None:
    ingress, name = named("in"), named("other")
    create_topic(world.url, ingress)
    world.levels.user.send(b"before", topic=ingress)
    for topic in (ingress, world.destination):
        end(world.url, name, TopicPartition(topic, 0), commit=False)
    (finding,) = found(world, ingress)
    assert all(f"{topic}-0" in finding.what for topic in (ingress, world.destination))
    assert f"the transaction of `{name}`" in finding.what
    both = [abort(world, TopicPartition(ingress, 0), 1), abort(world, TopicPartition(world.destination, 0), 0)]
    assert finding.fix == f"this drops what it wrote there: {' && '.join(both)}"


def test_what_the_command_aborts_hangs_no_more(world: World) -> None:
    """As `kafka-transactions.sh` does it: the producer is the one whose transaction begins at that offset. What was committed is lost by that."""
    destination = TopicPartition(world.destination, 0)
    end(world.url, named("other"), destination, commit=True)
    with contextlib.closing(admin(world.url)) as cluster:
        (state,) = cluster.describe_producers([destination])[destination].active_producers
        assert abort(world, destination, state.current_transaction_start_offset) in found(world)[0].fix
        cluster.abort_transaction(AbortTransactionSpec(destination, state.producer_id, state.producer_epoch))
    assert well(found(world))
    assert world.read() == []


def test_a_transaction_that_is_not_over_does_not_hang_whatever_the_time_of_its_records(world: World) -> None:
    with contextlib.closing(KafkaProducer(bootstrap_servers=world.url, transactional_id=named("other"))) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(world.destination, b"old", timestamp_ms=1).get(30)
        assert left_open(world.url, TopicPartition(world.destination, 0))
        assert well(found(world))
        producer.abort_transaction()


def test_a_cluster_that_is_too_old_to_tell_is_no_failure(world: World) -> None:
    end(world.url, named("other"), TopicPartition(world.destination, 0), commit=False)
    (finding,) = found(world, api_version="2.7")
    assert finding.ok
    assert "is not known: the cluster does not tell" in finding.what


# --- rights ---


@pytest.fixture(scope="module")
def guarded() -> Iterator[Native]:
    """A private broker, on which alice has the rights that she is given."""
    with private({CHECK: "false", **GUARDED}, PLAIN) as broker:
        yield broker


def seen_by_alice(broker: Native, topic: str) -> list[Finding]:
    return adapter.standstills(Kafka.model_validate(alice(broker)), [], [topic], [])


def test_who_may_not_read_a_topic_is_told_that_nothing_is_known_of_it(guarded: Native) -> None:
    topic = named("out")
    create_topic(guarded.url, topic)
    allow(guarded, ResourceType.TOPIC, topic, ACLOperation.DESCRIBE)
    end(guarded.url, named("other"), TopicPartition(topic, 0), commit=False)
    (finding,) = seen_by_alice(guarded, topic)
    assert finding.ok
    assert f"whether a transaction hangs in {topic} is not known" in finding.what


def test_all_topics_are_asked_of_at_once_and_each_alone_only_where_one_may_not_be_read(
    guarded: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bridge moves nothing while it asks, which it does whenever a leader has changed."""
    partitions = [TopicPartition(named("out"), 0) for _ in range(3)]
    for each, right in zip(partitions, (ACLOperation.READ, ACLOperation.READ, ACLOperation.DESCRIBE), strict=True):
        create_topic(guarded.url, each.topic)
        allow(guarded, ResourceType.TOPIC, each.topic, right)
        end(guarded.url, named("other"), each, commit=False)
    asked: list[list[TopicPartition]] = []
    ask = KafkaAdminClient.describe_producers

    def counted(self: KafkaAdminClient, some: list[TopicPartition], broker_id: int) -> Any:
        asked.append(some)
        return ask(self, some, broker_id)

    monkeypatch.setattr(KafkaAdminClient, "describe_producers", counted)
    with opened(Kafka.model_validate(alice(guarded))) as cluster:
        open_in, untold = cluster.transactions.open_in(set(partitions[:2]))
        assert ({each.partition for each in open_in}, untold, len(asked)) == (set(partitions[:2]), set(), 1)
        open_in, untold = cluster.transactions.open_in(set(partitions))
        assert ({each.partition for each in open_in}, untold) == (set(partitions[:2]), {partitions[2].topic})


def test_where_nobody_says_whose_it_is_its_age_tells(guarded: Native) -> None:
    """Alice may not describe the transactional ids, and how long a transaction may take she is told later."""
    topics = {age: named("out") for age in (0, 120, 1000)}
    for age, topic in topics.items():
        create_topic(guarded.url, topic)
        allow(guarded, ResourceType.TOPIC, topic, ACLOperation.READ, ACLOperation.DESCRIBE)
        end(guarded.url, named("other"), TopicPartition(topic, 0), commit=False, age=age)
    assert [well(seen_by_alice(guarded, topic)) for topic in topics.values()] == [True, True, False]
    allow(guarded, ResourceType.CLUSTER, "kafka-cluster", ACLOperation.DESCRIBE_CONFIGS)
    assert [well(seen_by_alice(guarded, topic)) for topic in topics.values()] == [True, False, False]


def test_a_bridge_ends_its_group_s_offsets_though_it_may_not_see_where_they_are(guarded: Native) -> None:
    world, name = World(guarded.url), named("bridge")
    level = TopicPartition(world.levels.levels[0].name, 0)
    prefix = group(level.topic)
    allow(guarded, ResourceType.GROUP, prefix, ACLOperation.READ)
    for kind, ours in ((ResourceType.TOPIC, f"{prefix}."), (ResourceType.TRANSACTIONAL_ID, f"{prefix}-")):
        allow(guarded, kind, ours, ACLOperation.READ, ACLOperation.WRITE, ACLOperation.DESCRIBE, pattern=ACLResourcePatternType.PREFIXED)
    world.levels.put("a", key=b"key")
    end_but_for_offsets(world.url, f"{prefix}-{name}", prefix, level)
    assert not well(found(world)), "this test would show nothing"
    world.bridge(name, **alice(guarded))
    wait_until(lambda: well(found(world)), "the end of the transaction")
    world.close()


def test_what_a_group_has_committed_is_known_once_the_end_of_its_transaction_is_written(kafka: Broker) -> None:
    """What had been committed before would be taken for all that has happened."""
    name, partition = named("group"), TopicPartition(named("topic"), 0)
    create_topic(kafka.url, partition.topic)
    options = Kafka(bootstrap_servers=kafka.url)
    producer = KafkaProducer(bootstrap_servers=kafka.url, transactional_id=named("producer"))
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({partition: OffsetAndMetadata(7, "", -1)}, ConsumerGroupMetadata(name))
    producer.send(partition.topic, b"x", partition=0)
    producer.flush()
    with opened(options) as cluster, ThreadPoolExecutor(1) as pool:
        before = cluster.groups.positions(name, [partition]).get(partition)
        assert before is None or before.offset < 7
        asked = pool.submit(cluster.groups.positions, name, [partition], stable=True)
        with pytest.raises(TimeoutError):
            asked.result(timeout=0.5)
        producer.commit_transaction()
        assert asked.result()[partition].offset == 7
    producer.close()
