"""What is finished is deleted from level topics on Kafka; what is not is delivered, whatever becomes of the group's offsets."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import pytest
from brokers.common import wait_until
from brokers.kafka import Native, admin
from kafka import TopicPartition
from kafka.admin import ACLOperation, ACLResourcePatternType, OffsetSpec, ResourceType

from contract.kafka_user import GUARDED, PLAIN, alice, allow, named, private, receive
from contract.kafka_world import Bridge, taken
from contract.test_kafka_levels import PARTITIONS, Levels, bodies, come_and_go
from delaybridge.adapters.base import AdapterError, NotConnected
from delaybridge.adapters.kafka.level_queues.queues import group
from delaybridge.adapters.levelled import Trimmable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.kafka import Broker


@pytest.fixture
def levels(kafka: Broker) -> Iterator[Levels]:
    one = Levels(kafka.url, 0, 3_600_000).apply()
    yield one
    one.close()


def places(levels: Levels, number: int = 0) -> tuple[list[int], list[int]]:
    """Of each partition: the first offset that is there, and what is committed."""
    partitions = [TopicPartition(levels.levels[number].name, partition) for partition in range(PARTITIONS)]
    prefix = group(levels.levels[number].name)
    with contextlib.closing(admin(levels.user.url)) as client:
        begins = client.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
        found = client.list_group_offsets({prefix: partitions})[prefix]
    return [begins[each].offset for each in partitions], [found[each].offset for each in partitions]


def trim(levels: Levels) -> None:
    assert isinstance(levels.queues, Trimmable)
    levels.queues.trim()


def test_what_is_finished_is_deleted_and_what_is_not_comes_again(levels: Levels) -> None:
    levels.put(*[f"{number}" for number in range(10)], key=b"one")
    levels.put("an hour", number=1)
    source = levels.source()
    batches = [source.receive(1, 10) for _ in range(10)]
    for number in (0, 1, 2, 3, 6):
        batch = batches[number]
        assert batch is not None
        batch.ack()
    wait_until(lambda: 4 in places(levels)[1], "the first four to be committed")
    trim(levels)
    begins, committed = places(levels)
    assert begins == [max(0, offset) for offset in committed]
    assert sum(begins) == 4
    assert places(levels, 1)[0] == [0] * PARTITIONS, "nothing is finished there"
    source.close()
    again = levels.source()
    assert bodies(receive(again, 5)) == ["4", "5", "7", "8", "9"]  # type: ignore[arg-type]
    assert again.receive(1, 0.5) is None
    levels.put("last", key=b"one")
    assert bodies(receive(again, 1)) == ["last"]  # type: ignore[arg-type]
    wait_until(lambda: 11 in places(levels)[1], "all to be committed")
    trim(levels)
    assert levels.queues.depths() == [0, 1]


def test_where_the_group_is_forgotten_only_what_was_not_deleted_comes_again(levels: Levels) -> None:
    levels.put(*[f"{number}" for number in range(6)], key=b"one")
    source = levels.source()
    for batch in [source.receive(1, 10) for _ in range(4)]:
        assert batch is not None
        batch.ack()
    source.close()
    trim(levels)
    with contextlib.closing(admin(levels.user.url)) as client:
        client.delete_groups([group(levels.levels[0].name)])
    trim(levels)
    assert bodies(receive(levels.source(), 2)) == ["4", "5"]  # type: ignore[arg-type]


def test_levels_of_another_prefix_are_left_alone(levels: Levels) -> None:
    other = Levels(levels.user.url, 0).apply()
    for each in (levels, other):
        each.put("1", "2", "3")
        source = each.source()
        receive(source, 3)  # type: ignore[arg-type]
        source.close()
    trim(levels)
    assert sum(places(levels)[0]) == 3
    assert places(other)[0] == [0] * PARTITIONS
    other.close()


def test_what_is_moved_in_transactions_is_deleted_too(levels: Levels) -> None:
    levels.put(*[f"{number}" for number in range(20)])
    bridge = Bridge(levels, named("bridge"))
    bridge.move(taken(bridge, 20), levels.levels[1].name)
    assert bridge.words(20) == ["confirmed"] * 20
    levels.put(*[f"{number}" for number in range(20, 25)])
    trim(levels)
    assert levels.queues.depths()[0] == 5
    begins, committed = places(levels)
    assert begins == [max(0, offset) for offset in committed]
    assert places(levels, 1)[0] == [0] * PARTITIONS
    assert sorted(bodies(taken(bridge, 5)), key=int) == ["20", "21", "22", "23", "24"]
    bridge.close()


def test_while_it_is_deleted_all_the_time_nothing_is_lost_or_doubled_when_bridges_come_and_go(levels: Levels) -> None:
    stopping = threading.Event()

    def keep_trimming() -> None:
        while not stopping.is_set():
            trim(levels)

    trimming = threading.Thread(target=keep_trimming)
    trimming.start()
    try:
        count = come_and_go(levels)
    finally:
        stopping.set()
        trimming.join()
    for source in levels._opened:
        source.close()
    trim(levels)
    begins, committed = places(levels)
    assert begins == committed
    assert sum(begins) == count


@pytest.fixture(scope="module")
def guarded() -> Iterator[Native]:
    """A private broker, on which alice has the rights that she is given."""
    with private(GUARDED, PLAIN) as broker:
        yield broker


def test_who_may_not_delete_is_told_what_to_grant(guarded: Native) -> None:
    levels = Levels(guarded.url, 0).apply()
    prefix = group(levels.levels[0].name)
    levels.put(*[f"{number}" for number in range(30)])
    source = levels.source()
    receive(source, 30)  # type: ignore[arg-type]
    source.close()
    hers = Levels(guarded.url, 0, **alice(guarded))
    hers.levels[:] = levels.levels
    allow(guarded, ResourceType.GROUP, prefix, ACLOperation.READ)
    rights = (ResourceType.TOPIC, f"{prefix}.")
    allow(guarded, *rights, ACLOperation.READ, ACLOperation.WRITE, ACLOperation.DESCRIBE, pattern=ACLResourcePatternType.PREFIXED)
    with pytest.raises(AdapterError, match="grant DELETE") as caught:
        trim(hers)
    assert not isinstance(caught.value, NotConnected)
    assert hers.queues.depths() == [0]
    assert places(levels)[0] == [0] * PARTITIONS
    allow(guarded, *rights, ACLOperation.DELETE, pattern=ACLResourcePatternType.PREFIXED)
    trim(hers)
    assert sum(places(levels)[0]) == 30
    levels.close()
