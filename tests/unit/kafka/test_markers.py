"""Which end a partition is owed where a broker has forgotten to write one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kafka import TopicPartition
from unit.kafka.cluster import asked_by

from delaybridge.adapters.base import NotConnected
from delaybridge.adapters.kafka import Kafka
from delaybridge.adapters.kafka.cluster import OFFSETS, Open, Owner
from delaybridge.adapters.kafka.transactions import markers
from delaybridge.adapters.kafka.transactions.markers import AGAIN, Markers
from delaybridge.adapters.kafka.transactions.state import Aborted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

LEVEL, OTHER, OUT, FAR = (TopicPartition(topic, 0) for topic in ("level", "other", "out", "far"))
COMMITTED, ABORTED = True, False
GROUP = TopicPartition(OFFSETS, 0)


class Cluster:
    """Where transactions are open, and which partitions have no leader."""

    def __init__(self) -> None:
        self.transactions = self
        self.state: str | None = "CompleteCommit"
        self.busy: dict[str, set[TopicPartition]] = {}
        self.looks = 0
        self.open: set[TopicPartition] = set()
        self.leaderless: set[TopicPartition] = set()
        self.few: set[TopicPartition] = set()
        self.hidden: set[TopicPartition] = set()

    def last(self, name: str) -> Owner | None:
        if name in self.busy:
            return Owner(name, "PrepareAbort", self.busy[name])
        return Owner(name, self.state, frozenset()) if self.state else None

    def implicit(self) -> bool:
        return False

    def names(self) -> set[str]:
        return {LEVEL.topic, OTHER.topic, FAR.topic}

    def open_in(self, partitions: AbstractSet[TopicPartition]) -> tuple[set[Open], set[str]]:
        return {Open(each, Producer.producer_id, 0, 0) for each in self.open & partitions}, set()

    def led(self, topics: AbstractSet[str], used: AbstractSet[TopicPartition]) -> tuple[set[TopicPartition], set[TopicPartition]]:
        self.looks, self.asked_of = self.looks + 1, set(used)
        asked = ({LEVEL, OTHER, *used} | {each for each in (FAR, GROUP) if each.topic in topics}) - self.hidden
        return asked - self.leaderless, asked & self.leaderless

    def short(self, topics: AbstractSet[str], _: AbstractSet[TopicPartition]) -> set[TopicPartition]:
        return {each for each in self.few if each.topic in topics}

    def unfinished(self, partitions: AbstractSet[TopicPartition], _: int) -> set[TopicPartition]:
        return self.open & partitions


class Producer:
    """Remembers which empty transactions it was to end, and how."""

    producer_id = 7

    def __init__(self, cluster: Cluster, known: Markers) -> None:
        self.ends: list[tuple[set[TopicPartition], bool]] = []
        self.fails = False
        self._cluster = cluster
        self._known = known

    def end_again(self, partitions: AbstractSet[TopicPartition], *, committed: bool) -> None:
        if self.fails:
            raise NotConnected("it did not end in time")
        self.ends.append((set(partitions), committed))
        self._cluster.open -= partitions
        self._known.ended(committed)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    asked_by(monkeypatch, markers, made)
    return made


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def made(clock: Clock, name: str = "name", busy: Sequence[Markers] = ()) -> Markers:
    return Markers(Kafka(bootstrap_servers="127.0.0.1:1"), name, ["level", "other"], busy, clock)


@pytest.fixture
def known(cluster: Cluster, clock: Clock) -> Markers:  # noqa: ARG001 - it is asked by these
    return made(clock)


@pytest.fixture
def producer(cluster: Cluster, known: Markers) -> Producer:
    return Producer(cluster, known)


@pytest.fixture
def second(cluster: Cluster, known: Markers, clock: Clock) -> Markers:
    """In the place of the first id, which one partition keeps busy."""
    cluster.busy = {"name": {OUT}}
    markers = made(clock, "second", [known])
    markers.recall()
    return markers


@pytest.fixture
def stand_in(cluster: Cluster, second: Markers) -> Producer:
    return Producer(cluster, second)


@pytest.mark.parametrize(
    ("state", "end"),
    [
        ("CompleteCommit", COMMITTED),
        ("PrepareCommit", COMMITTED),
        ("CompleteAbort", ABORTED),
        ("PrepareAbort", ABORTED),
        ("Ongoing", ABORTED),
        ("PrepareEpochFence", ABORTED),
        ("Empty", COMMITTED),
    ],
)
def test_what_the_predecessor_left_open_ends_as_its_last_transaction_did(
    cluster: Cluster, known: Markers, producer: Producer, state: str, end: bool
) -> None:
    cluster.state, cluster.open = state, {LEVEL}
    known.recall()
    known.ensure_ended(producer)
    assert producer.ends == [({LEVEL}, end)]


def test_what_is_left_open_later_ends_as_the_last_transaction_did_by_then(cluster: Cluster, known: Markers, producer: Producer) -> None:
    known.recall()
    known.ensure_ended(producer)
    known.ended(ABORTED)
    cluster.open = {LEVEL}
    known.doubt()
    known.ensure_ended(producer)
    assert producer.ends == [({LEVEL}, ABORTED)]
    assert not known.committed


def test_where_nothing_is_open_nothing_is_ended_and_nobody_asks_twice(cluster: Cluster, known: Markers, producer: Producer) -> None:
    known.recall()
    known.ensure_ended(producer)
    cluster.open = {LEVEL}
    known.ensure_ended(producer)
    assert producer.ends == []
    known.doubt()
    known.ensure_ended(producer)
    assert producer.ends == [({LEVEL}, COMMITTED)]


def test_of_a_topic_that_is_gone_nothing_is_kept(cluster: Cluster, known: Markers, producer: Producer) -> None:
    known.recall()
    known.ensure_ended(producer, {OUT})
    known.epochs.update({LEVEL: 1, OUT: 3})
    cluster.hidden = {OUT}
    for _ in range(2):
        known.doubt()
        known.ensure_ended(producer)
    assert (cluster.asked_of, known.epochs) == ({LEVEL, OTHER}, {LEVEL: 1})


@pytest.mark.parametrize(("state", "end"), [("CompleteCommit", COMMITTED), ("CompleteAbort", ABORTED)])
def test_where_the_offsets_cannot_be_seen_they_are_ended_again_whenever_that_is_in_doubt(
    cluster: Cluster, known: Markers, producer: Producer, state: str, end: bool
) -> None:
    cluster.state, cluster.hidden = state, {GROUP}
    known.recall()
    known.ensure_ended(producer)
    known.ensure_ended(producer)
    assert producer.ends == [(set(), end)]
    known.doubt()
    known.ensure_ended(producer)
    assert producer.ends == [(set(), end)] * 2


def test_while_a_partition_has_no_leader_the_cluster_is_asked_now_and_then_only(
    cluster: Cluster, known: Markers, producer: Producer, clock: Clock
) -> None:
    cluster.leaderless = {LEVEL}
    known.recall()
    for _ in range(10):
        known.ensure_ended(producer, {OTHER})
    assert (cluster.looks, known.waiting) == (1, {LEVEL})
    known.doubt()
    known.ensure_ended(producer, {OTHER})
    assert cluster.looks == 2
    cluster.leaderless = set()
    clock.now += AGAIN
    known.ensure_ended(producer, {LEVEL})
    assert (cluster.looks, known.waiting) == (3, set())


def test_a_partition_without_a_leader_is_owed_the_end_of_then_whatever_ends_meanwhile(
    cluster: Cluster, known: Markers, producer: Producer, clock: Clock
) -> None:
    cluster.state, cluster.open, cluster.leaderless = "CompleteAbort", {LEVEL}, {LEVEL}
    known.recall()
    known.ensure_ended(producer)
    with pytest.raises(Aborted, match="no leader"):
        known.ensure_ended(producer, {LEVEL})
    known.ensure_ended(producer, {OTHER})
    known.ended(COMMITTED)
    cluster.leaderless = set()
    clock.now += AGAIN
    known.ensure_ended(producer)
    assert producer.ends[-1] == ({LEVEL}, ABORTED)
    assert not known.waiting


def test_an_end_that_was_not_certain_is_made_again_as_it_was_whatever_became_of_that_try(
    cluster: Cluster, known: Markers, producer: Producer
) -> None:
    cluster.open = {LEVEL}
    known.recall()
    producer.fails = True
    with pytest.raises(NotConnected):
        known.ensure_ended(producer)
    producer.fails, cluster.state = False, "Ongoing"
    known.recall()
    known.ensure_ended(producer)
    assert producer.ends == [({LEVEL}, COMMITTED)]


def test_where_it_writes_for_the_first_time_the_end_is_the_predecessors(cluster: Cluster, known: Markers, producer: Producer) -> None:
    cluster.state = "CompleteAbort"
    known.recall()
    known.ensure_ended(producer, {OTHER})
    known.ended(COMMITTED)
    known.ensure_ended(producer, {OTHER, OUT})
    assert producer.ends == [({OUT}, ABORTED)]


def test_a_producer_without_a_past_ends_nothing(cluster: Cluster, known: Markers, producer: Producer) -> None:
    cluster.state = None
    known.recall()
    known.ensure_ended(producer, {OUT})
    assert producer.ends == []


def test_of_a_successor_that_came_and_went_what_was_known_stands(cluster: Cluster, known: Markers, producer: Producer) -> None:
    cluster.state = "Ongoing"
    known.recall()
    cluster.state, cluster.open = "Empty", {LEVEL}
    known.recall()
    known.ensure_ended(producer)
    assert producer.ends == [({LEVEL}, ABORTED)]


def test_an_id_whose_last_end_is_still_being_written_is_busy_where_it_is_not(cluster: Cluster, known: Markers) -> None:
    assert not known.recall()
    cluster.busy = {"name": {OUT}}
    assert known.recall() == {OUT}


def test_one_in_the_place_of_busy_ones_keeps_off_their_partitions_until_all_have_ended(
    cluster: Cluster, known: Markers, clock: Clock
) -> None:
    second = made(clock, "second", [known])
    third = made(clock, "third", [known, second])
    producer, cluster.state, cluster.busy = Producer(cluster, third), None, {"name": {OUT}, "second": {OTHER}}
    third.recall()
    third.ensure_ended(producer, {LEVEL})
    for partition in (OUT, OTHER):
        with pytest.raises(Aborted, match=r"min\.insync\.replicas"):
            third.ensure_ended(producer, {LEVEL, partition})
    del cluster.busy["name"]
    clock.now += AGAIN
    third.ensure_ended(producer, {LEVEL, OUT})
    assert not third.over
    cluster.busy.clear()
    clock.now += AGAIN
    with pytest.raises(NotConnected, match="name have ended"):
        third.ensure_ended(producer)
    assert third.over


def test_one_in_the_place_of_busy_ones_writes_to_nothing_that_would_make_it_busy_too(
    cluster: Cluster, second: Markers, stand_in: Producer
) -> None:
    cluster.few = {OUT, OTHER}
    second.ensure_ended(stand_in)
    with pytest.raises(Aborted, match=r"min\.insync\.replicas"):
        second.ensure_ended(stand_in, {OTHER})
    assert second.waiting == {OUT, OTHER}
    second.ensure_ended(stand_in, {LEVEL})


def test_it_goes_all_the_same_when_the_busy_ones_have_ended(cluster: Cluster, second: Markers, stand_in: Producer, clock: Clock) -> None:
    """They see to what is forgotten of theirs, and the bridge's own may find out anew."""
    cluster.few = {OTHER}
    with pytest.raises(Aborted):
        second.ensure_ended(stand_in, {OTHER})
    cluster.busy.clear()
    clock.now += AGAIN
    with pytest.raises(NotConnected, match="name have ended"):
        second.ensure_ended(stand_in)


