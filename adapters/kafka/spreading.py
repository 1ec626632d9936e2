"""Which bridge of a group has which partitions."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from kafka import TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Spreading(CooperativeStickyAssignor):  # type: ignore[misc]  # kafka-python has no types
    """Each topic is spread evenly over all that want it; then, that no partition moves that need not.

    kafka-python's own moves partitions in the order of their topics' names until all have equally many, so that of two bridges one has one half of the
    levels and one the other: where nearly all messages have the same delay, one of them does nothing. The leader decides alone, and what the members
    tell it is the same, so bridges with either share a group.

    As KIP-429 has it, what has an owner goes to nobody else before that one has let it go, and joined again.
    """

    def assign(self, cluster: Any, members: Iterable[Any]) -> dict[str, Any]:
        """See AbstractPartitionAssignor."""
        known = {member.member_id: self.parse_member_metadata(member.metadata) for member in members}
        wanting: defaultdict[str, list[str]] = defaultdict(list)
        claims: defaultdict[TopicPartition, list[str]] = defaultdict(list)
        for member in sorted(known):
            for topic in known[member].subscription:
                wanting[topic].append(member)
            for partition in known[member].partitions:
                claims[partition].append(member)
        topics = {topic: sorted(cluster.partitions_for_topic(topic) or ()) for topic in wanting}
        owners = {partition: owners[0] for partition, owners in claims.items() if len(owners) == 1}
        given: dict[str, list[tuple[str, list[int]]]] = {member: [] for member in known}
        for topic, shares in spread(topics, wanting, owners).items():
            for member, numbers in shares.items():
                free = [number for number in numbers if claims.get(TopicPartition(topic, number), [member]) == [member]]
                if free:
                    given[member].append((topic, free))
        return {member: ConsumerProtocolAssignment(self.version, found, b"") for member, found in given.items()}


def spread(
    topics: Mapping[str, Sequence[int]], wanting: Mapping[str, Sequence[str]], owners: Mapping[TopicPartition, str]
) -> dict[str, dict[str, list[int]]]:
    """For each topic who gets which of its partitions, once those who have others now have let them go.

    Members that want the same topics get as many partitions of each, and of all of them, but for one at most. The same members and owners get the same;
    and where each has what this gave it, so do they again.
    """
    total: Counter[str] = Counter()
    return {topic: _shared(topic, topics[topic], wanting[topic], owners, total) for topic in sorted(topics)}


def _shared(
    topic: str, numbers: Sequence[int], members: Sequence[str], owners: Mapping[TopicPartition, str], total: Counter[str]
) -> dict[str, list[int]]:
    owned: dict[str, list[int]] = {member: [] for member in members}
    for number in numbers:
        owner = owners.get(TopicPartition(topic, number), "")
        if owner in owned:
            owned[owner].append(number)
    each, left = divmod(len(numbers), len(members))
    by_need = sorted(members, key=lambda member: (total[member], -len(owned[member]), member))
    shares = {member: owned[member][: each + (place < left)] for place, member in enumerate(by_need)}
    kept = {number for share in shares.values() for number in share}
    free = iter([number for number in numbers if number not in kept])
    for place, member in enumerate(by_need):
        share = shares[member]
        share += (next(free) for _ in range(each + (place < left) - len(share)))
        share.sort()
        total[member] += len(share)
    return shares
