"""Short words for the store's sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delaybridge.core.ledger import CLOSING
from delaybridge.core.message import Message
from delaybridge.core.schedule import Recurrence, Schedule
from delaybridge.core.store import Due, Put, Record, Settled, Store
from delaybridge.core.targets import ANY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delaybridge.core.ledger import Kind
    from delaybridge.core.targets import Target

    OpenStore = Callable[[], Store]

only_an_index = pytest.mark.parametrize("open_store", ["time_index"], indirect=True)
"""For sentences about what needs an index: ids, lists, the shelf, tokens, counters of what waits, and settling one message of many durably."""

without_an_index = pytest.mark.parametrize("open_store", ["level_queues", "level_queues_rabbitmq", "level_queues_activemq"], indirect=True)
"""For what is refused where messages wait in queues of which nobody knows who waits in them. On Kafka the bridges know the ids."""

with_partitions = pytest.mark.parametrize("open_store", ["time_index", "level_queues"], indirect=True)
"""For sentences about partitions, with stores that ask `partition_of`."""

T0 = 1_763_700_000_000
MINUTE = 60_000
HOUR = 60 * MINUTE
LATER = 40
"""Milliseconds, for what a store on a real broker waits out: there they are longer, see levels_on_brokers.py."""


def record(
    body: str = "",
    due: int = T0,
    *,
    lane: str = "rabbit",
    address: str = "orders",
    chosen_id: str = "",
    every: int = 0,
    kind: Kind = "once",
    key: int | None = None,
) -> Record:
    """A record whose body tells it apart; `every` makes it repeat, and `key` chooses its partition."""
    recurrence = Recurrence(start=due, period=every, repeat=100) if every else None
    return Record(
        message=Message(body.encode(), key=None if key is None else b"%d" % key),
        schedule=Schedule(due=due, recurrence=recurrence),
        lane=lane,
        address=address,
        id=chosen_id,
        kind="period" if every else kind,
        route="orders",
        taken=T0,
    )


def give(store: Store, *records: Record, now: int = T0) -> None:
    store.put([Put(one) for one in records], now)


def partition_of(record: Record, total: int) -> int:
    """As in `by_target.PartitionOf`."""
    key = record.message.key
    return ANY if key is None else int(key) % total


def take(store: Store, now: int = T0, *, lane: str = "rabbit", limit: int = 1000, held: Target | None = None) -> list[Due]:
    return store.due(lane, now, limit, 1 << 30) if held is None else store.due_held(lane, held, now, limit, 1 << 30)


def delivered(store: Store, dues: Sequence[Due], now: int = T0) -> None:
    store.settle([Settled(due.key, "delivered", now, attempts=due.attempts + 1) for due in dues], now)


def bodies(dues: Sequence[Due]) -> list[str]:
    return [(due.record.message.body or b"").decode() for due in dues]


def adds_up(store: Store) -> bool:
    """scheduled = delivered + cancelled + replaced + expired + dead-lettered + pending"""
    counts = store.counts()
    return counts.events["scheduled"] == sum(counts.events[event] for event in CLOSING) + (counts.pending or 0)