def test_it_stays_while_a_partition_is_owed_an_end_of_its_own(cluster: Cluster, second: Markers, stand_in: Producer, clock: Clock) -> None:
    cluster.leaderless = {LEVEL}
    second.ensure_ended(stand_in)
    cluster.busy.clear()
    clock.now += AGAIN
    second.ensure_ended(stand_in)
    cluster.leaderless.clear()
    clock.now += AGAIN
    with pytest.raises(NotConnected, match="name have ended"):
        second.ensure_ended(stand_in)


def test_a_topic_that_stays_short_of_replicas_has_no_others_looked_at(
    cluster: Cluster, second: Markers, stand_in: Producer, clock: Clock
) -> None:
    """That takes a request for each topic."""
    for _ in range(3):
        second.ensure_ended(stand_in)
        clock.now += AGAIN
    assert cluster.looks == 1


def test_before_an_id_is_given_back_all_topics_are_looked_at_once_for_what_only_its_predecessor_wrote_to(
    cluster: Cluster, known: Markers, producer: Producer, clock: Clock
) -> None:
    cluster.state = "CompleteAbort"
    known.recall()
    known.ensure_ended(producer)
    known.ended(COMMITTED)
    cluster.open, producer.ends = {FAR}, []
    clock.now += AGAIN
    assert known.settled(producer)
    assert producer.ends == [({FAR}, ABORTED)]
    looks = cluster.looks
    clock.now += AGAIN
    assert known.settled(producer)
    assert cluster.looks == looks
    known.ensure_ended(producer, {OUT})
    assert producer.ends == [({FAR}, ABORTED)], "it is known by then that nothing is open there"


