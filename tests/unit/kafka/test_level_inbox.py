"""What is here of Kafka's level queues wakes who waits for it, and nobody else."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from kafka import OffsetAndMetadata, TopicPartition

from delaybridge.adapters.base import Received
from delaybridge.adapters.kafka.finished import OUT
from delaybridge.adapters.kafka.level_queues import inbox as level_inbox
from delaybridge.adapters.kafka.level_queues.inbox import HELD, LevelInbox
from delaybridge.adapters.kafka.wire.records import Origin
from delaybridge.adapters.levelled import EARLY, Level
from delaybridge.core.message import Message

if TYPE_CHECKING:
    from collections.abc import Collection

ONE = TopicPartition("level", 0)
WAIT, T0 = 1_000, 1_750_000_000_000
PATIENCE = 10.0


def inbox(*sent: int, body: bytes = b"x") -> LevelInbox:
    """With a partition that is ours, and records of it."""
    opened = LevelInbox([Level("level", WAIT)])
    opened.open(ONE, None)
    origin = Origin(ONE.topic, ONE.partition, b"i" * 16, "", False)
    records = [Received(Message(body), "", origin.token(offset, 0), True, at) for offset, at in enumerate(sent)]
    opened.put({ONE: records}, lambda: {ONE: OffsetAndMetadata(len(sent))})
    return opened


def test_what_leaves_about_now_is_given_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(level_inbox, "wall_clock", lambda: T0 + WAIT)
    given = inbox(T0, T0 + EARLY, T0 + EARLY + 1).leaving("level", 10, 0)
    assert [each.offset for each in given] == [0, 1]


def test_whoever_waits_for_room_goes_on_when_something_is_finished() -> None:
    """As many as may be given out are."""
    held = inbox(*[T0] * (OUT + 1))
    out = held.leaving("level", OUT + 1, 0)
    assert len(out) == OUT
    with ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        waiting = pool.submit(held.leaving, "level", 1, PATIENCE)
        held.finish(out[:2])
        assert [each.offset for each in waiting.result()] == [OUT]
        assert time.monotonic() - began < PATIENCE / 2


def test_of_large_messages_fewer_are_given_out_at_a_time() -> None:
    held = inbox(*[T0] * 6, body=bytes(HELD // 4))
    out = [record for _ in range(6) for record in held.leaving("level", 1, 0)]
    assert [each.offset for each in out] == [0, 1, 2, 3]
    with ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        waiting = pool.submit(held.leaving, "level", 1, PATIENCE)
        held.finish(out[:1])
        assert [each.offset for each in waiting.result()] == [4]
        assert time.monotonic() - began < PATIENCE / 2
    held.forget({ONE})
    held.open(ONE, None)
    origin = Origin(ONE.topic, ONE.partition, b"i" * 16, "", False)
    held.put({ONE: [Received(Message(b"x"), "", origin.token(9, 0), True, T0)]}, lambda: {ONE: OffsetAndMetadata(10)})
    assert [each.offset for each in held.leaving("level", 1, 0)] == [9]


def test_what_was_given_out_before_its_partition_went_and_came_back_finishes_nothing() -> None:
    """The one that was given out since is on its way still: were it finished with the other one, it would be lost."""
    held = inbox(T0, T0)
    before = held.leaving("level", 10, 0)
    assert held.handed_over == 0
    held.forget({ONE})
    assert held.handed_over == 1
    held.open(ONE, None)
    origin = Origin(ONE.topic, ONE.partition, b"i" * 16, "", False)
    held.put(
        {ONE: [Received(Message(b"x"), "", origin.token(offset, 0), True, T0) for offset in (0, 1)]}, lambda: {ONE: OffsetAndMetadata(2)}
    )
    since = held.leaving("level", 10, 0)

    held.finish(before)
    assert (held.held_of("level"), held.take()) == (2, {})
    assert [held.elsewhere(each) for each in (*before, *since)] == [True, True, False, False]

    held.finish(since)
    assert (held.held_of("level"), held.take()[ONE].offset) == (0, 2)


def test_whoever_hears_that_partitions_were_handed_over_finds_that_what_came_from_them_is_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A passage looks without a lock, once for each count: a count that came early would leave it with copies until the next one."""
    held = inbox(T0, T0)
    out = held.leaving("level", 2, 0)
    looks: list[tuple[int, bool]] = []
    drop = held._waiting.drop

    def look_and_drop(partitions: Collection[TopicPartition]) -> None:
        looks.append((held.handed_over, held.elsewhere(out[0])))
        drop(partitions)

    monkeypatch.setattr(held._waiting, "drop", look_and_drop)
    held.forget({ONE})
    looks.append((held.handed_over, held.elsewhere(out[0])))

    assert looks == [(0, False), (1, True)]
