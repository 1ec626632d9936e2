"""What a bridge does that stood still for longer than its session on Kafka, and what is not taken for that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from kafka import OffsetAndMetadata, TopicPartition, errors
from unit.kafka.test_handover import GOES, STAYS, Group, ended, record

from delaybridge.adapters.kafka.level_queues.inbox import LevelInbox
from delaybridge.adapters.kafka.sources import connection
from delaybridge.adapters.kafka.sources.connection import Handover
from delaybridge.adapters.levelled import Level

if TYPE_CHECKING:
    import pytest


def test_what_of_a_level_cannot_be_delivered_does_not_hold_up_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is the wait for it taken for a standstill of this process, which would end this connection, and then the next one."""
    group, inbox = Group(), LevelInbox([Level("t", 0)])
    poller = group.levels(inbox)
    assert group.levels(inbox, moving=True).still < poller.still
    inbox.open(GOES, None)
    inbox.put({GOES: [record(GOES, 0)]}, lambda: {GOES: OffsetAndMetadata(0)})
    assert len(inbox.leaving("t", 1, 0.0)) == 1
    inbox.open(STAYS, None)
    now = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(connection, "uptime", clock.monotonic)
    monkeypatch.setattr(connection, "time", clock)
    poller.still, poller._passed = 5.0, now[0]

    async def sleep(seconds: float) -> None:
        now[0] += seconds * 100

    group._consumer._net = SimpleNamespace(sleep=sleep)
    ended(Handover(poller).on_partitions_revoked([GOES]))
    assert now[0] >= 1005
    assert inbox.held([GOES]) == 0
    now[0] += 2
    poller._mind_the_session()
    assert not inbox.failed
    now[0] += 7
    poller._mind_the_session()
    assert inbox.failed, "a standstill is still one"


def slow_to_tell(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator tells after twenty seconds what was committed, as where another bridge was killed in the middle of a transaction."""
    now = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(connection, "uptime", clock.monotonic)
    monkeypatch.setattr(connection, "time", clock)

    def told(_: object, timeout_ms: int) -> dict[TopicPartition, OffsetAndMetadata]:
        now[0] += timeout_ms / 1000
        if now[0] < 1020:
            raise errors.KafkaTimeoutError
        return {}

    group.coordinator.fetch_committed_offsets = told  # type: ignore[attr-defined]
    group._consumer.assignment = lambda: {GOES, STAYS}


def test_a_source_that_waits_to_hear_what_is_committed_does_not_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group()
    slow_to_tell(group, monkeypatch)
    group.poller._met, group.poller._passed = {STAYS}, 1000.0
    assert group.poller._meet({GOES}) == set()
    group.poller._mind_the_session()
    assert group.poller.inbox.take(1, 0) == ([], None)


def test_levels_that_wait_to_hear_what_is_committed_do_not_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    group, inbox = Group(), LevelInbox([Level("t", 0)])
    slow_to_tell(group, monkeypatch)
    poller = group.levels(inbox)
    inbox.open(STAYS, None)
    poller._open({GOES: [record(GOES, 0)]})
    poller._mind_the_session()
    assert inbox.unknown([GOES, STAYS]) == set()
    assert not inbox.failed


def test_who_delivers_after_a_standstill_is_told_at_once_that_the_messages_may_be_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that polls, and would find out, goes on later."""
    group, inbox = Group(), LevelInbox([Level("t", 0)])
    poller = group.levels(inbox)
    inbox.open(GOES, None)
    inbox.put({GOES: [record(GOES, 0)]}, lambda: {GOES: OffsetAndMetadata(0)})
    records, now = inbox.leaving("t", 1, 0.0), poller._passed
    monkeypatch.setattr(connection, "uptime", lambda: now)
    now += poller._session / 2
    assert not poller.elsewhere(records, 0)
    assert not inbox.failed
    now += poller._session / 2
    assert poller.elsewhere(records, 0)
    assert inbox.failed, "and they come again, to whoever has them"
