"""A Kafka source whose offsets are not committed: it says so, and takes no more than the bridge recognises when it comes again."""

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
from delaybridge.adapters.kafka.sources import commits
from delaybridge.adapters.kafka.sources.progress import MOST
from delaybridge.adapters.kafka.sources.source import KafkaSource, Subscription
from delaybridge.adapters.kafka.wire.records import Origin
from delaybridge.core.message import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTITION = TopicPartition("t", 0)
ORIGIN = Origin("t", 0, b"i" * 16, "", False)
REFUSED, REBALANCING = errors.NotEnoughReplicasError(), errors.RebalanceInProgressError()
CLOSED = errors.KafkaConnectionError("socket disconnected")


class Source:
    """A source that has fetched much; its commits are answered by the script."""

    def __init__(self) -> None:
        self.commits: list[int] = []
        self._asked: list[Any] = []
        coordinator = SimpleNamespace(_do_commit_offsets_async=self._commit)
        consumer = SimpleNamespace(config={"group_id": "g", "session_timeout_ms": 10_000}, _client=client(), _coordinator=coordinator)
        self.poller = poller_on(consumer)
        self.poller.inbox.put(
            PARTITION, [Received(Message(b""), "", ORIGIN.token(number, 0), redelivered=True) for number in range(2 * MOST)]
        )
        self.source = KafkaSource(Kafka(bootstrap_servers="127.0.0.1:9092"), Subscription(("t",), None, "g", None))
        self.source._poller = self.poller

    def _commit(self, positions: dict[TopicPartition, Any]) -> Any:
        self.commits.append(positions[PARTITION].offset)
        self._asked.append(Future())
        return self._asked[-1]

    def store(self, most: int = 2 * MOST) -> int:
        """Receive and acknowledge what there is; how many messages that was."""
        count = 0
        while count < most and (batch := self.source.receive(500, 0)) is not None:
            batch.ack()
            count += len(batch.messages)
        return count

    def commit(self, *answers: Exception | None) -> Sequence[Any]:
        """Commit as often, with these answers; what is told of it."""
        with capture_logs() as told:
            for answer in answers:
                self.poller._commit_some()
                if answer is None:
                    self._asked.pop(0).success(None)
                else:
                    self._asked.pop(0).failure(answer)
        return [(each["event"], each["log_level"]) for each in told]


@pytest.fixture
def source() -> Source:
    return Source()


def test_with_an_offset_the_epoch_is_committed_of_the_leader_that_took_the_record_before_it() -> None:
    """Where it can be known: a batch that cannot be read is in no log."""
    source = Source()
    told = [ORIGIN.log + epoch.to_bytes(4, "big") + offset.to_bytes(8, "big") for epoch, offset in ((6, 7), (300, 8))]
    source.poller.inbox.drop({PARTITION})
    source.poller.inbox.put(PARTITION, [Received(Message(b""), "", token, redelivered=True, log=ORIGIN.log) for token in told])
    source.poller.inbox.put(PARTITION, [Received(Message(b""), "", ORIGIN.token(9, 0), redelivered=True)])
    positions = []
    for _ in range(3):
        batch = source.source.receive(1, 0)
        assert batch is not None
        batch.ack()
        positions.append(source.poller._positions(source.poller.progress.take())[PARTITION])

    assert positions == [
        OffsetAndMetadata(8, "of topic id", 6),
        OffsetAndMetadata(9, "of topic id", 300),
        OffsetAndMetadata(10, "of topic id", -1),
    ]


def test_no_more_is_taken_than_the_bridge_recognises_until_it_is_committed(source: Source) -> None:
    assert source.store() == MOST
    source.commit(REFUSED)
    assert source.store() == 0
    source.commit(None)
    assert source.store() == MOST


def test_what_was_stored_is_committed_between_two_polls_where_it_becomes_much(source: Source) -> None:
    assert source.store(MOST // 2) == MOST // 2
    assert source.commits == []
    source.store(500)
    assert source.commits == []
    source.store(500)
    assert source.commits == [MOST // 2 + 500]
    source.store(500)
    assert source.commits == [MOST // 2 + 500], "one at a time"


def test_a_source_that_waits_for_a_commit_notices_that_its_connection_is_gone(source: Source) -> None:
    source.store()
    source.poller.fail(NotConnected("gone"))
    with pytest.raises(NotConnected):
        source.source.receive(500, 0)


def test_of_commits_that_fail_the_first_is_told_and_that_they_succeed_again(source: Source) -> None:
    source.store()
    assert source.commit(REFUSED, REFUSED, REFUSED) == [("commit_failed", "warning")]
    assert source.commit(None) == [("commits_again", "info")]
    source.store()
    assert source.commit(REFUSED) == [("commit_failed", "warning")]


@pytest.mark.parametrize(
    "passing",
    [REBALANCING, CLOSED, errors.NotCoordinatorError(), errors.CoordinatorNotAvailableError(), errors.CoordinatorLoadInProgressError()],
    ids=lambda error: type(error).__name__,
)
def test_a_commit_is_told_only_where_its_trouble_does_not_pass(source: Source, passing: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(commits, "time", SimpleNamespace(monotonic=lambda: now[0]))
    source.store()
    assert source.commit(passing, passing) == []
    now[0] += 31
    assert source.commit(passing, passing) == [("commit_failed", "warning")]
    assert source.commit(None) == [("commits_again", "info")]
