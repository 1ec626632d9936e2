"""Administration of a Kafka cluster. Each call blocks until it is answered."""

from __future__ import annotations

import contextlib
from operator import not_
from typing import TYPE_CHECKING, Any

from kafka import errors
from kafka.admin import AlterConfigOp, ConfigResource
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from ...base import AdapterError
from ..link import Caught, translated
from .client import PATIENCE, Client, partitions_of
from .groups import Groups
from .topic import Topic, described
from .transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from kafka import TopicPartition

    from ..options import Kafka

OFFSETS = "__consumer_offsets"
_LEAST = "min.insync.replicas"
_DONE = "OK"
"""What kafka-python says of a setting that was changed; else why it was not, which it does not raise."""


class Cluster:
    """Its topics, its `groups` and its `transactions`. All methods raise AdapterError where the cluster refuses, NotConnected where nobody answers."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.groups = Groups(client)
        self.transactions = Transactions(client)

    @property
    def version(self) -> tuple[int, ...]:
        """Kafka's version, as far as its requests tell."""
        return tuple(self._client._manager.broker_version)  # noqa: SLF001 - nothing public says it

    def names(self) -> set[str]:
        """The names of all topics but Kafka's own."""
        return {each["name"] for each in self._client.describe_topics() if not each.get("is_internal")}

    def hidden(self, names: Collection[str]) -> set[str]:
        """Those of these of which the cluster does not say whether they exist."""
        return _hidden(self._client.describe_topics(sorted(names))) if names else set()

    def topics(self, names: Collection[str], *, settings: bool = True) -> dict[str, Topic]:
        """Those of these that exist. The settings of each cost the broker a millisecond, for which other requests wait.

        Raises AdapterError where the cluster does not say whether one exists: it is not to be taken for one that does not.
        """
        told = self._client.describe_topics(sorted(names))
        if hidden := ", ".join(sorted(_hidden(told))):
            raise AdapterError(f"whether there is a topic {hidden} may not be seen: grant DESCRIBE on it")
        found = {each["name"]: each for each in told if each["partitions"]}
        if not found or not settings:
            return {name: described(each, {}) for name, each in found.items()}
        settings_of = self._settings(found)
        return {name: described(each, settings_of[name]) for name, each in found.items()}

    def _settings(self, names: Iterable[str]) -> Mapping[str, Mapping[str, Any]]:
        """Of topics that exist; empty where they may not be read."""
        found: Mapping[str, Mapping[str, Mapping[str, Any]]] = self._client.describe_configs(
            [ConfigResource("TOPIC", name) for name in names], config_filter="all"
        )
        return found["topic"]

    def create(self, name: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> None:
        """Create a topic and wait until the cluster knows it; -1 partitions or replicas: as many as it gives by default.

        One that somebody else has made meanwhile is left as it is, as a bridge that starts at the same moment makes the same levels.
        """
        wanted = {name: {"num_partitions": partitions, "replication_factor": replicas, "configs": settings}}
        told = self._client.create_topics(wanted, raise_errors=False)["topics"]
        _require(told, f"topic {name} was not created", errors.TopicAlreadyExistsError)
        self._client.wait_for_topics([name], timeout_ms=int(PATIENCE * 1000))

    def delete(self, name: str) -> None:
        """Delete a topic with all its records, and wait until the cluster has forgotten it."""
        _require(self._client.delete_topics([name], raise_errors=False)["topics"], f"topic {name} was not deleted")
        self._wait(lambda: not self.topics([name], settings=False), f"topic {name} to be deleted")

    def alter(self, name: str, key: str, value: str | None) -> None:
        """Change a topic's setting, or take it back to what holds for all; returns when it can be seen."""
        operation = AlterConfigOp.DELETE if value is None else AlterConfigOp.SET
        told = self._client.alter_configs([ConfigResource("TOPIC", name, {key: (operation, value)})])["topic"][name]
        if told != _DONE:
            raise AdapterError(f"{key} of topic {name} was not changed: {told}")
        self._wait(lambda: self.topics([name])[name].own.get(key) == value, f"{key} of topic {name} to change")

    def led(self, topics: AbstractSet[str], partitions: AbstractSet[TopicPartition]) -> tuple[set[TopicPartition], set[TopicPartition]]:
        """Of all partitions of these topics and of `partitions`, those that have a leader, and those that have none."""
        there = partitions_of(self._client, topics | {each.topic for each in partitions})
        asked = {each for each in there if each.topic in topics} | (partitions & there.keys())
        led = {each for each in asked if there[each]["leader_id"] >= 0}
        return led, asked - led

    def short(self, topics: AbstractSet[str], known: AbstractSet[TopicPartition]) -> set[TopicPartition]:
        """The partitions of these topics that have fewer replicas in sync than `min.insync.replicas`.

        Where that setting may not be read (DESCRIBE_CONFIGS), those that have no more replicas in sync than one that is `known` to have too few.
        """
        there = partitions_of(self._client, topics)
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

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        try:
            Retrying(retry=retry_if_result(not_), stop=stop_after_delay(PATIENCE), wait=wait_fixed(0.05))(condition)
        except RetryError:
            raise AdapterError(f"waited {PATIENCE:.0f} s for {what}") from None


def _hidden(told: Iterable[Mapping[str, Any]]) -> set[str]:
    return {each["name"] for each in told if each["error_code"] == errors.TopicAuthorizationFailedError.errno}


def _require(told: Iterable[Mapping[str, Any]], what: str, *well: type[Exception]) -> None:
    """Raises AdapterError where the cluster has refused, in its words. What passes is raised as what it is, and so becomes NotConnected.

    kafka-python would raise the whole request and the whole answer.
    """
    for each in told:
        kind = errors.for_code(each["error_code"])
        if kind in (errors.NoError, *well):
            continue
        said = each["error_message"] or ""
        if kind.retriable:
            raise kind(said)
        raise AdapterError(f"{what}: {kind.__name__}: {said}".removesuffix(": "))


@contextlib.contextmanager
def opened(options: Kafka) -> Iterator[Cluster]:
    """A connection for the length of the `with` block."""
    caught = Caught()
    try:
        with caught.opening():
            client = Client(**options.waiting_client("doctor"), kafka_client=caught)
        with translated():
            yield Cluster(client)
    finally:
        caught.close()
