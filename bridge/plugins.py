"""Broker adapters, found by the entry-point group `delaybridge.adapters` and imported only when a broker of their type is in use."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from ..adapters.base import Addressing, Directing, Partitioned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..adapters.base import Adapter, Traits
    from ..core.by_target import PartitionOf
    from ..core.store import Record

GROUP = "delaybridge.adapters"


class UnusableAdapter(Exception):
    """There is no adapter of this type, or its client library is not installed. The text says what to do."""


@cache
def _found() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def types() -> list[str]:
    """The broker types that are installed, in alphabetical order."""
    return sorted(_found())


@cache
def adapter(kind: str) -> Adapter:
    """The adapter for a broker's `type`. Raises UnusableAdapter."""
    point = _found().get(kind)
    if point is None:
        raise UnusableAdapter(f"there is no broker type {kind!r}; the known ones are: {', '.join(types())}")
    try:
        loaded: Adapter = point.load()
    except ImportError as error:
        raise UnusableAdapter(f"broker type {kind!r} needs {error.name}: pip install '.[{kind}]' in a clone of delaybridge") from error
    return loaded


def traits(kind: str) -> Traits:
    """What is peculiar to brokers of a type. Raises UnusableAdapter."""
    return adapter(kind).traits


def check_address(kind: str, address: str) -> None:
    """See base.Addressing; nothing where an adapter cannot tell. Raises Rejected, and UnusableAdapter."""
    found = adapter(kind)
    if isinstance(found, Addressing):
        found.check_address(address)


def undirected(kind: str, options: Any, endpoint: Any) -> str | None:
    """See base.Directing; None also of an adapter that cannot tell. Raises UnusableAdapter."""
    found = adapter(kind)
    return found.undirected(options, endpoint) if isinstance(found, Directing) else None


def partition_of(kinds: Mapping[str, str]) -> PartitionOf:
    """The number of a record's partition, where the adapter of its lane can tell it. `kinds` has the type of each lane's broker. Raises UnusableAdapter."""
    telling = {lane: found for lane, kind in kinds.items() if isinstance(found := adapter(kind), Partitioned)}

    def number(record: Record, total: int) -> int | None:
        there = telling.get(record.lane)
        return there.partition(record.message, total) if there else None

    return number
