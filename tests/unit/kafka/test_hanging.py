"""Which transactions nobody ends, and what people are told of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from kafka import TopicPartition
from unit.kafka.cluster import asked_by

from delaybridge.adapters.kafka import Endpoint, Kafka, adapter
from delaybridge.adapters.kafka.cluster import Open, Owner
from delaybridge.adapters.kafka.level_queues import hanging
from delaybridge.adapters.levelled import Level
from delaybridge.adapters.preparing import Finding

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

LEVEL, OUT, OFFSETS = (TopicPartition(topic, 0) for topic in ("lv.0s", "out", "__consumer_offsets"))
MINUTE = 60_000


class Cluster:
    """What is open where, by whose producers; `ends`: those that end while the coordinators are asked."""

    def __init__(self) -> None:
        self.transactions = self
        self.there = {"lv.0s", "lv.1s", "out", "in", "in.delayed"}
        self.open: set[Open] = set()
        self.ends: set[Open] = set()
        self.known: dict[int, Owner] = {}
        self.untold: set[str] = set()
        self.leaderless: set[TopicPartition] = set()
        self.asked: set[str] = set()
        self.missing: set[str] = set()

    def names(self) -> set[str]:
        return self.there

    def hidden(self, _: AbstractSet[str]) -> set[str]:
        return set()

    def led(self, topics: AbstractSet[str], _: AbstractSet[TopicPartition]) -> tuple[set[TopicPartition], set[TopicPartition]]:
        self.asked |= topics
        every = {TopicPartition(name, 0) for name in topics - self.missing}
        return every - self.leaderless, every & self.leaderless

    def open_in(self, partitions: AbstractSet[TopicPartition]) -> tuple[set[Open], set[str]]:
        told = {each for each in partitions if each.topic not in self.untold}
        return {each for each in self.open if each.partition in told}, {each.topic for each in partitions - told}

    def owners(self, producers: AbstractSet[int]) -> dict[int, Owner]:
        self.open -= self.ends
        return {producer: owner for producer, owner in self.known.items() if producer in producers}

    def longest(self) -> int:
        return 15 * MINUTE

    def leave(self, partition: TopicPartition, owner: Owner | None = None, start: int = 5, age: int = 0, producer: int = 7) -> Open:
        """A transaction that is open there."""
        left = Open(partition, producer, start, time.time_ns() // 1_000_000 - age)
        self.open.add(left)
        if owner is not None:
            self.known[producer] = owner
        return left


def over(name: str, state: str = "CompleteCommit") -> Owner:
    return Owner(name, state, frozenset())


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    asked_by(monkeypatch, hanging, made)
    return made


def found(*topics: str, levels: tuple[str, ...] = ("lv.0s", "lv.1s"), addresses: tuple[str, ...] = ("out",)) -> list[Finding]:
    routes = [Endpoint(topic=topic) for topic in topics]
    return adapter.standstills(Kafka(bootstrap_servers="a:1,b:2"), routes, addresses, [Level(name, 0) for name in levels])


def command(partition: TopicPartition, start: int = 5) -> str:
    where = f"--topic {partition.topic} --partition {partition.partition} --start-offset {start}"
    return f"kafka-transactions.sh --bootstrap-server a:1,b:2 abort {where}"


@pytest.mark.usefixtures("cluster")
def test_where_nothing_is_open_nothing_hangs() -> None:
    assert found() == [Finding(True, "no transaction hangs in the 4 topics that were looked at")]


@pytest.mark.usefixtures("cluster")
def test_where_there_is_no_topic_to_look_at_nothing_is_said() -> None:
    assert found(levels=(), addresses=()) == []
    missing = Finding(False, "a route leads to topic `missing`, which is not there", "create it, or correct the route")
    assert found(levels=(), addresses=("missing",)) == [missing]


def test_a_topic_of_offsets_that_is_not_there_yet_is_not_counted(cluster: Cluster) -> None:
    cluster.missing = {"__consumer_offsets"}
    assert found() == [Finding(True, "no transaction hangs in the 3 topics that were looked at")]


def test_what_its_coordinator_takes_for_over_hangs(cluster: Cluster) -> None:
    cluster.leave(OUT, over("other"))
    (finding,) = found()
    assert not finding.ok
    assert finding.what == "readers of what is committed get no further in out-0: nobody ends the transaction of `other` there"
    assert finding.fix == f"this drops what it wrote there, though its last transaction was committed: {command(OUT)}"


@pytest.mark.parametrize("state", ["CompleteAbort", "PrepareAbort", "Empty", "Unknown"])
def test_only_of_what_was_committed_it_is_said_that_an_abort_drops_it(cluster: Cluster, state: str) -> None:
    cluster.leave(OUT, over("other", state))
    assert found()[0].fix == f"this drops what it wrote there: {command(OUT)}"


@pytest.mark.parametrize("name", ["lv-east", "lv-east:its-route"], ids=["from level to level", "at intake"])
def test_a_bridge_is_named_and_all_its_partitions_are_one_finding(cluster: Cluster, name: str) -> None:
    for partition in (OUT, LEVEL, OFFSETS):
        cluster.leave(partition, over(name, "CompleteAbort"))
    (finding,) = found()
    assert "in __consumer_offsets-0, lv.0s-0, out-0:" in finding.what
    assert finding.fix.startswith("start the bridge `east` again")
    assert finding.fix.endswith(" && ".join(command(each) for each in (OFFSETS, LEVEL, OUT)))


def test_no_bridge_is_told_to_end_what_was_begun_under_an_id_in_place_of_its_own(cluster: Cluster) -> None:
    cluster.leave(OFFSETS, over("lv-east::1"))
    (finding,) = found()
    assert "`lv-east::1`" in finding.what
    assert finding.fix.startswith("this drops what it wrote there")


def test_each_producer_has_its_own_finding(cluster: Cluster) -> None:
    cluster.leave(OUT, over("other"), producer=8)
    cluster.leave(OUT, over("lv-east"), start=9)
    assert [("`lv-east`" in each.what, command(OUT, 9) in each.fix) for each in found()] == [(True, True), (False, False)]


def test_what_ends_while_it_is_looked_at_does_not_hang(cluster: Cluster) -> None:
    cluster.ends = {cluster.leave(LEVEL, over("lv-east"))}
    assert [each.ok for each in found()] == [True]


def test_what_its_coordinator_has_still_to_end_does_not_hang_however_old_it_is(cluster: Cluster) -> None:
    cluster.leave(OUT, Owner("other", "Ongoing", {OUT}), age=600 * MINUTE)
    assert [each.ok for each in found()] == [True]


@pytest.mark.parametrize(("age", "hangs"), [(14 * MINUTE, False), (16 * MINUTE, True)])
def test_of_an_unknown_producer_what_is_older_than_any_transaction_hangs(cluster: Cluster, age: int, hangs: bool) -> None:
    cluster.leave(OUT, age=age)
    (finding,) = found()
    assert finding.ok != hangs
    assert ("the transaction of producer 7, of which no more is known" in finding.what) == hangs


def test_of_offsets_only_the_bridges_own_matter(cluster: Cluster) -> None:
    cluster.leave(OFFSETS, over("other"))
    assert [each.ok for each in found()] == [True]
    cluster.leave(OFFSETS, over("lv-east"))
    assert [each.ok for each in found()] == [False]


def test_without_levels_nobody_is_taken_for_a_bridge_and_offsets_are_not_looked_at(cluster: Cluster) -> None:
    cluster.leave(OUT, over("lv-east"))
    assert "start the bridge" not in found(levels=())[0].fix
    assert cluster.asked == {"out"}


@pytest.mark.parametrize("topic", ["in.delayed", r"^in\..*"])
def test_what_a_route_reads_and_where_that_leads_is_looked_at(cluster: Cluster, topic: str) -> None:
    found(topic, levels=(), addresses=())
    assert cluster.asked == {"in.delayed", "in"}


def test_what_the_cluster_does_not_tell_is_said_and_not_counted(cluster: Cluster) -> None:
    cluster.untold = {"out"}
    unknown, rest = found()
    assert unknown.ok
    assert unknown.what.startswith("whether a transaction hangs in out is not known")
    assert rest == Finding(True, "no transaction hangs in the 3 topics that were looked at")


def test_a_partition_without_a_leader_is_a_finding_of_its_own(cluster: Cluster) -> None:
    cluster.leaderless = {OUT}
    assert [(each.ok, each.what) for each in found(levels=())] == [(False, "out-0: without a leader, nobody reads or writes there")]
