"""Assigns the partitions of a group to its bridges."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import islice
from typing import TYPE_CHECKING, Any

from kafka import TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Spreading(CooperativeStickyAssignor):  # type: ignore[misc]  # kafka-python has no types
    """Spreads each topic evenly over all that want it, and then all topics together. A group that is settled moves nothing.

    kafka-python's own moves partitions in the order of their topics' names until all have equally many, so that of two bridges one has one half of the
    levels and one the other: where nearly all messages have the same delay, one of them does nothing. The leader decides alone, and what the members
    tell it is the same, so bridges with either share a group.

    As KIP-429 has it, what has an owner goes to nobody else before that one has let it go, and joined again. Whoever was away for longer than its session
    claims what it has no more: that goes to nobody until `Connection.fail` has ended its membership, too.
    """

    def assign(self, cluster: Any, members: Iterable[Any]) -> dict[str, Any]:
        """What each member has from now on, by its id; called at the leader of the group only."""
        known = {member.member_id: self.parse_member_metadata(member.metadata) for member in members}
        wanting: defaultdict[str, list[str]] = defaultdict(list)
        claims: defaultdict[TopicPartition, list[str]] = defaultdict(list)
        for member in sorted(known):
            for topic in known[member].subscription:
                wanting[topic].append(member)
            for partition in known[member].partitions:
                claims[partition].append(member)
        topics = {topic: sorted(cluster.partitions_for_topic(topic) or ()) for topic in wanting}
        given: dict[str, list[tuple[str, list[int]]]] = {member: [] for member in known}
        for topic, shares in spread(topics, wanting, claims).items():
            for member, numbers in shares.items():
                free = [number for number in numbers if claims.get(TopicPartition(topic, number), [member]) == [member]]
                if free:
                    given[member].append((topic, free))
        return {member: ConsumerProtocolAssignment(self.version, found, b"") for member, found in given.items()}


def spread(
    topics: Mapping[str, Sequence[int]], wanting: Mapping[str, Sequence[str]], claims: Mapping[TopicPartition, Sequence[str]]
) -> dict[str, dict[str, list[int]]]:
    """For each topic, which member gets which of its partitions once those who have others now have let them go.

    `claims` says which members have a partition; one that two of them claim belongs to neither. Members that want the same topics get as many partitions of
    each, and of all of them together, as the others, but for one at most. Where each has what this gave it, it gives the same again.
    """
    total: Counter[str] = Counter()
    return {topic: _shared(topic, topics[topic], wanting[topic], claims, total) for topic in sorted(topics)}


def _shared(
    topic: str, numbers: Sequence[int], members: Sequence[str], claims: Mapping[TopicPartition, Sequence[str]], total: Counter[str]
) -> dict[str, list[int]]:
    by_number = {number: claims.get(TopicPartition(topic, number), []) for number in numbers}
    owned = {member: [number for number, claimed in by_number.items() if claimed == [member]] for member in members}
    each, left = divmod(len(numbers), len(members))
    by_need = sorted(members, key=lambda member: (total[member], -len(owned[member]), member))
    quotas = {member: each + (place < left) for place, member in enumerate(by_need)}
    shares = {member: owned[member][:quota] for member, quota in quotas.items()}
    kept = {number for share in shares.values() for number in share}
    # What nobody has comes first: whoever is first in need has it at once then, and is first again when the others have let go.
    free = iter(sorted(by_number.keys() - kept, key=lambda number: (bool(by_number[number]), number)))
    for member, quota in quotas.items():
        shares[member] = sorted((*shares[member], *islice(free, quota - len(shares[member]))))
        total[member] += quota
    return shares
