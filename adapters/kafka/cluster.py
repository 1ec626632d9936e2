"""Administration of a Kafka cluster: topics and their settings, how far a group is, where a transaction is open.

Each call blocks until it is answered.
"""

from __future__ import annotations

import contextlib
from functools import partial
from itertools import chain, groupby
from operator import attrgetter, not_
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka import KafkaAdminClient, TopicPartition, errors
from kafka.admin import AlterConfigOp, ConfigResource, OffsetSpec
from kafka.protocol.consumer import OffsetForLeaderEpochRequest
from tenacity import RetryError, Retrying, retry_if_exception, retry_if_result, stop_after_delay, wait_fixed

from ..base import AdapterError
from .level_queues.finished import finished_behind
from .link import Caught, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from kafka import OffsetAndMetadata

    from .options import Kafka

_Epoch = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition
OFFSETS = "__consumer_offsets"
COMMITTED = ("PrepareCommit", "CompleteCommit")
"""The states of a transaction that is or will be committed."""
_OWN = "DYNAMIC_TOPIC_CONFIG"
_UNTOLD = (
    errors.TransactionalIdNotFoundError, errors.TransactionalIdAuthorizationFailedError,
    errors.IncompatibleBrokerVersion, errors.UnsupportedVersionError,
)  # fmt: skip
_UNTOLD_OF = (*_UNTOLD, errors.TopicAuthorizationFailedError)
_PATIENCE = 20.0  # seconds, until a change must be visible
_DELETING = 5000  # ms, for which followers that lag are waited for: the leader has deleted by then
_DENIED = errors.TopicAuthorizationFailedError.__name__
_IMPLICIT = 2
_LEAST = "min.insync.replicas"
_LONGEST = "transaction.max.timeout.ms"
_LONGEST_BY_DEFAULT = "900000"


class Topic(NamedTuple):
    """`settings` holds all, `own` those that were set for this topic; both are empty where they may not be read, or were not asked for."""

    name: str
    partitions: int
    replicas: int
    settings: Mapping[str, str]
    own: Mapping[str, str]


class _Place(NamedTuple):
    """One partition's offsets. `committed` is negative where nothing is; where levels are read, `finished` records after it are finished."""

    begin: int
    committed: int
    finished: int
    end: int

    @property
    def waiting(self) -> int:
        """What is not finished."""
        return max(0, self.end - max(self.begin, self.committed) - (self.finished if self.begin <= self.committed else 0))


class Open(NamedTuple):
    """A transaction that is open in a partition: a reader of committed records gets nothing from offset `start` on. `last`: the time of its last record."""

    partition: TopicPartition
    producer_id: int
    start: int
    last: int


class Owner(NamedTuple):
    """Which producer an open transaction belongs to: the state of the producer's last transaction, in Kafka's words, and where that is still open."""

    transactional_id: str
    state: str
    partitions: AbstractSet[TopicPartition]


class _Admin(KafkaAdminClient):  # type: ignore[misc]  # kafka-python has no types
    """Also asks for `stable` offsets (KIP-447), which kafka-python's asks for nowhere."""

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


