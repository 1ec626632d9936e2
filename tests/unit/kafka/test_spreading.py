"""How a group of bridges shares partitions out: each topic evenly, none with two at once, none moved once all is even."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from delaybridge.adapters.kafka.sources.spreading import Spreading

if TYPE_CHECKING:
    from collections.abc import Iterable

Owned = set[TopicPartition]


@dataclass
class Cluster:
    """What a leader asks of the cluster's state."""

    partitions: dict[str, int]

    def topics(self) -> set[str]:
        return set(self.partitions)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self.partitions[topic])) if topic in self.partitions else None


class Member:
    """One that has joined, and what it says it has."""

    def __init__(self, name: str, topics: Iterable[str], owned: Owned) -> None:
        self.member_id = name
        self.metadata = said(topics, owned)


def said(topics: Iterable[str], owned: Owned) -> Any:
    speaker = Spreading()
    speaker.member_assignment = sorted(owned)
    return speaker.metadata(set(topics))


@dataclass
class Group:
    """Bridges that all want all topics, by what each has."""

    cluster: Cluster
    owned: dict[str, Owned] = field(default_factory=dict)
    moved: int = 0

    def change(self, what: str, which: int, name: str) -> None:
        """`which` is the member that leaves, if another one stays, or how many partitions a topic is made with."""
        if what == "joins":
            self.owned[name] = set()
        elif what == "topic":
            self.cluster.partitions[name] = which
        elif len(self.owned) > 1:
            del self.owned[sorted(self.owned)[which % len(self.owned)]]

    def round(self) -> bool:
        """One rebalance; whether anybody has to let go of anything, and so another one follows."""
        members = [Member(name, self.cluster.partitions, owned) for name, owned in self.owned.items()]
        given = {name: partitions(one) for name, one in Spreading().assign(self.cluster, members).items()}
        for name, owned in given.items():
            others = set[TopicPartition]().union(*(had for other, had in self.owned.items() if other != name))
            assert not owned & others, "somebody else has it still"
            self.moved += len(self.owned[name] - owned)
        again = any(self.owned[name] - owned for name, owned in given.items())
        self.owned = given
        return again

    def settle(self) -> None:
        """Rebalances until there is none any more: two at most, as one lets go and one takes."""
        self.moved = 0
        rounds = 1
        while self.round():
            rounds += 1
            assert rounds <= 2
        held = [each for owned in self.owned.values() for each in owned]
        assert sorted(held) == sorted(TopicPartition(topic, n) for topic, count in self.cluster.partitions.items() for n in range(count))

    def of(self, name: str, topic: str) -> list[int]:
        return sorted(each.partition for each in self.owned[name] if each.topic == topic)


def partitions(assignment: Any) -> Owned:
    return {TopicPartition(topic, number) for topic, numbers in assignment.assigned_partitions for number in numbers}


LEVELS = {f"level.{wait}": 6 for wait in ("1s", "5s", "10s", "30s")}


def test_a_second_bridge_takes_half_of_each_level() -> None:
    group = Group(Cluster(LEVELS), {"one": set()})
    group.settle()
    group.owned["two"] = set()
    group.settle()
    assert {name: [len(group.of(name, topic)) for topic in LEVELS] for name in group.owned} == {"one": [3] * 4, "two": [3] * 4}
    assert group.moved == 12


def test_what_a_bridge_leaves_goes_to_the_others_and_nothing_else_moves() -> None:
    group = Group(Cluster(LEVELS), {"one": set(), "two": set(), "three": set()})
    group.settle()
    before = {name: set(owned) for name, owned in group.owned.items()}
    del group.owned["two"]
    group.settle()
    assert group.moved == 0
    assert all(before[name] <= group.owned[name] for name in group.owned)


def test_where_there_are_more_bridges_than_partitions_each_topic_is_at_other_ones() -> None:
    group = Group(Cluster({"a": 1, "b": 1, "c": 1}), {"one": set(), "two": set(), "three": set()})
    group.settle()
    assert [len(owned) for owned in group.owned.values()] == [1, 1, 1]


def test_a_topic_goes_to_those_only_that_want_it() -> None:
    members = [Member("one", ["a"], set()), Member("two", ["a", "b", "missing"], set())]
    given = Spreading().assign(Cluster({"a": 2, "b": 2}), members)
    assert {name: sorted(partitions(one)) for name, one in given.items()} == {
        "one": [TopicPartition("a", 0)],
        "two": [TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("b", 1)],
    }


def test_what_two_say_they_have_goes_to_neither_until_both_have_let_it_go() -> None:
    both = TopicPartition("a", 0)
    given = Spreading().assign(Cluster({"a": 1}), [Member("one", ["a"], {both}), Member("two", ["a"], {both})])
    assert [partitions(one) for one in given.values()] == [set(), set()]


def test_bridges_of_either_kind_share_a_group() -> None:
    """Until all of a group are of this release, whichever of them leads decides."""
    assert (Spreading().name, Spreading.version) == (CooperativeStickyAssignor().name, CooperativeStickyAssignor.version)
    members = [Member("one", LEVELS, set()), Member("two", LEVELS, set())]
    old = CooperativeStickyAssignor().assign(Cluster(LEVELS), members)
    new = Spreading().assign(Cluster(LEVELS), members)
    assert [type(one) for one in new.values()] == [type(one) for one in old.values()]
    assert [partitions(type(one).decode(one.encode())) for one in new.values()] == [partitions(one) for one in new.values()]


CHANGES = st.lists(
    st.lists(st.tuples(st.sampled_from(["joins", "leaves", "topic"]), st.integers(1, 7)), min_size=1, max_size=4), max_size=8
)


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 7), min_size=1), CHANGES)
def test_whoever_comes_and_goes_every_topic_is_spread_evenly_and_a_settled_group_moves_nothing(
    topics: dict[str, int], steps: list[list[tuple[str, int]]]
) -> None:
    """Several may come and go at once, as where all bridges are restarted one after the other."""
    group = Group(Cluster(topics), {"first": set()})
    group.settle()
    for number, changes in enumerate(steps):
        for place, (change, which) in enumerate(changes):
            group.change(change, which, f"{which}-{number}-{place}")
        group.settle()
        for topic in topics:
            shares = [len(group.of(name, topic)) for name in group.owned]
            assert max(shares) - min(shares) <= 1
        totals = [len(owned) for owned in group.owned.values()]
        assert max(totals) - min(totals) <= 1
        group.settle()
        assert group.moved == 0


def test_kafka_pythons_own_gives_a_bridge_that_comes_whole_levels() -> None:
    """Why this exists."""
    everything = {TopicPartition(topic, number) for topic in LEVELS for number in range(6)}
    given = CooperativeStickyAssignor().assign(Cluster(LEVELS), [Member("one", LEVELS, everything), Member("two", LEVELS, set())])
    assert len({each.topic for each in partitions(given["one"])}) < len(LEVELS)
