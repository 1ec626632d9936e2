"""Where a broker has transactions, a delivery, what follows it and the end of its stay are one move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract.level_queues import TABLE
from contract.stores import MINUTE, T0, record

from delaybridge.adapters.base import Batch, NotConnected, Outgoing, Received
from delaybridge.adapters.moves import LEAD, Gone, Move
from delaybridge.bridge.level_queues.envelope import Envelope, unpack
from delaybridge.bridge.level_queues.ids.lines import Claim
from delaybridge.bridge.level_queues.moving import Departures, DepartureSink, MoveItem, MovePublisher
from delaybridge.bridge.level_queues.passage import Batched, Finish, Taken
from delaybridge.bridge.level_queues.places import Places
from delaybridge.bridge.level_queues.waiting import Waiting
from delaybridge.bridge.metrics import Metrics
from delaybridge.core.downtimes import NONE, Downtimes
from delaybridge.core.message import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delaybridge.adapters.base import Confirm, Outcome
    from delaybridge.core.store import Due, Record

CLAIM = Claim(b"message1", 7)


class Moves:
    """A mover that notes what it is to move."""

    def __init__(self) -> None:
        self.begun: list[Move] = []
        self.closed = False
        self.confirm: Confirm | None = None

    def connect(self, confirm: Confirm) -> None:
        self.confirm = confirm

    def move(self, moves: Sequence[Move]) -> None:
        self.begun += moves

    def answer(self, *outcomes: Outcome) -> None:
        assert self.confirm is not None
        self.confirm(outcomes)

    def close(self) -> None:
        self.closed = True


class Stage:
    """What waits in memory for one destination, and its sink. `told`: the outcomes that the lane hears of."""

    def __init__(self) -> None:
        self.waiting = Waiting()
        self.taken = Taken()
        self.mover = Moves()
        self.down = NONE
        self.now = T0
        self.told: list[Outcome] = []
        self._places = Places(TABLE, [f"level-{number}" for number in range(len(TABLE.waits))], "shelf")
        self.sink = DepartureSink(self.mover, Departures(self.waiting, self._places, lambda: self.now, lambda: self.down))
        self.sink.connect(self.told.extend)

    def holds(self, *records: Record) -> list[Due]:
        """They are handed out to the lane."""
        batch = Batched(Batch([Received(Message(b""), "", b"")] * len(records), lambda: None, lambda _: None), self.taken, lambda: self.now)
        for place, each in enumerate(records):
            self.waiting.add(Envelope(each, T0, claim=CLAIM), self.taken, Finish(batch, place, b"token-%d" % place))
        return self.waiting.due("rabbit", self.now, 100, 1 << 20)

    def publishes(self, *handed_out: Due) -> None:
        self.sink.publish([Outgoing(each.key, each.record.address, each.record.message) for each in handed_out])

    @property
    def may_be_forgotten(self) -> bool:
        return bool(self.taken.passed_on)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_delivery_finishes_its_message(stage: Stage) -> None:
    (due,) = stage.holds(record("a"))
    stage.publishes(due)
    assert stage.mover.begun == [Move(due.key, (("orders", due.record.message),), b"token-0", T0)]
    assert stage.told == []


def test_what_follows_is_at_its_level_with_the_same_claim_if_and_only_if_this_one_is_delivered(stage: Stage) -> None:
    (due,) = stage.holds(record("a", every=MINUTE))
    stage.publishes(due)

    (move,) = stage.mover.begun
    delivered, (level, message) = move.messages
    envelope = unpack(message)
    assert delivered == ("orders", due.record.message)
    assert (envelope.record.schedule.due, envelope.record.schedule.occurrence) == (T0 + MINUTE, 2)
    assert (envelope.claim, envelope.since) == (CLAIM, T0)
    assert level == f"level-{TABLE.fit(MINUTE)}"
    entry = stage.waiting.find(due.key)
    assert entry is not None
    assert entry.next == envelope.record, "the ledger is told of the same one"


def test_what_follows_one_that_is_handed_out_early_is_what_would_follow_it_when_it_is_due(stage: Stage) -> None:
    (due,) = stage.holds(record("a", every=MINUTE))
    stage.now = T0 - LEAD
    stage.publishes(due)

    envelope = unpack(stage.mover.begun[0].messages[1][1])
    assert (envelope.record.schedule.due, envelope.record.schedule.occurrence, envelope.since) == (T0 + MINUTE, 2, T0)


def test_what_was_missed_while_the_bridge_was_down_does_not_follow(stage: Stage) -> None:
    stage.now = T0 + 10 * MINUTE + 1
    stage.down = Downtimes(((T0 - 1, stage.now),))
    (due,) = stage.holds(record("a", every=MINUTE))
    stage.publishes(due)
    assert unpack(stage.mover.begun[0].messages[1][1]).record.schedule.due == T0 + 11 * MINUTE


def test_what_the_broker_gives_again_is_not_published_and_the_others_are(stage: Stage) -> None:
    gone, left = stage.holds(record("a"), record("b"))
    stage.waiting.take(gone.key)
    stage.publishes(gone, left)
    assert [move.tag for move in stage.mover.begun] == [left.key]
    ((tag, error),) = stage.told
    assert (tag, type(error)) == (gone.key, Gone)


def test_what_another_bridge_has_is_let_go_and_nothing_else_is(stage: Stage) -> None:
    elsewhere, failed = stage.holds(record("a"), record("b"))
    stage.publishes(elsewhere, failed)
    outcomes: list[Outcome] = [(elsewhere.key, Gone("another bridge has it")), (failed.key, NotConnected("away"))]
    stage.mover.answer(*outcomes)
    assert stage.told == outcomes
    assert stage.waiting.find(elsewhere.key) is None
    assert stage.waiting.find(failed.key) is not None
    assert not stage.may_be_forgotten, "the other one of its batch is not passed on"

    stage.mover.answer((failed.key, Gone("this one, too")))
    assert stage.may_be_forgotten


def test_it_closes_its_mover(stage: Stage) -> None:
    stage.sink.close()
    assert stage.mover.closed


@pytest.mark.parametrize(("event", "calls"), [("landed", ["moved", "done"]), ("gone", ["done"])])
def test_that_a_message_was_moved_is_told_where_this_bridge_has_moved_it_and_its_end_wherever_it_has_gone(
    event: str, calls: list[str]
) -> None:
    heard: list[str] = []
    batch = Batched(Batch([Received(Message(b""), "", b"")], lambda: None, lambda _: None), Taken(), lambda: T0)
    done = Finish(batch, 0, b"token")
    item = MoveItem([("level", Message(b"a"))], done, lambda: True, lambda: heard.append("moved" if batch.left else "too late"))
    getattr(item, event)()
    assert heard + ["done"] * (not batch.left) == calls


def test_where_nobody_asks_what_was_moved_its_end_is_told_all_the_same() -> None:
    batch = Batched(Batch([Received(Message(b""), "", b"")], lambda: None, lambda _: None), Taken(), lambda: T0)
    MoveItem([], Finish(batch, 0, b"token"), lambda: True).landed()
    assert not batch.left


def test_a_mover_is_given_what_each_message_becomes_and_what_ends_with_it() -> None:
    mover = Moves()
    publisher = MovePublisher("kafka", mover, Metrics("test"), lambda *_: None)
    batch = Batched(Batch([Received(Message(b""), "", b"")] * 2, lambda: None, lambda _: None), Taken(), lambda: T0)
    items = [
        MoveItem([("level", Message(b"a"))], Finish(batch, 0, b"first"), lambda: True),
        MoveItem([], Finish(batch, 1, b"second"), lambda: True),
    ]
    publisher._send(items)
    assert [(move.messages, move.finishes) for move in mover.begun] == [([("level", Message(b"a"))], b"first"), ([], b"second")]
