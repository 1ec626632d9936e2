"""What is counted of level topics; what is deleted of them, and what never is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kafka import TopicPartition, errors
from kafka.admin import OffsetSpec
from unit.kafka.cluster import asked_by

from delaybridge.adapters.base import AdapterError
from delaybridge.adapters.kafka import Kafka, adapter
from delaybridge.adapters.kafka.cluster import Cluster, Topic
from delaybridge.adapters.kafka.level_queues import queues as level_queues
from delaybridge.adapters.levelled import Level

LEVEL = TopicPartition("lv.1s", 0)
LEVELS = [Level("lv.1s", 1000), Level("lv.ids", 0, "ids"), Level("lv.dead-letters", 0, "dead_letters")]


class Admin:
    """A client of a cluster whose partitions hold these offsets, and of which these are committed by the group of that name."""

    def __init__(self, held: dict[TopicPartition, tuple[int, int]], group: str, committed: dict[TopicPartition, int]) -> None:
        self.deleted: dict[TopicPartition, int] = {}
        self.questions = 0
        self.error: Exception | None = None
        self.epoch, self.intact = 5, -1
        self._held, self._group, self._committed = held, group, committed

    def describe_topics(self, names: list[str]) -> list[Any]:
        known: dict[str, Any] = {"error_code": 0, "topic_id": str(UUID(int=0))}
        return [
            known | {"name": name, "partitions": [{"replica_nodes": [1]} for each in self._held if each.topic == name]} for name in names
        ]

    def list_partition_offsets(self, asked: dict[TopicPartition, OffsetSpec]) -> dict[TopicPartition, Any]:
        return {
            each: SimpleNamespace(offset=self._held[each][spec is OffsetSpec.LATEST], leader_epoch=self.epoch)
            for each, spec in asked.items()
        }

    def list_group_offsets(self, asked: dict[str, list[TopicPartition]]) -> Any:
        self.questions += 1
        ((group, partitions),) = asked.items()
        found = self._committed if group == self._group else {}
        return {group: {each: SimpleNamespace(offset=found.get(each, -1), metadata="", leader_epoch=5) for each in partitions}}

    def ends(self, epochs: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        assert set(epochs.values()) <= {5}
        return dict.fromkeys(epochs, self.intact)

    def delete_records(self, offsets: dict[TopicPartition, int], timeout_ms: int) -> None:
        assert timeout_ms > 0
        self.deleted |= offsets
        if self.error is not None:
            raise self.error


def trimmed(admin: Admin) -> dict[TopicPartition, int]:
    """What is deleted of one level: up to these offsets."""
    assert Cluster(admin).groups.trim("lv", [Topic("lv.1s", 1, 1, {}, {})])
    return admin.deleted


@pytest.mark.parametrize(
    ("held", "committed", "deleted"),
    [
        ((0, 10), 7, {LEVEL: 7}),
        ((0, 10), 10, {LEVEL: 10}),
        ((3, 10), 7, {LEVEL: 7}),
        ((0, 10), None, {}),
        ((0, 10), 0, {}),
        ((7, 10), 7, {}),
        ((8, 10), 7, {}),
        ((0, 10), 11, {}),
    ],
    ids=["some", "all", "more", "nothing committed", "nothing finished", "done before", "retention was quicker", "of another topic"],
)
def test_a_level_is_deleted_up_to_what_is_committed(
    held: tuple[int, int], committed: int | None, deleted: dict[TopicPartition, int]
) -> None:
    assert trimmed(Admin({LEVEL: held}, "lv", {} if committed is None else {LEVEL: committed})) == deleted


@pytest.mark.parametrize(("intact", "deleted"), [(9, 7), (7, 7), (6, 6), (0, None), (-1, None)])
def test_what_came_in_the_place_of_lost_records_is_not_deleted(intact: int, deleted: int | None) -> None:
    """A later leader took it; `intact` is where the epoch in which was read what is committed ends in its log."""
    admin = Admin({LEVEL: (0, 10)}, "lv", {LEVEL: 7})
    admin.epoch, admin.intact = 6, intact
    assert trimmed(admin).get(LEVEL) == deleted


def test_what_another_group_has_committed_says_nothing() -> None:
    assert trimmed(Admin({LEVEL: (0, 10)}, "other", {LEVEL: 7})) == {}


@pytest.mark.parametrize(
    "error",
    [
        errors.TopicAuthorizationFailedError("Error deleting records from topic lv.1s partition 0"),
        errors.BrokerResponseError("lv.1s(partition=0): TopicAuthorizationFailedError, lv.1s(partition=1): TopicAuthorizationFailedError"),
    ],
    ids=["one partition", "several"],
)
def test_where_nothing_may_be_deleted_it_is_said_what_to_grant(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    admin = Admin({LEVEL: (0, 10)}, "lv", {LEVEL: 7})
    admin.error = error
    asked_by(monkeypatch, level_queues, Cluster(admin))
    with pytest.raises(AdapterError, match=r"grant DELETE on topics lv\.\*"):
        level_queues.KafkaLevelQueues(Kafka(bootstrap_servers="b:1"), LEVELS).trim()


def test_dead_letters_and_what_became_of_ids_are_never_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = [TopicPartition(level.name, 0) for level in LEVELS]
    admin = Admin(dict.fromkeys(partitions, (0, 10)), "lv", dict.fromkeys(partitions, 7))
    asked_by(monkeypatch, level_queues, Cluster(admin))
    adapter.level_queues(Kafka(bootstrap_servers="b:1"), LEVELS).trim()  # type: ignore[attr-defined]
    assert admin.deleted == {LEVEL: 7}


def test_all_levels_are_counted_with_the_questions_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bridge counts while it delivers, and each question costs it and the broker milliseconds in which messages are due."""
    some, other = (TopicPartition(name, 0) for name in ("lv.1s", "lv.1h"))
    admin = Admin({some: (0, 10), other: (4, 6)}, "lv", {some: 7})
    asked_by(monkeypatch, level_queues, Cluster(admin))
    levels = [Level("lv.1s", 1000), Level("lv.1m", 60_000), Level("lv.1h", 3_600_000)]
    assert adapter.level_queues(Kafka(bootstrap_servers="b:1"), levels).depths() == [3, 0, 2]
    assert admin.questions == 1
