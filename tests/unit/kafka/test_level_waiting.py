"""Records leave their level when their time has come, each partition in its order, and no partition waits for another."""

from __future__ import annotations

from kafka import TopicPartition

from delaybridge.adapters.base import Received
from delaybridge.adapters.kafka.level_queues.waiting import AHEAD, FULL, FULL_BYTES, LevelWaiting
from delaybridge.adapters.kafka.wire.records import Origin
from delaybridge.core.message import Message

A, B, OTHER = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
WAIT = 1000


def records(partition: TopicPartition, *sent: int | None, first: int = 0, size: int = 1) -> list[Received]:
    origin = Origin(partition.topic, partition.partition, b"i" * 16, "", False)
    return [Received(Message(b"x" * size), "", origin.token(first + number, 0), True, at) for number, at in enumerate(sent)]


NOW = 100_000
"""When they are fetched."""


def gate() -> LevelWaiting:
    return LevelWaiting({"a": WAIT, "b": 0})


def plenty(_: TopicPartition) -> int:
    return 1000


def leaving(gate: LevelWaiting, now: int, limit: int = 100, topic: str = "a") -> list[tuple[int, int]]:
    return [(held.partition.partition, held.offset) for held in gate.take(topic, now, limit, plenty)]


def test_nothing_leaves_before_it_has_waited() -> None:
    one = gate()
    one.put(A, records(A, 5000, 5001), NOW)
    assert leaving(one, 5999) == []
    assert one.next_leave("a", plenty) == 6000
    assert leaving(one, 6000) == [(0, 0)]
    assert one.next_leave("a", plenty) == 6001
    assert leaving(one, 9000) == [(0, 1)]
    assert one.next_leave("a", plenty) is None


def test_the_head_of_one_partition_does_not_keep_anothers_waiting() -> None:
    one = gate()
    one.put(A, records(A, 99_800, 1000), NOW)
    one.put(B, records(B, 98_000, 99_000, 99_900), NOW)
    assert leaving(one, NOW) == [(1, 0), (1, 1)]
    assert one.next_leave("a", plenty) == 100_800


def test_the_earliest_leaves_first_whichever_its_partition_and_each_partition_keeps_its_order() -> None:
    one = gate()
    one.put(A, records(A, 10, 40, 30), NOW)
    one.put(B, records(B, 20, 35), NOW)
    assert leaving(one, 5000, limit=3) == [(0, 0), (1, 0), (1, 1)]
    assert leaving(one, 5000) == [(0, 1), (0, 2)]


def test_a_record_of_a_bridge_whose_clock_was_ahead_keeps_others_waiting_no_longer_than_their_level() -> None:
    one = gate()
    one.put(A, records(A, 3_600_000, 99_000), NOW)

    assert leaving(one, NOW + WAIT) == [(0, 0), (0, 1)]


def test_what_was_read_while_the_clock_was_ahead_keeps_nothing_waiting_once_it_is_set_back() -> None:
    one = gate()
    one.put(A, records(A, 3_600_000, 3_600_001), 3_700_000)
    one.put(A, records(A, NOW, first=2), NOW)

    assert leaving(one, NOW) == [(0, 0), (0, 1)]
    assert leaving(one, NOW + WAIT) == [(0, 2)]


def test_each_level_has_its_own_wait() -> None:
    one = gate()
    one.put(A, records(A, 5000), NOW)
    one.put(OTHER, records(OTHER, 5000), NOW)
    assert leaving(one, 5000) == []
    assert leaving(one, 5000, topic="b") == [(0, 0)]


def test_a_record_without_a_time_leaves_at_once() -> None:
    one = gate()
    one.put(A, records(A, None), NOW)
    assert leaving(one, 2000) == [(0, 0)]


def test_a_partition_of_which_too_much_is_out_gives_no_more_and_keeps_no_other_waiting() -> None:
    one = gate()
    one.put(A, records(A, 1, 2, 3), NOW)
    one.put(B, records(B, 4), NOW)
    room = {A: 2, B: 5}.__getitem__
    assert [held.offset for held in one.take("a", 5000, 100, room)] == [0, 1, 0]
    assert one.next_leave("a", {A: 0, B: 5}.__getitem__) is None
    assert leaving(one, 5000) == [(0, 2)]


def test_more_of_a_partition_is_wanted_only_when_the_last_of_it_leaves_soon() -> None:
    one = gate()
    assert one.wants(A, 0)
    one.put(A, records(A, 1000, 10_000), NOW)
    leaves = 10_000 + WAIT
    assert not one.wants(A, leaves - AHEAD)
    assert one.wants(A, leaves - AHEAD + 1)
    assert one.wants(B, 0), "another partition does not care"


def test_a_partition_that_is_full_wants_no_more_until_some_have_left() -> None:
    for first, later in ((records(A, *[0] * FULL), 1), (records(A, 0, 0, size=FULL_BYTES), 2)):
        one = gate()
        one.put(A, first, NOW)
        assert one.full(A)
        assert not one.wants(A, 5000)
        leaving(one, 5000, limit=later)
        assert one.wants(A, 5000)


def test_what_is_dropped_does_not_leave() -> None:
    one = gate()
    one.put(A, records(A, 1, 2), NOW)
    one.put(B, records(B, 3), NOW)
    one.drop([A])
    assert leaving(one, 5000) == [(1, 0)]
    one.put(A, records(A, 9, first=7), NOW)
    assert leaving(one, 5000) == [(0, 7)]
