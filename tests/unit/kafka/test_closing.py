"""What a Kafka source does with what was acknowledged when it is closed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition, errors
from kafka.future import Future
from unit.kafka.poller import client, poller_on

from delaybridge.adapters.kafka.sources import connection
from delaybridge.adapters.kafka.sources.poller import Poller
from delaybridge.adapters.kafka.wire.records import Place

PARTITION = TopicPartition("t", 0)


class Consumer:
    """Answers commits with `answers`, one after the other, then takes them; `done` is what was asked of it."""

    def __init__(self, *answers: Exception) -> None:
        self.config = {"group_id": "g", "session_timeout_ms": 10_000}
        self._client = client()
        self.pending: Any = None
        self.done: list[str] = []
        self._answers = list(answers)

    def commit(self, positions: dict[TopicPartition, Any], **_: Any) -> None:
        self.done.append(f"commit {positions[PARTITION].offset}")
        if self._answers:
            raise self._answers.pop(0)

    def poll(self, **_: Any) -> None:
        self.done.append("poll")
        if self.pending is not None:
            self.pending.failure(errors.RebalanceInProgressError())

    def close(self, **_: Any) -> None:
        self.done.append("close")


def poller(consumer: Consumer) -> Poller:
    """One that has an acknowledged batch, and whose thread has ended."""
    made = poller_on(consumer)
    made._thread = SimpleNamespace(join=lambda: None)  # type: ignore[assignment]
    made.progress.ack(made.progress.give({PARTITION: Place(7, 0)}, 1))
    return made


@pytest.mark.parametrize("error", [errors.RebalanceInProgressError(), errors.CommitFailedError()])
def test_what_cannot_be_committed_in_the_middle_of_a_rebalance_is_committed_when_that_is_over(error: Exception) -> None:
    consumer = Consumer(error)
    poller(consumer).close()
    assert consumer.done == ["commit 7", "poll", "commit 7", "close"]


def test_a_commit_under_way_that_fails_then_is_made_again() -> None:
    consumer = Consumer()
    one = poller(consumer)
    offsets = one.progress.take()
    one._commit = consumer.pending = Future()
    one._commit.add_errback(lambda _: one.progress.give_back(offsets))
    one.close()
    assert consumer.done == ["poll", "commit 7", "close"]


def test_where_nobody_takes_it_the_source_is_closed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer(errors.KafkaTimeoutError())
    poller(consumer).close()
    assert consumer.done == ["commit 7", "close"]
    monkeypatch.setattr(connection, "_CLOSING", 0)
    consumer = Consumer(errors.RebalanceInProgressError())
    poller(consumer).close()
    assert consumer.done == ["commit 7", "close"]


def test_where_it_cannot_leave_its_group_it_leaves_no_connection_behind_all_the_same() -> None:
    consumer = Consumer()

    def dead(**_: Any) -> None:
        raise errors.KafkaConnectionError("Event loop stopped")

    consumer.close = dead  # type: ignore[method-assign]
    consumer._client.close = lambda: consumer.done.append("let go")
    poller(consumer).close()
    assert consumer.done == ["commit 7", "let go"]
