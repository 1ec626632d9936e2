"""How every consumer of ours is made."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kafka import KafkaConsumer

from .fetched import PartitionRecords
from .spreading import Spreading
from .topics import Topics

if TYPE_CHECKING:
    from .fetched import Suspects
    from .link import Caught
    from .options import Kafka


_HEARTBEAT = 0.5
"""Seconds between heartbeats. By the answer a member hears that another one has come or gone; whoever has heard it stands still until all have."""


def consuming(options: Kafka, purpose: str) -> dict[str, Any]:
    """What every consumer is given. Raises as `Kafka.client` does."""
    return options.client(purpose) | {
        "bootstrap_timeout_ms": options.connection_timeout * 1000,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
        "partition_assignment_strategy": (Spreading(),),
        "fetch_max_bytes": 16 << 20,
        "max_partition_fetch_bytes": 1 << 20,
        "session_timeout_ms": int(options.session_timeout * 1000),
        "heartbeat_interval_ms": int(min(options.session_timeout / 4, _HEARTBEAT) * 1000),
        "metrics_enabled": False,
    }


def bootstrapped(configs: dict[str, Any], caught: Caught, options: Kafka, suspects: Suspects, suffix: str = "") -> tuple[Any, Topics]:
    """A consumer that has reached the cluster, and reads records as fetched.py does; and its topics (see Topics for `suffix`)."""
    consumer = KafkaConsumer(**configs, kafka_client=caught)
    consumer.bootstrap(timeout_ms=options.connection_timeout * 1000)  # where `api_version` is given it is still to be done
    topics = Topics(consumer, suffix, options.connection_timeout)
    consumer._fetcher.PartitionRecords = partial(PartitionRecords, topics.origin, suspects)  # noqa: SLF001 - see fetched.py
    return consumer, topics
