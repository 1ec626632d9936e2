"""What was fetched and waits to be received: in order, bounded by messages and bytes, and gone when its partition goes."""

from __future__ import annotations

import threading
import time

import pytest
from brokers.common import wait_until
from kafka import TopicPartition

from delaybridge.adapters.base import NotConnected, Received
from delaybridge.adapters.kafka.sources.inbox import Inbox
from delaybridge.adapters.kafka.wire.records import Origin, Place
from delaybridge.core.message import Message

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def records(partition: TopicPartition, first: int, count: int, size: int = 1) -> list[Received]:
    origin = Origin(partition.topic, partition.partition, b"i" * 16, "", False)
    return [Received(Message(b"x" * size), "", origin.token(number, 0), True) for number in range(first, first + count)]


def test_records_come_out_in_the_order_in_which_they_went_in() -> None:
    inbox = Inbox(100)
    sent = records(A, 0, 3) + records(B, 7, 2) + records(A, 3, 1)
    inbox.put(A, sent[:3])
    inbox.put(B, sent[3:5])
    inbox.put(A, sent[5:])
    taken, ends = inbox.take(100, 0)
    assert taken == sent
    assert ends == {A: Place(4, -1), B: Place(9, -1)}


def test_a_batch_ends_at_its_limit_and_the_next_one_goes_on_there() -> None:
    inbox = Inbox(100)
    inbox.put(A, records(A, 0, 5))
    assert [inbox.take(2, 0)[1] for _ in range(3)] == [{A: Place(end, -1)} for end in (2, 4, 5)]
    assert inbox.take(2, 0) == ([], None)


def test_a_full_inbox_has_room_again_when_some_were_taken() -> None:
    inbox = Inbox(3)
    inbox.put(A, records(A, 0, 3))
    assert not inbox.wait_for_room(0)
    inbox.take(1, 0)
    assert inbox.wait_for_room(0)


def test_large_messages_fill_it_before_their_number_does_and_are_given_out_in_smaller_batches() -> None:
    inbox = Inbox(1000)
    inbox.put(A, records(A, 0, 40, 1 << 20))
    assert not inbox.wait_for_room(0)
    sizes = [len(inbox.take(1000, 0)[0]) for _ in range(3)]
    assert sizes == [16, 16, 8]
    assert inbox.wait_for_room(0)


def test_a_message_larger_than_a_batch_is_given_out_alone() -> None:
    inbox = Inbox(10)
    inbox.put(A, records(A, 0, 2, 40 << 20))
    assert len(inbox.take(10, 0)[0]) == 1


def test_dropping_a_partition_keeps_the_others_and_frees_its_room() -> None:
    inbox = Inbox(4)
    inbox.put(A, records(A, 0, 3))
    inbox.put(B, records(B, 0, 2))
    inbox.take(1, 0)
    inbox.drop({A})
    assert inbox.wait_for_room(0)
    assert inbox.take(10, 0)[1] == {B: Place(2, -1)}
    inbox.put(B, records(B, 2, 3))
    assert inbox.wait_for_room(0), "what was dropped counts no more"


def test_who_waits_is_woken_by_what_comes() -> None:
    inbox, taken = Inbox(10), list[Received]()
    thread = threading.Thread(target=lambda: taken.extend(inbox.take(10, 30)[0]))
    thread.start()
    inbox.put(A, records(A, 0, 1))
    thread.join(10)
    assert len(taken) == 1


def test_after_a_failure_no_more_may_be_fetched_and_the_poller_is_not_held_up() -> None:
    inbox = Inbox(10)
    inbox.fail(NotConnected("gone"))
    began = time.monotonic()
    assert not inbox.wait_for_room(60)
    assert time.monotonic() - began < 30


def test_a_failure_is_told_at_once_and_the_first_one_stands() -> None:
    inbox, heard = Inbox(10), list[str]()

    def receive() -> None:
        try:
            inbox.take(10, 30)
        except NotConnected as reason:
            heard.append(str(reason))

    thread = threading.Thread(target=receive)
    thread.start()
    inbox.fail(NotConnected("first"))
    inbox.fail(NotConnected("second"))
    wait_until(lambda: heard == ["first"], "the reason")
    thread.join()
    with pytest.raises(NotConnected, match="first"):
        inbox.take(1, 0)
