"""A partition that takes nothing, while others of its topic do: what waits for it must not keep theirs waiting for as long as a delivery may take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kafka import TopicPartition, errors
from kafka.producer.transaction_manager import ProducerIdAndEpoch
from unit.kafka.sender import sending

from delaybridge.adapters.base import AdapterError, BackOff, NotConnected
from delaybridge.adapters.kafka.sinks import sender
from delaybridge.adapters.kafka.sinks.sender import Accumulator, Delivery, Numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from delaybridge.adapters.kafka.sinks.sender import Flight

PARTITION = TopicPartition("t", 0)
NOBODY, SOMEBODY = -1, 2
EARLIER, LATER = 2.5, 3.5
"""Seconds after which it is waited for still, and no longer."""


def batches(accumulator: Accumulator, *messages: bytes) -> list[Flight]:
    """One for each of these messages; they wait."""
    for tag in messages:
        accumulator.enqueue(PARTITION, [(tag, b"\x01\x01\0", 0)])
        accumulator._batches[PARTITION][-1].records.close()
    return list(accumulator._batches[PARTITION])


class Waiting:
    """An accumulator with a batch for each of these messages, of that age in seconds; the clock is the test's."""

    def __init__(self, patch: pytest.MonkeyPatch, ages: Mapping[bytes, float]) -> None:
        self.now = 1000.0
        self.leader = NOBODY
        patch.setattr(sender, "time", SimpleNamespace(monotonic=lambda: self.now))
        cluster = SimpleNamespace(leader_for_partition=lambda _: self.leader)
        self._accumulator = Accumulator(lambda _: None, cluster, delivery_timeout_ms=30_000, request_timeout_ms=1)
        for batch, age in zip(batches(self._accumulator, *ages), ages.values(), strict=True):
            batch.created -= age
        self._batches[0].doubtful = b"perhaps taken" in ages

    @property
    def _batches(self) -> Any:
        return self._accumulator._batches[PARTITION]

    def told(self, leader: int, seconds: float) -> None:
        """For so long the cluster names this leader, again and again."""
        self.leader = leader
        for _ in range(int(seconds * 10)):
            self._accumulator.heard()
            self.now += 0.1

    def over(self) -> list[bytes]:
        """What is given up now."""
        return tags(self._accumulator.expired_batches(self.now))

    def left(self) -> list[bytes]:
        return tags(self._batches)


def tags(flights: Iterable[Flight]) -> list[bytes]:
    return [tag for flight in flights for tag, _, _ in flight.records.prepared]


AGES = {b"perhaps taken": 10, b"never sent": 10, b"behind it": 5, b"new": -2}


def test_what_has_waited_long_enough_for_a_leader_is_given_up_unless_one_may_have_taken_it(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Waiting(monkeypatch, AGES)
    waiting.told(NOBODY, EARLIER)
    assert waiting.over() == []
    waiting.told(NOBODY, LATER - EARLIER)
    assert waiting.over() == [b"never sent", b"behind it"]
    assert waiting.left() == [b"perhaps taken", b"new"]


def test_a_leader_that_does_not_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Waiting(monkeypatch, AGES)
    waiting.told(NOBODY, EARLIER)
    waiting.told(SOMEBODY, LATER)
    assert waiting.over() == []


def test_so_is_a_broker_that_restarts_and_knows_of_no_leader_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Waiting(monkeypatch, AGES)
    waiting.told(NOBODY, EARLIER)
    waiting.now += 5
    assert waiting.over() == []
    waiting.told(NOBODY, EARLIER)
    assert waiting.over() == []


def test_one_message_alone_waits_for_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Waiting(monkeypatch, {b"a try": 10, b"new": -2})
    waiting.told(NOBODY, LATER)
    assert waiting.over() == []


@pytest.mark.parametrize(
    ("age", "doubtful", "behind", "told"),
    [(EARLIER, False, 1, []), (LATER, False, 1, [3, 3]), (LATER, True, 1, []), (LATER, False, 0, [])],
    ids=["not for long", "for long", "perhaps it took it", "nothing waits behind it"],
)
def test_a_partition_with_too_few_replicas_is_held_back_after_a_while_where_others_wait_behind_what_it_has_certainly_not_taken(
    age: float, behind: int, *, doubtful: bool, told: list[int]
) -> None:
    numbers = Numbers(api_version=(4, 0))
    numbers.set_producer_id_and_epoch(ProducerIdAndEpoch(1, 0))
    with sending(Delivery, numbers, PARTITION, timeout_ms=30_000) as one:
        one.cluster._partitions["t"] = dict.fromkeys(range(3), SimpleNamespace(leader_id=SOMEBODY))
        one.batch.records.set_producer_state(1, 0, 0, False)
        one.batch.doubtful, one.batch.created = doubtful, one.batch.created - age
        one.followed_by(behind)
        one.answered(errors.NotEnoughReplicasError())
        assert [each.partitions for each in one.told if isinstance(each, BackOff)] == told
        assert len(one.told) == len(told)


def test_a_partition_that_has_refused_is_as_good_as_any_other_once_it_has_taken_something() -> None:
    told: list[AdapterError | None] = []
    cluster = SimpleNamespace(partitions_for_topic=lambda _: {0, 1, 2})
    accumulator = Accumulator(lambda outcomes: told.extend(error for _, error in outcomes), cluster)
    first, second = batches(accumulator, b"first", b"second")
    accumulator._batches[PARTITION].clear()

    first.complete_exceptionally(NotConnected("see the function"), lambda _: errors.NotEnoughReplicasError())
    assert set(accumulator.refused) == {PARTITION}
    second.complete(0, None)
    assert accumulator.refused == {}
    assert [type(error) for error in told] == [BackOff, type(None)]
