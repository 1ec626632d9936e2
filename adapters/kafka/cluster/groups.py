"""How far a group is, and what is left for it."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka import TopicPartition, errors
from kafka.admin import OffsetSpec

from ..finished import finished_behind
from ..identity import of_others, text_of
from .client import retried

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kafka import OffsetAndMetadata

    from .topic import Topic

_DELETING = 5000  # ms, for which followers that lag are waited for: the leader has deleted by then
_DENIED = errors.TopicAuthorizationFailedError.__name__


class Offsets(NamedTuple):
    """One partition's offsets. `committed` is negative where nothing is; where levels are read, `finished` records after it are finished."""

    begin: int
    committed: int
    finished: int
    end: int

    @property
    def waiting(self) -> int:
        """What is not finished."""
        return max(0, self.end - max(self.begin, self.committed) - (self.finished if self.begin <= self.committed else 0))


class Groups:
    """The groups of one cluster."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def members(self, group: str) -> int:
        """How many consumers a group has at this moment."""
        return len(retried(lambda: self._client.describe_groups([group]))[group].get("members") or ())

    def readers(self, topic: str) -> set[str]:
        """The groups that have read from a topic."""
        groups = [each["group_id"] for each in self._client.list_groups()]
        return {
            group
            for group in groups
            if any(each.topic == topic for each in retried(partial(self._client.list_group_offsets, group))[group])
        }

    def waiting(self, group: str, topics: Collection[Topic]) -> Counter[str]:
        """How many records of each topic the group has not finished; a marker of a transaction counts as one. As many requests for many topics as for one."""
        found: Counter[str] = Counter()
        for partition, offsets in self._offsets(group, topics).items():
            found[partition.topic] += offsets.waiting
        return found

    def trim(self, group: str, topics: Collection[Topic]) -> bool:
        """Delete what a group has done with: all below what it has committed. False where that is not allowed.

        A partition of which nothing is committed, or more than it has, is left alone.
        """
        offsets = self._offsets(group, topics)
        done = {partition: each.committed for partition, each in offsets.items() if each.begin < each.committed <= each.end}
        try:
            if done:
                self._client.delete_records(done, timeout_ms=_DELETING)
        except errors.KafkaError as error:
            if _DENIED not in f"{type(error).__name__}: {error}":  # of several errors kafka-python tells only the names
                raise
            return False
        return True

    def positions(
        self, group: str, partitions: Collection[TopicPartition], *, stable: bool = False
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """What a group has committed in these partitions, where it has committed anything, with the text beside each offset.

        `stable`: a transaction that has committed further offsets, and whose end is not written yet, is waited for: some seconds, then KafkaError.
        """
        self._client.stable = stable
        found: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]] = retried(
            lambda: self._client.list_group_offsets({group: list(partitions)})
        )
        return found[group]

    def _offsets(self, group: str, topics: Collection[Topic]) -> dict[TopicPartition, Offsets]:
        partitions = [TopicPartition(topic.name, number) for topic in topics for number in range(topic.partitions)]
        if not partitions:
            return {}
        committed = self.positions(group, partitions)
        begins, ends = (
            self._client.list_partition_offsets(dict.fromkeys(partitions, spec)) for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
        )
        earlier = {
            each: position.leader_epoch
            for each, position in committed.items()
            if 0 <= position.leader_epoch < (ends[each].leader_epoch or 0)
        }
        # Where the log has lost its end, what comes after that is new, also where more is committed.
        intact = retried(lambda: self._client.ends(earlier))
        found: dict[TopicPartition, Offsets] = {}
        ours = {topic.name: text_of(topic.identity) for topic in topics}
        for each in partitions:
            end = ends[each].offset
            offset, text = (committed[each].offset, committed[each].metadata or "") if each in committed else (-1, "")
            if of_others(text, ours[each.topic]):
                offset, text = -1, ""
            finished = finished_behind(text, intact.get(each, end) - offset)
            found[each] = Offsets(begins[each].offset, min(offset, intact.get(each, offset)), finished, end)
        return found
