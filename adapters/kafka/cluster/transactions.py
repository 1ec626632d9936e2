"""How transactions ended, and where one is open."""

from __future__ import annotations

import contextlib
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka import errors
from kafka.admin import ConfigResource

from .client import partitions_of, retried

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from kafka import TopicPartition

COMMITTED = ("PrepareCommit", "CompleteCommit")
"""The states of a transaction that is or will be committed."""
_UNTOLD = (
    errors.TransactionalIdNotFoundError, errors.TransactionalIdAuthorizationFailedError,
    errors.IncompatibleBrokerVersion, errors.UnsupportedVersionError,
)  # fmt: skip
_UNTOLD_OF = (*_UNTOLD, errors.TopicAuthorizationFailedError)
_IMPLICIT = 2
_LONGEST = "transaction.max.timeout.ms"
_LONGEST_BY_DEFAULT = "900000"


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


class Transactions:
    """The transactions of one cluster."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def last(self, transactional_id: str) -> Owner | None:
        """The state of a producer's last transaction; None where there was none, or the cluster does not tell (DESCRIBE on the id is needed)."""
        try:
            told = retried(lambda: self._client.describe_transactions([transactional_id]))[transactional_id]
        except _UNTOLD:
            return None
        return Owner(transactional_id, str(told.state.value), told.topic_partitions)

    def implicit(self) -> bool:
        """Whether writing to a partition adds it to the transaction, and each transaction has an epoch of its own (KIP-890)."""
        try:
            features = self._client.describe_features()
        except _UNTOLD:
            return False
        return bool(features.get("transaction.version", {}).get("finalized", (0, 0))[1] >= _IMPLICIT)

    def longest(self) -> int:
        """How long a transaction may take (ms): what a broker says, or Kafka's default where it does not (DESCRIBE_CONFIGS on the cluster is needed)."""
        broker = str(self._client.describe_cluster()["brokers"][0]["broker_id"])
        settings = self._client.describe_configs([ConfigResource("BROKER", broker)], config_filter="all")["broker"][broker]
        return int(settings[_LONGEST]["value"] if _LONGEST in settings else _LONGEST_BY_DEFAULT)

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
        told = retried(lambda: self._producers(partitions))
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
        there = partitions_of(self._client, {each.topic for each in partitions})
        leader = {each: there[each]["leader_id"] for each in partitions & there.keys()}
        told: dict[TopicPartition, Any] = {}
        for node, some in groupby(sorted(leader, key=leader.__getitem__), key=leader.__getitem__):
            told |= self._client.describe_producers(list(some), broker_id=node)
        return told

    def owners(self, producers: AbstractSet[int]) -> dict[int, Owner]:
        """Of these producers those whose transactional id the cluster knows and tells (DESCRIBE on it is needed)."""
        try:
            listed = retried(lambda: self._client.list_transactions(producer_id_filters=producers))
        except _UNTOLD:
            return {}
        found = ((each.producer_id, self.last(each.transactional_id)) for each in chain.from_iterable(listed.values()))
        return {producer: owner for producer, owner in found if owner is not None}
