"""How all our consumers are made."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from kafka import KafkaConsumer, errors

from .fetched import PartitionRecords
from .membership import found
from .spreading import Spreading
from .topics import Topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..link import Caught
    from ..options import Kafka
    from .fetched import Suspects

log = structlog.get_logger()

_HEARTBEAT = 0.5
"""Seconds between heartbeats. A member hears by the answer that another one has come or gone, and stands still from then on until all have heard it."""

_TELLS_ENDS = (2, 3)
"""Kafka's first version that tells any consumer where an epoch ends: before, it takes the right to do what brokers do."""


def consuming(options: Kafka, purpose: str) -> dict[str, Any]:
    """What every consumer is given. Raises as `Kafka.client` does."""
    return options.waiting_client(purpose) | {
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
    """A consumer that has reached the cluster, and its group's coordinator, and reads records as fetched.py does; and its topics (see Topics for `suffix`)."""
    consumer = KafkaConsumer(**configs, kafka_client=caught)
    consumer.bootstrap(timeout_ms=options.connection_timeout * 1000)  # where `api_version` is given it is still to be done
    topics = Topics(consumer, suffix, options.connection_timeout)
    consumer._fetcher.PartitionRecords = partial(PartitionRecords, topics.origin, suspects)  # noqa: SLF001 - see fetched.py
    subscription = consumer._subscription  # noqa: SLF001 - kafka-python says it in its own log only, as no warning
    subscription.request_offset_reset = partial(_told, subscription, subscription.request_offset_reset)
    coordinator = consumer._coordinator  # noqa: SLF001 - nothing public paces it, or puts a consumer where its group is
    coordinator._send_group_coordinator_request = _paced(coordinator)  # noqa: SLF001
    coordinator.time_to_next_poll = _unhurried
    if consumer.config["api_version"] >= _TELLS_ENDS:
        coordinator.refresh_committed_offsets_if_needed_async = partial(_go_on, coordinator, subscription)
    if consumer.config["group_id"] is not None:
        found(consumer, options.connection_timeout)
    return consumer, topics


def _paced(coordinator: Any) -> Callable[[], Any]:
    """Ask who the coordinator is no more often than kafka-python tries other things again.

    While the cluster names a node that cannot be reached, as for some seconds after one has died, it would ask again with each answer.
    """
    ask, pause = coordinator._send_group_coordinator_request, coordinator.config["retry_backoff_ms"] / 1000  # noqa: SLF001 - see bootstrapped
    asked = -pause

    async def paced() -> Any:
        nonlocal asked
        if (wait := asked + pause - time.monotonic()) > 0:
            await coordinator._manager._net.sleep(wait)  # noqa: SLF001 - as kafka-python does
        asked = time.monotonic()
        return await ask()

    return paced


def _unhurried() -> float:
    """For how long a poll may wait, besides its own limit: by kafka-python, until a heartbeat is due. But its own thread sends them, whoever polls.

    While no broker answers, one is overdue, and a poll would look again without any wait, thousands of times a second. Each look leaves something behind at
    the fetch that is on its way: 10 MB a second, which is not given back.
    """
    return math.inf


async def _go_on(coordinator: Any, subscription: Any, timeout_ms: float | None = None) -> bool:
    """Put partitions where their group is, as kafka-python does, but with the epoch that was committed.

    Then the leader is asked where that epoch ends in its log. If that is earlier, as after an unclean election, others have the offsets of what was read
    there, and are read from there on.
    """
    try:
        committed = await coordinator.fetch_committed_offsets_async(set(subscription.missing_fetch_positions()), timeout_ms=timeout_ms)
    except errors.KafkaTimeoutError:
        return False
    for partition, position in committed.items():
        subscription.seek(partition, position)
    return True


def _told(subscription: Any, reset: Callable[..., None], partition: Any, to: Any = None) -> None:
    """Called by kafka-python to reset a position: without a place where the next record to read is gone, which is logged; with one where we asked for it."""
    if to is None:
        position = subscription.assignment[partition].position
        log.warning(
            "records_gone",
            topic=partition.topic,
            partition=partition.partition,
            offset=None if position is None else position.offset,
            action="the bridge reads on from the first record that is there; what Kafka has dropped before it is lost",
        )
    reset(partition, to)