def test_an_id_under_which_something_may_be_owed_is_not_given_back(
    cluster: Cluster, known: Markers, producer: Producer, clock: Clock
) -> None:
    known.recall()
    cluster.leaderless = {LEVEL}
    known.ensure_ended(producer)
    assert not known.settled(producer), "the end that it is owed can be written under this id only"
    cluster.leaderless = set()
    clock.now += AGAIN
    known.ensure_ended(producer)
    cluster.leaderless = {FAR}
    clock.now += AGAIN
    assert not known.settled(producer), "nobody can tell what is open there"
    cluster.leaderless = set()
    assert not known.settled(producer), "which is asked again later"
    clock.now += AGAIN
    assert known.settled(producer)
    cluster.leaderless = {LEVEL}
    known.doubt()
    known.ensure_ended(producer)
    clock.now += AGAIN
    assert not known.settled(producer), "it is owed one anew"


def test_what_is_open_where_this_producer_wrote_is_ended_before_its_id_is_given_back(
    cluster: Cluster, known: Markers, producer: Producer, clock: Clock
) -> None:
    known.recall()
    known.ensure_ended(producer, {OUT})
    cluster.open, producer.ends = {OUT}, []
    clock.now += AGAIN
    assert not known.settled(producer)
    assert known.doubtful
    known.ensure_ended(producer)
    assert producer.ends == [({OUT}, COMMITTED)]
    clock.now += AGAIN
    assert known.settled(producer)
