"""The sink's bookkeeping of topics that it does not know yet, against a scripted cluster."""

from __future__ import annotations

import time
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kafka import TopicPartition

from delaybridge.adapters.base import BackOff, NotConnected, Outcome, Outgoing
from delaybridge.adapters.kafka.sinks import sink as module
from delaybridge.adapters.kafka.sinks.sender import Accumulator
from delaybridge.adapters.kafka.sinks.sink import Publisher
from delaybridge.adapters.kafka.wire.headers import tail
from delaybridge.core.message import message

if TYPE_CHECKING:
    from delaybridge.adapters.kafka.wire.batches import Prepared


class Cluster:
    """What kafka-python knows; `there`: the topics that the cluster tells of when it answers next."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.unauthorized_topics: set[str] = set()
        self._topics: set[str] = set()
        self._partitions: dict[str, dict[int, Any]] = {}

    def request_update(self) -> None: ...

    def remove_listener(self, _: object) -> None: ...

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(self._partitions.get(topic, ()))


class Publishing(Publisher):
    """With no broker: what gets a place is confirmed at once."""

    def _open(self, *_: Any) -> None:
        self.cluster: Any = Cluster()
        self._cluster = self.cluster
        self._accumulator = Accumulator(self._confirm, self.cluster)
        self._sender: Any = SimpleNamespace(
            add_topic=self.cluster._topics.add, wakeup=_nothing, force_close=_nothing, join=_nothing, is_alive=lambda: True
        )
        self._numbers: Any = SimpleNamespace(has_fatal_error=lambda: False)
        self._pulse: Any = SimpleNamespace(check=_nothing)

    def _to_partition(self, _: TopicPartition, prepared: list[Prepared]) -> None:
        self._confirm([(tag, None) for tag, _, _ in prepared])

    def answer(self, *there: str) -> None:
        """The cluster tells of these topics, as often as it takes to believe that others are missing."""
        self.cluster._partitions = {topic: {0: SimpleNamespace(leader_id=1)} for topic in there}
        for _ in range(3):
            self._heard(self.cluster)


def _nothing(*_: object) -> None: ...


class Stage:
    def __init__(self) -> None:
        self.heard: list[Outcome] = []
        self.publisher = Publishing({}, self.heard.extend, 1, 1)

    def publish(self, *tags: str, to: str) -> None:
        self.publisher.submit([Outgoing(tag.encode(), to, message(tag.encode())) for tag in tags])

    @property
    def outcomes(self) -> Counter[str]:
        return Counter(tag.decode() for tag, _ in self.heard)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_messages_wait_until_the_cluster_has_told_of_their_topic(stage: Stage) -> None:
    stage.publish("a", to="orders")
    stage.publish("b", to="missing")
    assert not stage.heard
    stage.publisher.answer("orders")
    assert stage.outcomes == Counter("ab")
    assert [type(error) for tag, error in stage.heard if tag == b"b"] == [BackOff]


def test_messages_without_a_key_avoid_partitions_that_have_no_leader_or_have_just_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    publisher, refused = stage.publisher, stage.publisher._accumulator.refused
    publisher.cluster._partitions["orders"] = {number: SimpleNamespace(leader_id=number - 1) for number in range(4)}

    def drawn() -> set[int]:
        return {publisher._anywhere("orders", [0, 1, 2, 3]) for _ in range(300)}

    assert drawn() == {1, 2, 3}
    refused[TopicPartition("orders", 1)] = refused[TopicPartition("others", 2)] = now
    now += 299
    assert drawn() == {2, 3}
    now += 2
    assert drawn() == {1, 2, 3}
    refused.update({TopicPartition("orders", number): now for number in range(4)})
    assert drawn() == {0, 1, 2, 3}


def test_what_nobody_foresaw_leaves_no_message_without_its_outcome(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(given: Any) -> bytes:
        if given.body == b"b":
            raise RuntimeError("nobody foresaw this")
        return tail(given)

    monkeypatch.setattr(module, "tail", breaks)
    stage.publish("early", to="a/b")
    for tag, topic in (("missing", "missing"), ("a", "first"), ("b", "second"), ("c", "third")):
        stage.publish(tag, to=topic)
    stage.publisher.answer("first", "second", "third")
    with pytest.raises(NotConnected, match="nobody foresaw this"):
        stage.publisher.check()
    stage.publisher.close()
    assert stage.outcomes == Counter(["early", "missing", *"abc"])


def test_what_the_sender_has_dropped_is_due_again_over_a_new_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    stage, partition = Stage(), TopicPartition("orders", 0)
    accumulator = stage.publisher._accumulator
    accumulator.enqueue(partition, [(b"a", b"\x01\x01\0", 0)])
    accumulator._batches[partition].popleft()  # as kafka-python does before it fails with an error that it only logs
    now += 2
    stage.publisher.check()
    now += 1
    for _ in range(2):
        with pytest.raises(NotConnected, match="without an answer for 2 s"):
            stage.publisher.check()
    assert not stage.heard
    stage.publisher.close()
    assert [(tag, type(error)) for tag, error in stage.heard] == [(b"a", NotConnected)]
