"""What each topic that is watched still held when it was read.

A topic is read on from where the last round ended. Where a partition begins behind that, retention has removed what nobody has read: at the first start, after
the watch was off for long, or where Kafka keeps less than the watch begins with. Whether a delivery was among it is not known, so that none from before the
topic *begins* (see `retention`), and a grace and the skew after that, is called not observed.

Nor is anything judged that may have been delivered behind an open transaction, which is not read before that has ended.

A topic that was made anew is another one, of which offsets that were read before say nothing: the cluster gives it another id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..columns import UnusableInput
from ..reading import retention
from ..reading.marks import renamed
from ..reading.places import address_of, broker_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from ..reading.retention import Ends
    from .arguments import Arguments


class Topic(msgspec.Struct, frozen=True):
    """One topic as it was read: up to which offset each partition was read at least; from when on nothing is lacking (-1: from the beginning), and up to when.

    `id` is the cluster's, empty where it told none. `standing`: for each partition in which a transaction is open, since when it is read no further.
    """

    read: dict[int, int]
    begins_ms: int = -1
    reaches_ms: int | None = None
    id: str = ""
    standing: dict[int, int] = {}


Topics = dict[str, Topic]
"""By place, see `places.address_of`."""


class FoundTopic(NamedTuple):
    """A topic as it is now."""

    ends: Ends
    id: str


def find(spark: SparkSession, arguments: Arguments, before: Topics) -> dict[str, FoundTopic]:
    """By place, what is to be read now. Raises UnusableInput for a topic that is not the one that was read `before`, and Spark's errors."""
    found = {}
    for place in arguments.observed:
        where = (*address_of(place), arguments.kafka_options)
        found[place] = FoundTopic(retention.ends(spark, *where), retention.id_of(spark, *where))
        require_same(place, before.get(place, Topic({})), found[place])
    return found


def require_same(place: str, before: Topic, found: FoundTopic) -> None:
    """Raises UnusableInput for a topic that was made anew since it was read."""
    _, name = address_of(place)
    if before.id and found.id and before.id != found.id:
        raise UnusableInput(f"topic {name} was made anew since it was read: give another --checkpoint")
    if any(found.ends.offsets.get(partition, 0) < offset for partition, offset in before.read.items()):
        raise UnusableInput(f"topic {name} is shorter than what was read of it: if it was made anew, give another --checkpoint")


def read(spark: SparkSession, arguments: Arguments, before: Topics, found: Mapping[str, FoundTopic], now: int) -> Topics:
    """What is known once all was read that was `found`, and `before` that. Raises Spark's errors."""
    return {place: _read(spark, arguments, place, before.get(place, Topic({})), found[place], now) for place in arguments.observed}


def _read(spark: SparkSession, arguments: Arguments, place: str, before: Topic, found: FoundTopic, now: int) -> Topic:
    first = retention.beginnings(spark, *address_of(place), arguments.kafka_options, now, before.read)
    begins = min(max(first), now) + arguments.grace + arguments.skew if first else -1  # a producer's clock may be ahead
    ends = found.ends
    standing = {one: before.standing.get(one, now) if before.read.get(one) == ends.offsets[one] else now for one in ends.waiting}
    return Topic(ends.offsets, max(before.begins_ms, begins), ends.open_ms, found.id or before.id, standing)


def begins(topics: Topics, arguments: Arguments) -> list[tuple[str, str, int]]:
    """Broker and address, as the ledger writes it, of each topic that lacks something, and up to when."""
    return [(*destination(place, arguments), topic.begins_ms) for place, topic in topics.items() if topic.begins_ms >= 0]


def reaches(topics: Topics, arguments: Arguments) -> list[tuple[str, str, int]]:
    """The same of each topic in which a transaction is open: what was delivered by then stands before that."""
    margin = arguments.grace + arguments.skew
    return [(*destination(place, arguments), topic.reaches_ms - margin) for place, topic in topics.items() if topic.reaches_ms is not None]


def stuck(topics: Topics, arguments: Arguments, now: int) -> dict[str, int]:
    """By place, the topics that an open transaction keeps from being read for longer than a bridge may be silent, and up to when they are read.

    Its records may bear any time, as those of a mirror do: what counts is for how long it has been seen to stand there.
    """
    since = {place: min(topic.standing.values()) for place, topic in topics.items() if topic.standing}
    return {place: topics[place].reaches_ms or 0 for place, at in since.items() if now - at > arguments.silent}


def destination(place: str, arguments: Arguments) -> tuple[str, str]:
    """Broker and address, as the ledger writes it."""
    broker = broker_of(place)
    return broker, renamed(broker, address_of(place)[1], arguments.aliases)
