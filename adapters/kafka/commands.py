"""Commands of Kafka's own tools, as an operator would paste them: what `plan` shows, and what `check` advises."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ..preparing import Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka import TopicPartition

    from .options import Kafka

_READS = "KAFKA_COMMAND_CONFIG"
"""The environment variable that names a file of Kafka's client properties, by which the commands log in and know the authority."""


def step(options: Kafka, what: str, command: str, *, done: bool = False) -> Step:
    """A step whose command is one of these."""
    return Step(what, command, done, _reads(options))


def _reads(options: Kafka) -> tuple[str, ...]:
    """The environment variables that the commands read. Without TLS and SASL there is nothing that a tool must be told; with them it hangs."""
    return (_READS,) if options.tls is not None or options.sasl else ()


def create(options: Kafka, topic: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> str:
    """Make a topic; -1 partitions or replicas: as many as the cluster gives by default."""
    shape = [("--partitions", partitions), ("--replication-factor", replicas)]
    given = [word for option, count in shape if count > 0 for word in (option, str(count))]
    return _topics(options, "--create", topic, *given, *(f"--config={key}={value}" for key, value in settings.items()))


def delete(options: Kafka, topic: str) -> str:
    """Delete a topic with all that is in it."""
    return _topics(options, "--delete", topic)


def add_partitions(options: Kafka, topic: str, wanted: int) -> str:
    """Give a topic `wanted` partitions in all."""
    return _topics(options, "--alter", topic, "--partitions", str(wanted))


def alter_settings(options: Kafka, topic: str, wanted: Mapping[str, str]) -> str:
    """Set these settings of a topic."""
    change = ",".join(f"{key}={value}" for key, value in wanted.items())
    entity = ("--entity-type", "topics", "--entity-name", topic)
    return _command("kafka-configs.sh", options, "--alter", *entity, "--add-config", change)


def abort(options: Kafka, partition: TopicPartition, start: int) -> str:
    """Abort the transaction whose first record in this partition has the offset `start`."""
    where = ("--topic", partition.topic, "--partition", str(partition.partition), "--start-offset", str(start))
    return _command("kafka-transactions.sh", options, "abort", *where)


def _topics(options: Kafka, verb: str, topic: str, *more: str) -> str:
    return _command("kafka-topics.sh", options, verb, "--topic", topic, *more)


def _command(tool: str, options: Kafka, *arguments: str) -> str:
    logged_in = "".join(f' --command-config "${name}"' for name in _reads(options))
    return shlex.join([tool, "--bootstrap-server", ",".join(options.bootstrap_servers)]) + f"{logged_in} {shlex.join(arguments)}"
