"""Several observers of one destination at the same time, as where one begins before the other ends: each has a row of its own for what arrived once.

Nothing in a message tells such rows from the rows of a message that was sent twice. But an observer sees twice what arrives twice. So the first rows of all
observers for an occurrence are one arrival, their second rows another one, and so on; an arrival that one observer missed is still there.

This holds only while they listened together. Where one saw an occurrence before the other began, and that one saw it after the first had ended, it arrived
twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ..buckets import OCCURRENCE_AT
from ..completeness.gaps import Seen

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, DataFrame

_FILE = r"/observed-([^/]*)-\d+\.parquet$"
"""How the files of an observer are named."""


@dataclass(frozen=True, slots=True)
class Listener(Seen):
    """An observer's mark. `latest_ms`: when it saw the last message that is in its files, -1 if none is. `copies`: other observers see the same messages."""

    latest_ms: int = -1
    copies: bool = True


@dataclass(frozen=True, slots=True)
class Overlap:
    """From when to when more than one observer may have seen what arrived at a destination; epoch milliseconds, both included."""

    broker: str
    address: str
    since_ms: int
    until_ms: int


def overlaps(listeners: Iterable[Listener], grace: int) -> list[Overlap]:
    """When observers overlapped, and `grace` around that: clocks differ, and an observer may be behind.

    Observers that take messages away share them, and none sees what another one does.
    """
    places: dict[tuple[str, str], list[Listener]] = {}
    for one in listeners:
        if one.copies:
            places.setdefault((one.broker, one.address), []).append(one)
    return [Overlap(*place, since, until) for place, those in sorted(places.items()) for since, until in _together(those, grace)]


def _together(listeners: Iterable[Listener], grace: int) -> list[tuple[int, int]]:
    """The same of one destination. Overlaps that are nearer to each other than the grace on both sides are one."""
    found: list[tuple[int, int]] = []
    latest = -1
    for one in sorted(listeners, key=lambda one: one.since_ms):
        end = max(one.at_ms, one.latest_ms)
        if one.since_ms < latest:
            since, until = one.since_ms - grace, min(end, latest) + grace
            if found and since <= found[-1][1]:
                since, until = found[-1][0], max(until, found.pop()[1])
            found.append((since, until))
        latest = max(latest, end)
    return found


def seen_once(arrivals: DataFrame, found: Sequence[Overlap]) -> DataFrame:
    """The arrivals (with their `place`), each once, however many observers saw it: the earliest row is kept. What has no id is left alone."""
    told = arrivals.withColumn("overlap", F.when(F.col("id").isNotNull(), _during(found)))
    apart = told.where("overlap is null").select(*arrivals.columns)
    # Spread by less than the two windows ask for, so that they need no other spreading.
    shared = told.where("overlap is not null").repartition(*OCCURRENCE_AT).withColumn("observer", F.regexp_extract("place", _FILE, 1))
    of_observer = Window.partitionBy(*OCCURRENCE_AT, "overlap", "observer").orderBy("event_time", "place")
    of_all = Window.partitionBy(*OCCURRENCE_AT, "overlap", "nth").orderBy("event_time", "place")
    counted = shared.withColumn("nth", F.row_number().over(of_observer)).withColumn("again", F.row_number().over(of_all))
    return apart.unionByName(counted.where("again = 1").select(*arrivals.columns))


def _during(found: Iterable[Overlap]) -> Column:
    """When the overlap began in which a row was seen; null where it was in none."""
    return F.coalesce(*(_begin(one) for one in found))


def _begin(one: Overlap) -> Column:
    here = (F.col("destination_broker") == one.broker) & (F.col("destination") == one.address)
    since, until = (F.timestamp_millis(F.lit(instant)) for instant in (one.since_ms, one.until_ms))
    return F.when(here & F.col("event_time").between(since, until), F.lit(one.since_ms))
