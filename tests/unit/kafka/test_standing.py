"""A partition that takes nothing, while others of its topic do: what waits for it must not keep theirs waiting for as long as a delivery may take."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kafka import TopicPartition, errors
from kafka.producer.transaction_manager import ProducerIdAndEpoch
from unit.kafka.sender import sending

from delaybridge.adapters.base import AdapterError, BackOff, NotConnected
from delaybridge.adapters.kafka.sinks.sender import Accumulator, Delivery, Flight, Numbers

PARTITION = TopicPartition("t", 0)
NOBODY, SOMEBODY = -1, 2
EARLIER, LATER = 2.5, 3.5
"""Seconds after which it is waited for still, and no longer."""


def waiting(accumulator: Accumulator, ages: dict[bytes, float]) -> list[Flight]:
    """A batch for each of these messages, of that age."""
    for tag, age in ages.items():
        accumulator.enqueue(PARTITION, [(tag, b"\x01\x01\0", 0)])
        last = accumulator._batches[PARTITION][-1]
        last.records.close()
        last.created -= age
    return list(accumulator._batches[PARTITION])


def tags(flights: list[Flight]) -> list[bytes]:
    return [tag for flight in flights for tag, _, _ in flight.records.prepared]


@pytest.mark.parametrize(
    ("leader", "over"), [(NOBODY, [b"never sent", b"behind it"]), (SOMEBODY, [])], ids=["no leader", "a leader that does not answer"]
)
def test_what_has_waited_long_enough_for_a_leader_is_given_up_unless_one_may_have_taken_it(leader: int, over: list[bytes]) -> None:
    cluster = SimpleNamespace(leader_for_partition=lambda _: leader)
    accumulator = Accumulator(lambda _: None, cluster, delivery_timeout_ms=30_000, request_timeout_ms=1)
    ages = {b"perhaps taken": LATER, b"never sent": LATER, b"behind it": LATER, b"new": EARLIER}
    taken, *_ = waiting(accumulator, ages)
    taken.doubtful = True
    assert tags(accumulator.expired_batches()) == over
    assert tags(list(accumulator._batches[PARTITION])) == [tag for tag in ages if tag not in over]


def test_one_message_alone_waits_for_a_leader() -> None:
    accumulator = Accumulator(
        lambda _: None, SimpleNamespace(leader_for_partition=lambda _: NOBODY), delivery_timeout_ms=30_000, request_timeout_ms=1
    )
    waiting(accumulator, {b"a try": LATER, b"new": EARLIER})
    assert accumulator.expired_batches() == []


@pytest.mark.parametrize(
    ("age", "doubtful", "behind", "told"),
    [(EARLIER, False, 1, []), (LATER, False, 1, [3, 3]), (LATER, True, 1, []), (LATER, False, 0, [])],
    ids=["not for long", "for long", "perhaps it took it", "nothing waits behind it"],
)
@pytest.mark.parametrize(
    "error", [errors.NotEnoughReplicasError(), errors.NotLeaderForPartitionError()], ids=lambda error: type(error).__name__
)
def test_a_partition_that_has_refused_for_long_is_held_back_where_others_wait_behind_what_it_has_certainly_not_taken(
    error: Exception, age: float, behind: int, *, doubtful: bool, told: list[int]
) -> None:
    numbers = Numbers(api_version=(4, 0))
    numbers.set_producer_id_and_epoch(ProducerIdAndEpoch(1, 0))
    with sending(Delivery, numbers, PARTITION, timeout_ms=30_000) as one:
        one.cluster._partitions["t"] = dict.fromkeys(range(3), SimpleNamespace(leader_id=SOMEBODY))
        one.batch.records.set_producer_state(1, 0, 0, False)
        one.batch.doubtful, one.batch.created = doubtful, one.batch.created - age
        one.followed_by(behind)
        one.answered(error)
        assert [each.partitions for each in one.told if isinstance(each, BackOff)] == told
        assert len(one.told) == len(told)


def test_a_partition_that_has_refused_is_as_good_as_any_other_once_it_has_taken_something() -> None:
    told: list[AdapterError | None] = []
    cluster = SimpleNamespace(partitions_for_topic=lambda _: {0, 1, 2})
    accumulator = Accumulator(lambda outcomes: told.extend(error for _, error in outcomes), cluster)
    first, second = waiting(accumulator, {b"first": EARLIER, b"second": EARLIER})
    accumulator._batches[PARTITION].clear()

    first.complete_exceptionally(NotConnected("see the function"), lambda _: errors.NotEnoughReplicasError())
    assert set(accumulator.refused) == {PARTITION}
    second.complete(0, None)
    assert accumulator.refused == {}
    assert [type(error) for error in told] == [BackOff, type(None)]