class Cluster:
    """One administration client. Its methods raise AdapterError where the cluster refuses, NotConnected where nobody answers."""

    def __init__(self, admin: Any) -> None:
        self._admin = admin

    @property
    def version(self) -> tuple[int, ...]:
        """Kafka's version, as far as its requests tell."""
        return tuple(self._admin._manager.broker_version)  # noqa: SLF001 - nothing public says it

    def names(self) -> set[str]:
        """The names of all topics but Kafka's own."""
        return {each["name"] for each in self._admin.describe_topics() if not each.get("is_internal")}

    def topics(self, names: Collection[str], *, settings: bool = True) -> dict[str, Topic]:
        """Those of these that exist. The settings of each cost the broker a millisecond, for which other requests wait."""
        found = {each["name"]: each["partitions"] for each in self._admin.describe_topics(sorted(names)) if each["partitions"]}
        if not found or not settings:
            return {name: _topic(name, partitions, {}) for name, partitions in found.items()}
        described = self._settings(found)
        return {name: _topic(name, partitions, described[name]) for name, partitions in found.items()}

    def _settings(self, names: Iterable[str]) -> Mapping[str, Mapping[str, Any]]:
        """Of topics that exist; empty where they may not be read."""
        found: Mapping[str, Mapping[str, Mapping[str, Any]]] = self._admin.describe_configs(
            [ConfigResource("TOPIC", name) for name in names], config_filter="all"
        )
        return found["topic"]

    def _partitions(self, names: Iterable[str]) -> dict[TopicPartition, Mapping[str, Any]]:
        """All partitions of these topics, as the cluster describes each."""
        topics = self._admin.describe_topics(sorted(names))
        return {TopicPartition(topic["name"], each["partition_index"]): each for topic in topics for each in topic["partitions"]}

    def create(self, name: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> None:
        """Create a topic and wait until the cluster knows it; -1 partitions or replicas: as many as it gives by default."""
        self._admin.create_topics({name: {"num_partitions": partitions, "replication_factor": replicas, "configs": settings}})
        self._admin.wait_for_topics([name], timeout_ms=int(_PATIENCE * 1000))

    def delete(self, name: str) -> None:
        """Delete a topic with all its records, and wait until the cluster has forgotten it."""
        self._admin.delete_topics([name])
        self._wait(lambda: not self.topics([name], settings=False), f"topic {name} to be deleted")

    def alter(self, name: str, key: str, value: str | None) -> None:
        """Change a topic's setting, or take it back to what holds for all; returns when it can be seen."""
        operation = AlterConfigOp.DELETE if value is None else AlterConfigOp.SET
        self._admin.alter_configs([ConfigResource("TOPIC", name, {key: (operation, value)})])
        self._wait(lambda: self.topics([name])[name].own.get(key) == value, f"{key} of topic {name} to change")

    def members(self, group: str) -> int:
        """How many consumers a group has at this moment."""
        return len(_retried(lambda: self._admin.describe_groups([group]))[group].get("members") or ())

    def waiting(self, group: str, topic: Topic) -> int:
        """How many records of a topic the group has not finished; a marker of a transaction counts as one."""
        return sum(each.waiting for each in self._places(group, [topic]).values())

    def trim(self, group: str, topics: Collection[Topic]) -> bool:
        """Delete what a group has done with: all below what it has committed. False where that is not allowed.

        A partition of which nothing is committed, or more than it has, is left alone.
        """
        places = self._places(group, topics)
        done = {partition: each.committed for partition, each in places.items() if each.begin < each.committed <= each.end}
        try:
            if done:
                self._admin.delete_records(done, timeout_ms=_DELETING)
        except errors.KafkaError as error:
            if _DENIED not in f"{type(error).__name__}: {error}":  # of several errors kafka-python tells only the names
                raise
            return False
        return True

    def _places(self, group: str, topics: Collection[Topic]) -> dict[TopicPartition, _Place]:
        partitions = [TopicPartition(topic.name, number) for topic in topics for number in range(topic.partitions)]
        if not partitions:
            return {}
        committed = self.positions(group, partitions)
        begins, ends = (
            self._admin.list_partition_offsets(dict.fromkeys(partitions, spec)) for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
        )
        earlier = {
            each: position.leader_epoch
            for each, position in committed.items()
            if 0 <= position.leader_epoch < (ends[each].leader_epoch or 0)
        }
        # Where the log has lost its end, what comes after that is new, also where more is committed.
        intact = _retried(lambda: self._admin.ends(earlier))
        found: dict[TopicPartition, _Place] = {}
        for each in partitions:
            end = ends[each].offset
            offset, text = (committed[each].offset, committed[each].metadata or "") if each in committed else (-1, "")
            finished = finished_behind(text, intact.get(each, end) - offset)
            found[each] = _Place(begins[each].offset, min(offset, intact.get(each, offset)), finished, end)
        return found

    def positions(
        self, group: str, partitions: Collection[TopicPartition], *, stable: bool = False
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """What a group has committed in these partitions, where it has committed anything, with the text beside each offset.

        `stable`: a transaction that has committed further offsets, and whose end is not written yet, is waited for: some seconds, then KafkaError.
        """
        self._admin.stable = stable
        found: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]] = _retried(
            lambda: self._admin.list_group_offsets({group: list(partitions)})
        )
        return found[group]

    def transaction(self, transactional_id: str) -> Owner | None:
        """The state of a producer's last transaction; None where there was none, or the cluster does not tell (DESCRIBE on the id is needed)."""
        try:
            told = _retried(lambda: self._admin.describe_transactions([transactional_id]))[transactional_id]
        except _UNTOLD:
            return None
        return Owner(transactional_id, str(told.state.value), told.topic_partitions)

    def implicit(self) -> bool:
        """Whether writing to a partition adds it to the transaction, and each transaction has an epoch of its own (KIP-890)."""
        try:
            features = self._admin.describe_features()
        except _UNTOLD:
            return False
        return bool(features.get("transaction.version", {}).get("finalized", (0, 0))[1] >= _IMPLICIT)

    def led(self, topics: AbstractSet[str], partitions: AbstractSet[TopicPartition]) -> tuple[set[TopicPartition], set[TopicPartition]]:
        """Of all partitions of these topics and of `partitions`, those that have a leader, and those that have none."""
        there = self._partitions(topics | {each.topic for each in partitions})
        asked = {each for each in there if each.topic in topics} | (partitions & there.keys())
        led = {each for each in asked if there[each]["leader_id"] >= 0}
        return led, asked - led

    def short(self, topics: AbstractSet[str], known: AbstractSet[TopicPartition]) -> set[TopicPartition]:
        """The partitions of these topics that have fewer replicas in sync than `min.insync.replicas`.

        Where that setting may not be read (DESCRIBE_CONFIGS), those that have no more replicas in sync than one that is `known` to have too few.
        """
        there = self._partitions(topics)
        settings = self._settings({each.topic for each in there}) if there else {}
        least = {name: int(each[_LEAST]["value"]) if _LEAST in each else 0 for name, each in settings.items()}
        for partition in known & there.keys():
            if not settings[partition.topic]:
                least[partition.topic] = max(least[partition.topic], len(there[partition]["isr_nodes"]) + 1)
        return {
            partition
            for partition, each in there.items()
            if len(each["isr_nodes"]) < min(len(each["replica_nodes"]), least[partition.topic])
        }

    def unfinished(self, partitions: AbstractSet[TopicPartition], producer_id: int) -> set[TopicPartition]:
        """Those of these partitions in which a transaction of this producer is open, and all those of topics of which the cluster does not tell."""
        found, untold = self.open_in(partitions)
        theirs = {each.partition for each in found if each.producer_id == producer_id}
        return theirs | {each for each in partitions if each.topic in untold}

    def open_in(self, partitions: AbstractSet[TopicPartition]) -> tuple[set[Open], set[str]]:
        """What is open in these, and the topics of which the cluster does not tell (READ on the topic is needed).

        All are asked of at once, each leader one after the other, while whatever is to be moved waits; each alone only where one is not told of.
        """
        found: set[Open] = set()
        untold: set[str] = set()
        with contextlib.suppress(*_UNTOLD_OF):
            return self._open(partitions), untold
        for topic, some in groupby(sorted(partitions), key=attrgetter("topic")):
            try:
                found |= self._open(set(some))
            except _UNTOLD_OF:
                untold.add(topic)
        return found, untold

    def _open(self, partitions: AbstractSet[TopicPartition]) -> set[Open]:
        told = _retried(lambda: self._producers(partitions))
        return {
            Open(partition, each.producer_id, each.current_transaction_start_offset, each.last_timestamp)
            for partition, state in told.items()
            for each in state.active_producers
            if each.current_transaction_start_offset >= 0
        }

    def _producers(self, partitions: AbstractSet[TopicPartition]) -> dict[TopicPartition, Any]:
        """Of those that the cluster has: for one whose topic was deleted a moment ago it would refuse to tell of any, at each try.

        kafka-python is told the leaders, or it would ask for them once more.
        """
        there = self._partitions({each.topic for each in partitions})
        leader = {each: there[each]["leader_id"] for each in partitions & there.keys()}
        told: dict[TopicPartition, Any] = {}
        for node, some in groupby(sorted(leader, key=leader.__getitem__), key=leader.__getitem__):
            told |= self._admin.describe_producers(list(some), broker_id=node)
        return told

    def owners(self, producers: AbstractSet[int]) -> dict[int, Owner]:
        """Of these producers those whose transactional id the cluster knows and tells (DESCRIBE on it is needed)."""
        try:
            listed = _retried(lambda: self._admin.list_transactions(producer_id_filters=producers))
        except _UNTOLD:
            return {}
        found = ((each.producer_id, self.transaction(each.transactional_id)) for each in chain.from_iterable(listed.values()))
        return {producer: owner for producer, owner in found if owner is not None}

    def longest_transaction(self) -> int:
        """How long a transaction may take (ms): what a broker says, or Kafka's default where it does not (DESCRIBE_CONFIGS on the cluster is needed)."""
        broker = str(self._admin.describe_cluster()["brokers"][0]["broker_id"])
        settings = self._admin.describe_configs([ConfigResource("BROKER", broker)], config_filter="all")["broker"][broker]
        return int(settings[_LONGEST]["value"] if _LONGEST in settings else _LONGEST_BY_DEFAULT)

    def readers(self, topic: str) -> set[str]:
        """The groups that have read from a topic."""
        groups = [each["group_id"] for each in self._admin.list_groups()]
        return {
            group
            for group in groups
            if any(each.topic == topic for each in _retried(partial(self._admin.list_group_offsets, group))[group])
        }

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        try:
            Retrying(retry=retry_if_result(not_), stop=stop_after_delay(_PATIENCE), wait=wait_fixed(0.05))(condition)
        except RetryError:
            raise AdapterError(f"waited {_PATIENCE:.0f} s for {what}") from None


@contextlib.contextmanager
def opened(options: Kafka) -> Iterator[Cluster]:
    """A connection for the length of the `with` block."""
    caught = Caught()
    try:
        with caught.opening():
            admin = _Admin(**options.waiting_client("doctor"), kafka_client=caught)
        with translated():
            yield Cluster(admin)
    finally:
        caught.close()


def _retried(ask: Callable[[], Any]) -> Any:
    """Ask again while the error is one that passes: a young cluster has no coordinators yet, and makes them when it is asked for one."""
    return Retrying(retry=retry_if_exception(_passes), stop=stop_after_delay(_PATIENCE), wait=wait_fixed(0.1), reraise=True)(ask)


def _passes(error: BaseException) -> bool:
    return isinstance(error, errors.KafkaError) and bool(error.retriable)


def _topic(name: str, partitions: Iterable[Mapping[str, Any]], settings: Mapping[str, Any]) -> Topic:
    replicas = [len(each["replica_nodes"]) for each in partitions]
    own = {key: each["value"] for key, each in settings.items() if each["config_source"] == _OWN}
    return Topic(name, len(replicas), min(replicas), {key: each["value"] for key, each in settings.items()}, own)
