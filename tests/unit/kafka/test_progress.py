"""Which offsets are committed, whatever order acknowledgements come in, and how much may be given out before that."""

from __future__ import annotations

import threading

import pytest
from kafka import TopicPartition

from delaybridge.adapters.kafka.sources.progress import MOST, Progress
from delaybridge.adapters.kafka.wire.records import Place
from delaybridge.core.time_index.recent import RECENT_TOKENS

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def at(offset: int) -> Place:
    return Place(offset, 0)


def test_an_acknowledgement_waits_for_those_before_it() -> None:
    progress = Progress()
    first, second, third = (progress.give({A: at(end)}, 1) for end in (10, 20, 30))
    progress.ack(second)
    assert progress.take() == {}
    progress.ack(first)
    assert progress.take() == {A: at(20)}
    progress.ack(third)
    assert progress.take() == {A: at(30)}


def test_what_was_taken_is_not_taken_again() -> None:
    progress = Progress()
    progress.ack(progress.give({A: at(10), B: at(5)}, 1))
    assert progress.take() == {A: at(10), B: at(5)}
    assert progress.take() == {}


def test_a_commit_that_failed_is_tried_again_and_undoes_no_later_one() -> None:
    progress = Progress()
    progress.ack(progress.give({A: at(10), B: at(5)}, 1))
    failed = progress.take()
    progress.ack(progress.give({A: at(20)}, 1))
    progress.give_back(failed)
    assert progress.take() == {A: at(20), B: at(5)}


def test_a_commit_that_failed_undoes_none_that_was_begun_after_it() -> None:
    progress = Progress()
    progress.ack(progress.give({A: at(10), B: at(5)}, 1))
    failed = progress.take()
    progress.ack(progress.give({A: at(20)}, 1))
    assert progress.take() == {A: at(20)}
    progress.give_back(failed)
    assert progress.take() == {B: at(5)}


def test_of_a_commit_that_failed_what_was_forgotten_since_is_not_tried_again_also_where_it_has_come_back() -> None:
    progress = Progress()
    progress.ack(progress.give({A: at(10), B: at(5)}, 1))
    failed = progress.take()
    progress.forget({A})
    progress.give_back(failed)
    assert progress.take() == {B: at(5)}
    progress.ack(progress.give({A: at(30)}, 1))
    assert progress.take() == {A: at(30)}
    progress.give_back(failed)
    assert progress.take() == {B: at(5)}


def test_a_partition_is_held_by_what_is_given_out_and_not_acknowledged() -> None:
    progress = Progress()
    first, second = progress.give({A: at(10)}, 1), progress.give({B: at(5)}, 1)
    assert progress.held({A})
    assert progress.held({B})
    progress.ack(second)
    assert not progress.held({B})
    progress.ack(first)
    assert not progress.held({A, B})


def test_nothing_of_a_forgotten_partition_is_committed_whenever_its_acknowledgement_comes() -> None:
    progress = Progress()
    acknowledged, open_ = progress.give({A: at(10), B: at(5)}, 1), progress.give({A: at(20), B: at(6)}, 1)
    progress.ack(acknowledged)
    progress.forget({A})
    assert progress.take() == {B: at(5)}
    progress.ack(open_)
    assert progress.take() == {B: at(6)}
    assert not progress.held({A})


def test_a_partition_that_comes_back_starts_anew() -> None:
    progress = Progress()
    before = progress.give({A: at(10)}, 1)
    progress.forget({A})
    progress.ack(progress.give({A: at(10)}, 1))
    progress.ack(before)
    assert progress.take() == {A: at(10)}


def test_what_a_transaction_has_committed_is_not_committed_again() -> None:
    progress = Progress()
    first, second = progress.give({A: at(10)}, 1), progress.give({A: at(20), B: at(5)}, 1)
    assert progress.positions([first, second]) == {A: at(20), B: at(5)}
    progress.commit([first, second])
    progress.ack(first)
    progress.ack(second)
    assert progress.take() == {}
    assert not progress.held({A, B})


def test_a_batch_is_out_until_it_is_acknowledged_or_a_part_of_it_has_gone() -> None:
    progress = Progress()
    first, second, third = progress.give({A: at(10), B: at(5)}, 1), progress.give({A: at(20)}, 1), progress.give({B: at(9)}, 1)
    assert [progress.out(each.token) for each in (first, second, third)] == [first, second, third]
    progress.forget({B})
    assert [progress.out(each.token) for each in (first, second, third)] == [None, second, None]
    with pytest.raises(KeyError):
        progress.positions([first, second])
    progress.ack(second)
    assert progress.out(second.token) is None
    progress.ack(first)
    assert progress.out(second.token) is None


def test_what_may_come_again_after_a_crash_is_less_than_the_store_remembers() -> None:
    assert MOST < RECENT_TOKENS


def test_what_is_given_out_takes_room_until_it_is_committed() -> None:
    progress = Progress()
    assert progress.room(0) == MOST
    first, second = progress.give({A: at(10), B: at(5)}, 15), progress.give({A: at(MOST)}, MOST - 15)
    assert progress.room(0) == 0
    progress.ack(first)
    progress.ack(second)
    offsets = progress.take()
    assert progress.room(0) == 0
    progress.give_back(offsets)
    assert progress.room(0) == 0
    progress.committed(progress.take())
    assert progress.room(0) == MOST


def test_a_commit_makes_room_for_what_it_covers_and_no_more() -> None:
    progress = Progress()
    first, second = progress.give({A: at(10)}, 10), progress.give({A: at(20), B: at(5)}, 15)
    progress.ack(first)
    offsets = progress.take()
    progress.ack(second)
    progress.committed(offsets)
    assert progress.room(0) == MOST - 15


def test_what_a_transaction_has_committed_makes_room() -> None:
    progress = Progress()
    batch = progress.give({A: at(10)}, 10)
    progress.commit([batch])
    assert progress.room(0) == MOST


def test_a_partition_that_goes_makes_room_and_a_late_commit_of_it_makes_none() -> None:
    progress = Progress()
    progress.ack(progress.give({A: at(10)}, 10))
    late = progress.take()
    progress.ack(progress.give({A: at(20)}, 10))
    progress.give({A: at(30), B: at(5)}, 12)
    progress.forget({A})
    assert progress.room(0) == MOST - 12
    progress.give({A: at(10)}, 1)
    progress.committed(late)
    assert progress.room(0) == MOST - 13


def test_who_waits_for_room_goes_on_as_soon_as_there_is_some() -> None:
    progress = Progress()
    progress.ack(progress.give({A: at(MOST)}, MOST))
    threading.Timer(0.05, lambda: progress.committed(progress.take())).start()
    assert progress.room(30) == MOST
