"""Where transactions are open, in a cluster whose topics come and go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kafka import TopicPartition, errors

from delaybridge.adapters.kafka.cluster.transactions import Open, Transactions

if TYPE_CHECKING:
    from collections.abc import Iterable

LEADER = 4
STAYS, GOES = TopicPartition("stays", 0), TopicPartition("goes", 0)


class Admin:
    """Has a transaction open in each topic, and one of them is deleted between two questions."""

    def __init__(self) -> None:
        self.there = {"stays", "goes"}
        self.looks = 0

    def describe_topics(self, names: Iterable[str]) -> list[dict[str, Any]]:
        found = {"partition_index": 0, "leader_id": LEADER}
        self.looks += 1
        return [{"name": name, "partitions": [found] if name in self.there else []} for name in names]

    def describe_producers(self, partitions: Iterable[TopicPartition], broker_id: int) -> dict[TopicPartition, Any]:
        assert broker_id == LEADER
        self.there.discard("goes")
        if any(each.topic not in self.there for each in partitions):
            raise errors.UnknownTopicOrPartitionError
        producer = SimpleNamespace(producer_id=7, current_transaction_start_offset=3, last_timestamp=9)
        return {each: SimpleNamespace(active_producers=[producer]) for each in partitions}


def test_a_topic_that_is_deleted_meanwhile_keeps_nobody_from_being_told_of_the_others() -> None:
    admin = Admin()
    assert Transactions(admin).open_in({STAYS, GOES}) == ({Open(STAYS, 7, 3, 9)}, set())
    assert admin.looks == 2, "one for each try"
