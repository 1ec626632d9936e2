"""The counts by destination, from batch to batch. Plain values: there are as many as destinations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.ledger import CLOSING
from ..reconciling.verdict import instant
from . import occurrences, topics
from .occurrences import COUNTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from ..completeness.reach import Reach
    from .arguments import Arguments
    from .state import State

Counts = tuple[tuple[str, str, dict[str, int]], ...]
"""Broker, address, and how often what happened."""


def added(before: Counts, counted: DataFrame) -> Counts:
    """Together with what `occurrences.counted` tells of a batch."""
    sums = {(broker, address): dict(numbers) for broker, address, numbers in before}
    for row in counted.collect():
        numbers = sums.setdefault((row["destination_broker"], row["destination"]), dict.fromkeys(COUNTED, 0))
        for name in COUNTED:
            numbers[name] += row[name]
    return tuple((*place, sums[place]) for place in sorted(sums))


def told(state: State, reaches: Sequence[Reach], arguments: Arguments, now: int) -> dict[str, Any]:
    """What stands in `counts.json`."""
    holds = state.holds
    rows = occurrences.waiting(state.table("open"), now).collect()
    waiting = {(row["destination_broker"], row["destination"]): (row["pending"], row["ahead"]) for row in rows}
    return {
        "at": instant(now),
        "since": instant(holds.since),
        "malformed": holds.malformed,
        "silent": list(holds.silent),
        "bridges": [{"bridge": one.bridge, "reaches": instant(one.reaches_ms), "hole": one.hole} for one in reaches],
        "topics": [
            {**_place(*topics.destination(place, arguments)), "reaches": instant(now if topic.reaches_ms is None else topic.reaches_ms)}
            for place, topic in holds.topics.items()
        ],
        "destinations": [
            _destination(broker, address, numbers, *waiting.get((broker, address), (0, 0))) for broker, address, numbers in holds.counts
        ],
    }


def _destination(broker: str, address: str, numbers: dict[str, int], pending: int, ahead: int) -> dict[str, Any]:
    return {
        **_place(broker, address),
        "scheduled": numbers["scheduled"],
        "due": numbers["scheduled"] - numbers["closed_early"] - ahead,
        **{name: numbers[name] for name in (*CLOSING, "observed")},
        "pending": pending,
    }


def _place(broker: str, address: str) -> dict[str, Any]:
    return {"destination_broker": broker, "destination": address}
