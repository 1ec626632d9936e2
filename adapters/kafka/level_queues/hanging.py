"""Finds transactions that nobody ends any more. Whoever reads committed records stands still before one for good; markers.py says how they come about.

A transaction hangs if it is open in a partition, its coordinator then says that it is not open there, and after that it still is: a coordinator knows of a
partition before the first record is written there, and forgets it after the end is. No clock is asked for that. If no coordinator tells which producer it
belongs to, because the transactional id has expired or may not be described, it hangs if its last record is older than any transaction may become.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from ...clock import wall_clock
from ...preparing import Finding
from .. import commands
from ..cluster import COMMITTED, OFFSETS, opened
from ..interception import KafkaInterception
from ..transactions.identities import bridge_of, is_in_place
from .queues import group

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from kafka import TopicPartition

    from ...levelled import Level
    from ..cluster import Cluster, Open, Owner
    from ..options import Endpoint, Kafka


class Hanging(NamedTuple):
    """One transaction in one partition that nobody ends; `owner` is None where the cluster does not tell whose it is."""

    open: Open
    owner: Owner | None

    @property
    def producer(self) -> tuple[str, int]:
        """Whose it is, in an order."""
        return (self.owner.transactional_id if self.owner else "", self.open.producer_id)


class Look(NamedTuple):
    """What was found in some topics. `untold`: those of which the cluster does not tell. `leaderless`: what could not be looked at."""

    topics: AbstractSet[str]
    hanging: Sequence[Hanging]
    untold: AbstractSet[str]
    leaderless: AbstractSet[TopicPartition]


def findings(options: Kafka, routes: Sequence[Endpoint], addresses: Sequence[str], levels: Sequence[Level]) -> list[Finding]:
    """See examining.Examinable. In topics that do not exist nothing hangs."""
    group_id = group(levels[0].name) if levels else None
    with opened(options) as cluster:
        there = cluster.names()
        read = {name for one in KafkaInterception(options, routes).read(there) for name in (one.name, one.destination)}
        topics = there & (read | set(addresses) | {level.name for level in levels})
        seen = look(cluster, topics | ({OFFSETS} if levels else set()))
        hidden = cluster.hidden(set(addresses) - there)
    found = [each for each in seen.hanging if each.open.partition.topic != OFFSETS or _bridge(each, group_id)]
    missing = [
        Finding(False, f"a route leads to topic `{name}`, which is not there", "create it, or correct the route")
        for name in sorted(set(addresses) - there - hidden)
    ]
    missing += [
        Finding(False, f"whether there is topic `{name}`, to which a route leads, may not be seen", "grant DESCRIBE on it")
        for name in sorted(hidden)
    ]
    return missing + list(_told(seen._replace(hanging=found), group_id, options))


def look(cluster: Cluster, topics: AbstractSet[str]) -> Look:
    """Ask for all partitions of these topics, of those that exist. Raises AdapterError."""
    led, leaderless = cluster.led(topics, frozenset()) if topics else (set(), set())
    topics = {each.topic for each in led | leaderless}  # Kafka makes that of offsets when a group commits for the first time
    before, untold = cluster.transactions.open_in(led)
    if not before:
        return Look(topics, [], untold, leaderless)
    owners = cluster.transactions.owners({each.producer_id for each in before})
    after, _ = cluster.transactions.open_in({each.partition for each in before})
    known = [Hanging(each, owners.get(each.producer_id)) for each in before & after]
    longest = 0 if all(each.owner for each in known) else cluster.transactions.longest()
    return Look(topics, [each for each in known if _hangs(each, wall_clock() - longest)], untold, leaderless)


def _hangs(one: Hanging, oldest: float) -> bool:
    if one.owner is None:
        return one.open.last < oldest
    return one.open.partition not in one.owner.partitions


def _bridge(one: Hanging, group_id: str | None) -> str:
    """The name of the bridge whose it is; empty where it is no bridge's of these levels, whose group is `group_id`."""
    return "" if group_id is None or one.owner is None else bridge_of(one.owner.transactional_id, group_id)


def _told(seen: Look, group_id: str | None, options: Kafka) -> Iterator[Finding]:
    for _, some in groupby(sorted(seen.hanging, key=attrgetter("producer", "open")), key=attrgetter("producer")):
        yield _standstill(list(some), group_id, options)
    if seen.leaderless:
        yield Finding(
            False, f"{_names(seen.leaderless)}: without a leader, nobody reads or writes there", "see that the brokers run that have it"
        )
    if seen.untold:
        text = f"whether a transaction hangs in {', '.join(sorted(seen.untold))} is not known"
        yield Finding(True, f"{text}: the cluster does not tell (READ on the topic is needed, and Kafka 2.8)")
    told = seen.topics - seen.untold - {each.topic for each in seen.leaderless}
    if told and not seen.hanging:
        yield Finding(True, f"no transaction hangs in the {len(told)} topic{'' if len(told) == 1 else 's'} that were looked at")


def _standstill(some: Sequence[Hanging], group_id: str | None, options: Kafka) -> Finding:
    first = some[0]
    committed = first.owner is not None and first.owner.state in COMMITTED
    whose = f"`{first.owner.transactional_id}`" if first.owner else f"producer {first.open.producer_id}, of which no more is known"
    where = _names({each.open.partition for each in some})
    what = f"readers of what is committed get no further in {where}: nobody ends the transaction of {whose} there"
    abort = " && ".join(commands.abort(options, each.open.partition, each.open.start) for each in some)
    drops = f"this drops what it wrote there{', though its last transaction was committed' if committed else ''}: {abort}"
    bridge = _bridge(first, group_id)
    if not bridge or is_in_place(first.producer[0]):  # a bridge that comes back uses its own id
        return Finding(False, what, drops)
    again = f"start the bridge `{bridge}` again, which ends it as it ended elsewhere, at a destination when it delivers there next"
    return Finding(False, what, f"{again}; or, where no bridge of that name will come, {drops}")


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions))
