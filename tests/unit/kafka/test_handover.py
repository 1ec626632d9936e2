"""What a Kafka source commits when partitions go: handed over to another bridge, or lost to one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kafka import OffsetAndMetadata, TopicPartition, errors
from kafka.future import Future
from structlog.testing import capture_logs
from unit.kafka.poller import client, poller_on

from delaybridge.adapters.base import NotConnected, Received
from delaybridge.adapters.kafka import Kafka
from delaybridge.adapters.kafka.level_queues.inbox import LevelInbox
from delaybridge.adapters.kafka.level_queues.source import LevelPoller
from delaybridge.adapters.kafka.sources import connection
from delaybridge.adapters.kafka.sources.connection import Handover
from delaybridge.adapters.kafka.sources.consumer import consuming
from delaybridge.adapters.kafka.sources.poller import Poller
from delaybridge.adapters.kafka.sources.source import KafkaSource, Subscription
from delaybridge.adapters.kafka.wire.records import Origin, Place
from delaybridge.adapters.levelled import Level
from delaybridge.core.message import Message

if TYPE_CHECKING:
    from collections.abc import Coroutine

GOES, STAYS = TopicPartition("t", 0), TopicPartition("t", 1)


class Coordinator:
    """Takes commits, and answers when it is told to; `asked` is what they were for."""

    def __init__(self) -> None:
        self.asked: list[dict[TopicPartition, int]] = []
        self._open: list[Any] = []

    def _do_commit_offsets_async(self, positions: dict[TopicPartition, Any]) -> Any:
        self.asked.append({partition: position.offset for partition, position in positions.items()})
        self._open.append(Future())
        return self._open[-1]

    def refuse(self) -> None:
        """The commit that was made first, of those that have no answer."""
        self._open.pop(0).failure(errors.RebalanceInProgressError())

    def take(self) -> None:
        """As `refuse`, but it is committed."""
        self._open.pop(0).success(None)


class Group:
    """A source that is a member, and its coordinator."""

    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self._consumer: Any = SimpleNamespace(
            config={"group_id": "g", "session_timeout_ms": 10_000}, _client=client(), _coordinator=self.coordinator
        )
        self.poller = poller_on(self._consumer)

    def store(self, **ends: int) -> None:
        """A batch is given out, stored and acknowledged."""
        progress = self.poller.progress
        progress.ack(progress.give({{"goes": GOES, "stays": STAYS}[name]: Place(end, 0) for name, end in ends.items()}, 1))

    def levels(self, inbox: LevelInbox, *, moving: bool = False) -> LevelPoller:
        """The same member, of levels."""
        topics: Any = None
        return LevelPoller(self._consumer, inbox, 1.0, topics, returning=False, moving=moving)


def begun(handing_over: Coroutine[Any, Any, None]) -> Any:
    """Run it to where it waits for an answer."""
    return handing_over.send(None)


def ended(handing_over: Coroutine[Any, Any, None]) -> None:
    """Run it to its end: it has its answer, or asks for none."""
    with pytest.raises(StopIteration):
        handing_over.send(None)


def test_what_was_acknowledged_of_a_partition_that_goes_is_committed_before_it_does() -> None:
    group = Group()
    group.store(goes=10, stays=5)
    handing_over = Handover(group.poller).on_partitions_revoked([GOES])
    begun(handing_over)
    group.coordinator.take()
    ended(handing_over)
    group.poller._commit_some()
    assert group.coordinator.asked == [{GOES: 10, STAYS: 5}]


def test_where_that_commit_fails_the_partitions_that_stay_are_committed_again_and_the_others_are_not() -> None:
    group = Group()
    group.store(goes=10, stays=5)
    handing_over = Handover(group.poller).on_partitions_revoked([GOES])
    begun(handing_over)
    group.coordinator.refuse()
    ended(handing_over)
    group.poller._commit_some()
    assert group.coordinator.asked == [{GOES: 10, STAYS: 5}, {STAYS: 5}]


def test_a_commit_under_way_that_fails_when_partitions_go_is_made_again_before_they_do() -> None:
    group = Group()
    group.store(goes=10, stays=5)
    group.poller._commit_some()
    handing_over = Handover(group.poller).on_partitions_revoked([GOES])
    begun(handing_over)
    group.coordinator.refuse()
    begun(handing_over)
    group.coordinator.take()
    ended(handing_over)
    assert group.coordinator.asked == [{GOES: 10, STAYS: 5}] * 2


def test_of_a_commit_that_fails_after_partitions_were_lost_only_the_others_are_committed_again() -> None:
    group = Group()
    group.store(goes=10, stays=5)
    group.poller._commit_some()
    ended(Handover(group.poller).on_partitions_lost([GOES]))
    group.coordinator.refuse()
    group.poller._commit_some()
    assert group.coordinator.asked == [{GOES: 10, STAYS: 5}, {STAYS: 5}]


def recognising(poller: Poller) -> bool:
    """Whether it connects anew, and then knows again what was stored and not committed."""
    try:
        poller.inbox.take(1, 0)
    except NotConnected:
        return True
    return False


def test_where_partitions_are_lost_a_new_connection_recognises_what_was_stored_if_they_come_back() -> None:
    group = Group()
    group.store(goes=10)
    ended(Handover(group.poller).on_partitions_lost([GOES]))
    assert recognising(group.poller)


@pytest.mark.parametrize("fails", [False, True])
def test_where_the_last_commit_of_partitions_that_go_fails_it_does_too(fails: bool) -> None:
    group = Group()
    group.store(goes=10)
    handing_over = Handover(group.poller).on_partitions_revoked([GOES])
    begun(handing_over)
    if fails:
        group.coordinator.refuse()
    else:
        group.coordinator.take()
    ended(handing_over)
    assert recognising(group.poller) == fails


def test_a_commit_that_another_thread_begins_meanwhile_is_waited_for_too() -> None:
    group = Group()
    group.store(goes=10)
    group.poller._commit_some()
    handing_over = Handover(group.poller).on_partitions_revoked([GOES])
    begun(handing_over)
    group.coordinator.take()
    group.store(goes=20)
    group.poller._commit_some()
    begun(handing_over)
    group.store(goes=30)
    group.coordinator.take()
    begun(handing_over)
    group.coordinator.take()
    ended(handing_over)
    assert group.coordinator.asked == [{GOES: 10}, {GOES: 20}, {GOES: 30}]


def test_where_the_thread_that_commits_has_died_the_source_is_not_connected_and_forgets_no_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group()
    source = KafkaSource.__new__(KafkaSource)
    source.subscription, source._poller = Subscription(("t",), None, "g", None), group.poller
    group.poller.progress.ack(group.poller.progress.give({STAYS: Place(5000, 0)}, 5000))

    def dead(_: Any) -> Any:
        raise KeyError("selector")

    monkeypatch.setattr(group.coordinator, "_do_commit_offsets_async", dead)
    with pytest.raises(NotConnected, match="selector"):
        source.receive(1, 0)
    monkeypatch.undo()
    group.poller._commit_some()
    assert group.coordinator.asked == [{STAYS: 5000}]


def test_the_partitions_of_levels_that_stay_are_committed_again_too() -> None:
    group, inbox = Group(), LevelInbox([Level("t", 0)])
    poller = group.levels(inbox)
    for each in (GOES, STAYS):
        token = Origin("t", each.partition, b"i" * 16, "", False).token(0, 0)
        inbox.open(each, None)
        inbox.put({each: [Received(Message(b""), "", token, True, 0)]}, lambda: dict.fromkeys((GOES, STAYS), OffsetAndMetadata(0)))
    inbox.finish(inbox.leaving("t", 2, 0.0))
    handing_over = Handover(poller).on_partitions_revoked([GOES])
    begun(handing_over)
    group.coordinator.refuse()
    ended(handing_over)
    poller._commit_some()
    assert group.coordinator.asked == [{GOES: 1, STAYS: 1}, {STAYS: 1}]


def test_a_log_of_levels_that_begins_anew_is_not_taken_for_what_was_finished() -> None:
    inbox = LevelInbox([Level("t", 0)])
    inbox.open(STAYS, None)
    inbox.put({STAYS: [record(STAYS, 7)]}, lambda: {STAYS: OffsetAndMetadata(8)})

    inbox.put({STAYS: [record(STAYS, 0)]}, lambda: {STAYS: OffsetAndMetadata(1)})

    with pytest.raises(NotConnected, match="has lost records, or was made anew"):
        inbox.leaving("t", 2, 0.0)
    assert inbox.take() == {}, "what the old log's positions say is committed to no other"


def test_where_a_log_has_lost_its_end_what_was_finished_before_is_committed_and_nothing_of_what_came_instead() -> None:
    inbox = LevelInbox([Level("t", 0)])
    inbox.open(STAYS, OffsetAndMetadata(5, "", 1))
    inbox.put({STAYS: [taken_by(1, 5), taken_by(1, 6), taken_by(1, 7)]}, lambda: {STAYS: OffsetAndMetadata(8, "", 1)})
    inbox.finish(inbox.leaving("t", 3, 0.0))
    inbox.put({}, lambda: {STAYS: OffsetAndMetadata(6, "", 1)})  # kafka-python has heard of it

    inbox.put({STAYS: [taken_by(2, 6)]}, lambda: {STAYS: OffsetAndMetadata(7, "", 2)})
    inbox.put({STAYS: [taken_by(2, 7), taken_by(2, 8)]}, lambda: {STAYS: OffsetAndMetadata(9, "", 2)})

    with pytest.raises(NotConnected, match="has lost records, or was made anew"):
        inbox.leaving("t", 2, 0.0)
    assert inbox.take() == {STAYS: OffsetAndMetadata(8, "", 1)}


def test_who_reads_a_log_that_has_lost_its_end_commits_at_once_where_it_goes_on() -> None:
    inbox = LevelInbox([Level("t", 0)])
    inbox.open(STAYS, OffsetAndMetadata(8, "", 1))
    with capture_logs() as told:
        inbox.put({STAYS: [taken_by(1, 4), taken_by(2, 5), taken_by(2, 6)]}, lambda: {STAYS: OffsetAndMetadata(7, "", 2)})
    assert inbox.take() == {STAYS: OffsetAndMetadata(5, "", 2)}
    assert [(each["event"], each["partition"], each["offset"]) for each in told] == [("records_replaced", STAYS.partition, 5)]
    assert [each.offset for each in inbox.leaving("t", 5, 0.0)] == [5, 6]


@pytest.mark.parametrize(("end", "comes"), [(90, 0), (60, 0), (59, 1)])
def test_what_others_have_finished_meanwhile_does_not_come_again_but_where_the_log_is_another_one(end: int, comes: int) -> None:
    """A position may be old: it was told when the partition came, and the first record may come hours later."""
    group, inbox = Group(), LevelInbox([Level("t", 0)])
    poller = group.levels(inbox)
    group.coordinator.fetch_committed_offsets = lambda *_, **__: {STAYS: OffsetAndMetadata(60, "", -1)}  # type: ignore[attr-defined]
    group._consumer.end_offsets = lambda *_, **__: {STAYS: end}
    group._consumer.assignment = lambda: {STAYS}
    group._consumer.group_metadata = lambda: SimpleNamespace(member_id="m")
    first = record(STAYS, 7)

    poller._open({STAYS: [first]})
    inbox.put({STAYS: [first]}, lambda: {STAYS: OffsetAndMetadata(8)})

    assert inbox.failed is False
    assert len(inbox.leaving("t", 5, 0.0)) == comes


def test_two_routes_of_one_instance_are_two_members_of_their_group() -> None:
    members = [Subscription(topics, pattern, "g", "pod-0").member for topics, pattern in ((("a",), None), (("a", "b"), None), ((), "^a"))]
    assert len(set(members)) == 3
    assert all(member and member.startswith("pod-0-") for member in members)
    assert Subscription(("a",), None, "g", None).member is None


def record(partition: TopicPartition, offset: int) -> Received:
    return Received(Message(b""), "", Origin("t", partition.partition, b"i" * 16, "", False).token(offset, 0), True, 0)


def taken_by(epoch: int, offset: int) -> Received:
    """A record that the leader of this epoch took."""
    log = Origin("t", STAYS.partition, b"i" * 16, "", False).log
    return Received(Message(b""), "", log + epoch.to_bytes(4, "big") + offset.to_bytes(8, "big"), True, 0, log=log)


class Fetching(Group):
    """It fetches one record of each partition, and one of them goes while it does."""

    def __init__(self, *, full: bool = False) -> None:
        super().__init__()
        self.assigned = {GOES, STAYS}
        self._consumer.assignment = lambda: set(self.assigned)
        self._consumer.pause = self._consumer.resume = self._touch
        self._consumer.poll = self._fetch
        self._consumer._coordinator._join_task = None
        self.touched: list[TopicPartition] = []
        self.poller._met = {GOES, STAYS}
        self._full = full

    def knows(self, member: str, *, now: str, by: connection.Connection | None = None) -> None:
        """What is here was fetched by that member; the group has another one now."""
        (by or self.poller)._member = member
        self._consumer.group_metadata = lambda: SimpleNamespace(member_id=now)

    def _touch(self, *partitions: TopicPartition) -> None:
        for each in partitions:
            if each == STAYS and self._full:
                self.assigned.discard(GOES)  # kafka-python's thread is quicker
            if each not in self.assigned:
                raise KeyError(each)
            self.touched.append(each)

    def _fetch(self, **_: Any) -> dict[TopicPartition, list[Received]]:
        self.assigned.discard(GOES)
        ended(Handover(self.poller).on_partitions_revoked([GOES]))
        return {each: [record(each, 0)] for each in (GOES, STAYS)}


def test_what_was_fetched_of_a_partition_that_has_gone_is_left_to_its_next_owner() -> None:
    group = Fetching()
    group.poller._poll()
    _, ends = group.poller.inbox.take(10, 0)
    assert ends == {STAYS: Place(1, -1)}


def test_a_partition_that_goes_while_nobody_receives_ends_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Fetching(full=True)
    monkeypatch.setattr(group.poller.inbox, "wait_for_room", lambda _: False)
    group.poller._poll()
    assert group.touched.count(STAYS) == 2


def test_a_connection_that_is_given_up_while_nobody_receives_fetches_no_more() -> None:
    """Such as that of a bridge whose disk is full: what it went on fetching would fill its memory."""
    group = Fetching()
    group.poller.fail(NotConnected("the group has given this bridge's partitions away"))
    group.poller._poll()
    assert group.touched.count(STAYS) == 2  # paused, and resumed


@pytest.mark.parametrize(("member", "new"), [("anew", True), ("known", False), ("", False)])
def test_where_the_group_takes_a_bridge_in_anew_in_the_middle_of_a_join_a_new_connection_recognises_what_was_stored(
    member: str, new: bool
) -> None:
    """kafka-python tells of no lost partitions then, and keeps them; without a name it is still on its way into the group."""
    group = Fetching()
    group._consumer.poll = lambda **_: {STAYS: [record(STAYS, 0)]}
    group.knows("known", now=member)
    group.poller._poll()
    assert recognising(group.poller) == new


def test_a_bridge_that_the_group_took_in_anew_commits_nothing_of_before_which_may_be_behind_what_others_committed() -> None:
    group = Fetching()
    group.knows("known", now="anew")
    group.store(goes=10, stays=5)
    group.poller._commit_some()
    ended(Handover(group.poller).on_partitions_revoked([GOES]))
    assert group.coordinator.asked == []
    assert recognising(group.poller)


@pytest.mark.parametrize(("member", "new"), [("anew", True), ("known", False)])
def test_partitions_of_levels_are_read_anew_as_well_where_the_group_took_the_bridge_in_anew(member: str, new: bool) -> None:
    group, inbox = Fetching(), LevelInbox([Level("t", 0)])
    group._consumer.paused, group._consumer.poll = set, lambda **_: {}
    group._consumer._subscription = SimpleNamespace(all_consumed_offsets=dict)
    poller = group.levels(inbox)
    inbox.open(STAYS, None)
    group.knows("known", now=member, by=poller)
    poller._poll()
    assert inbox.failed == new


def test_a_partition_of_a_level_that_goes_before_it_is_opened_is_opened_anew_when_it_comes_back() -> None:
    inbox = LevelInbox([Level("t", 0)])
    inbox.forget([GOES])
    inbox.open(GOES, OffsetAndMetadata(3, "", -1), lambda: {STAYS})
    assert inbox.unknown([GOES]) == {GOES}


def test_what_is_fetched_of_a_level_while_its_partition_goes_is_left_to_its_next_owner() -> None:
    inbox = LevelInbox([Level("t", 0)])
    for each in (GOES, STAYS):
        inbox.open(each, None)
    inbox.drop([GOES])
    inbox.put({each: [record(each, 0)] for each in (GOES, STAYS)}, lambda: dict.fromkeys((GOES, STAYS), OffsetAndMetadata(0)))
    inbox.forget([GOES])
    assert [held.partition for held in inbox.leaving("t", 10, 0)] == [STAYS]


@pytest.mark.parametrize(("session", "heartbeat"), [(10.0, 500), (1.0, 250)])
def test_a_member_hears_soon_that_another_one_has_come_and_often_enough_to_stay(session: float, heartbeat: int) -> None:
    """Whoever has heard already delivers nothing until all have."""
    configs = consuming(Kafka(bootstrap_servers="127.0.0.1:1", session_timeout=session), "test")
    assert (configs["session_timeout_ms"], configs["heartbeat_interval_ms"]) == (session * 1000, heartbeat)
