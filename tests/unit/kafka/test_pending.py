"""Moves that wait for a transaction: in which order, and which of them go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka import TopicPartition

from delaybridge.adapters.kafka.transactions.pending import PendingMoves
from delaybridge.adapters.moves import Move
from delaybridge.core.message import Message

if TYPE_CHECKING:
    from delaybridge.adapters.base import Outcome

SMALL, LARGE = TopicPartition("small", 0), TopicPartition("large", 0)


class Waiting:
    """Moves of one message each, named by the partition where it goes and their number."""

    def __init__(self) -> None:
        self.moves = PendingMoves()
        self.told: list[Outcome] = []

    def add(self, *partitions: TopicPartition) -> None:
        for partition in partitions:
            move = Move(partition.topic.encode(), ((partition.topic, Message(b"")),), b"")
            (outgoing,) = self.moves.begin([move], self.told.extend)
            self.moves.to_partition(partition, [(outgoing.tag, b"", 0)])

    def turn(self, most: int = 500, *, taken_back: bool = False) -> list[str]:
        """One transaction: what was in it."""
        batch = self.moves.next(most)
        if taken_back:
            self.moves.later(batch)
        else:
            self.moves.went()
        return [f"{each.parts[0][0].topic} {each.number}" for each in batch]


def test_all_that_is_ready_goes_together_in_its_order() -> None:
    waiting = Waiting()
    waiting.add(SMALL, LARGE, SMALL)
    assert waiting.turn(2, taken_back=True) == ["small 1", "large 2"]
    assert waiting.turn() == ["small 1", "large 2", "small 3"]


def test_what_goes_where_a_message_was_refused_takes_turns_with_the_others_until_it_has_gone_through() -> None:
    waiting = Waiting()
    waiting.add(SMALL, LARGE, SMALL)
    waiting.moves.refused(SMALL)
    assert waiting.turn(1, taken_back=True) == ["small 1"]
    waiting.add(SMALL, LARGE)
    assert waiting.turn() == ["large 2", "large 5"]
    assert waiting.turn(2) == ["small 1", "small 3"], "what has waited goes first"
    waiting.add(SMALL, LARGE)
    assert waiting.turn() == ["large 7"]
    assert waiting.turn() == ["small 4", "small 6"]
    waiting.add(SMALL, LARGE)
    assert waiting.turn() == ["small 8", "large 9"], "all has gone through"


def test_what_was_set_aside_is_ready_and_is_given_up_like_the_rest() -> None:
    waiting = Waiting()
    waiting.add(SMALL, LARGE)
    waiting.moves.refused(SMALL)
    assert waiting.turn(taken_back=True) == ["small 1"]
    assert waiting.turn() == ["large 2"]
    assert waiting.moves.ready
    waiting.moves.abandon(waiting.told.extend)
    assert [tag for tag, _ in waiting.told] == [b"small"]
    assert not waiting.moves.ready


def test_a_move_is_ready_when_each_of_its_messages_has_a_partition_and_one_of_none_at_once() -> None:
    waiting = Waiting()
    both = Move(b"both", (("small", Message(b"")), ("large", Message(b""))), b"")
    first, second = waiting.moves.begin([both], waiting.told.extend)
    waiting.moves.to_partition(SMALL, [(first.tag, b"", 0)])
    assert (waiting.moves.ready, waiting.moves.without_partition(1) is None) == (False, False)
    waiting.moves.to_partition(LARGE, [(second.tag, b"", 0)])
    assert (waiting.moves.without_partition(1), [each.move.tag for each in waiting.moves.next(9)]) == (None, [b"both"])

    waiting.moves.begin([Move(b"none", (), b"")], waiting.told.extend)
    assert [each.move.tag for each in waiting.moves.next(9)] == [b"none"]


def test_what_is_given_up_is_told_once_and_not_moved_any_more_and_the_moves_of_others_are() -> None:
    waiting, others = Waiting(), Waiting()
    others.moves = waiting.moves
    waiting.add(SMALL)
    others.add(LARGE)
    (late,) = waiting.moves.begin([Move(b"late", (("small", Message(b"")),), b"")], waiting.told.extend)
    taken = waiting.moves.next(1)
    waiting.moves.abandon(waiting.told.extend)
    assert [tag for tag, _ in waiting.told] == [b"late"]
    waiting.moves.to_partition(SMALL, [(late.tag, b"", 0)])
    waiting.moves.later(taken)
    assert [tag for tag, _ in waiting.told] == [b"late", b"small"]
    assert [others.turn(taken_back=True), others.turn(), others.told] == [["large 2"], ["large 2"], []]
