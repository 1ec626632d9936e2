"""kafka-python's client for administration, and what it does not ask for."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kafka import KafkaAdminClient, TopicPartition, errors
from kafka.protocol.consumer import OffsetForLeaderEpochRequest
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

PATIENCE = 20.0
"""Seconds, until a change must be visible, and an error that passes has passed."""
_Epoch = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition


class Client(KafkaAdminClient):  # type: ignore[misc]  # kafka-python has no types
    """Also asks for `stable` offsets (KIP-447), and where epochs end, which kafka-python's asks for nowhere."""

    stable = False

    def _list_group_offsets_requests(self, group_specs: Any) -> Iterator[tuple[str | None, Any]]:
        for group, request in super()._list_group_offsets_requests(group_specs):
            request.require_stable = self.stable
            yield group, request

    def ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Where the epoch of each ends in its partition's log, and with it all earlier ones; -1 where the log has no such epoch."""
        found: dict[TopicPartition, int] = self._manager.run(self._ends, epochs) if epochs else {}
        return found

    async def _ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for leader, partitions in (await self._async_get_leader_for_partitions(epochs)).items():
            topics = [
                (topic, [_Epoch(partition=each.partition, current_leader_epoch=-1, leader_epoch=epochs[each]) for each in some])
                for topic, some in groupby(sorted(partitions), key=attrgetter("topic"))
            ]
            answer = await self._manager.send(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), node_id=leader)
            for topic in answer.topics:
                for each in topic.partitions:
                    if each.error_code:
                        raise errors.for_code(each.error_code)(f"the end of an epoch in {topic.topic}-{each.partition}")
                    found[TopicPartition(topic.topic, each.partition)] = each.end_offset
        return found


def partitions_of(client: Any, names: Iterable[str]) -> dict[TopicPartition, Mapping[str, Any]]:
    """All partitions of these topics, as the cluster describes each."""
    topics = client.describe_topics(sorted(names))
    return {TopicPartition(topic["name"], each["partition_index"]): each for topic in topics for each in topic["partitions"]}


def retried(ask: Callable[[], Any]) -> Any:
    """Ask again while the error is one that passes: a young cluster has no coordinators yet, and makes them when it is asked for one."""
    return Retrying(retry=retry_if_exception(_passes), stop=stop_after_delay(PATIENCE), wait=wait_fixed(0.1), reraise=True)(ask)


def _passes(error: BaseException) -> bool:
    return isinstance(error, errors.KafkaError) and bool(error.retriable)
