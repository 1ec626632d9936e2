"""What each topic that is watched still held when it was read.

A topic is read on from where the last round ended. Where a partition begins behind that, retention has removed what nobody has read: at the first start, after
the watch was off for long, or where Kafka keeps less than the watch begins with. Whether a delivery was among it is not known, so that none from before the
topic *begins* (see `retention`), and a grace and the skew after that, is called not observed.

Nor is anything judged that may have been delivered behind an open transaction, which is not read before that has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from .. import inputs, retention
from ..columns import UnusableInput
from ..marks import renamed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from ..retention import Ends
    from .arguments import Arguments


class Topic(msgspec.Struct, frozen=True):
    """Up to which offset each partition was read at least, from when on nothing is lacking (-1: from the beginning), and up to when, where that is not now."""

    read: dict[int, int]
    begins_ms: int = -1
    reaches_ms: int | None = None


Topics = dict[str, Topic]
"""By place, see `inputs.address_of`."""


def ends(spark: SparkSession, arguments: Arguments) -> dict[str, Ends]:
    """By place, where each topic ends. Raises Spark's errors."""
    return {place: retention.ends(spark, *inputs.address_of(place), arguments.kafka_options) for place in arguments.observed}


def read(spark: SparkSession, arguments: Arguments, before: Topics, until: Mapping[str, Ends], now: int) -> Topics:
    """What is known when all was read up to these `ends`, and `before` that. Raises UnusableInput for a topic that is shorter by now, and Spark's errors."""
    return {place: _read(spark, arguments, place, before.get(place, Topic({})), until[place], now) for place in arguments.observed}


def _read(spark: SparkSession, arguments: Arguments, place: str, before: Topic, until: Ends, now: int) -> Topic:
    servers, name = inputs.address_of(place)
    if any(until.offsets.get(partition, 0) < offset for partition, offset in before.read.items()):
        raise UnusableInput(f"topic {name} is shorter than what was read of it: if it was made anew, give another --checkpoint")
    first = retention.beginnings(spark, servers, name, arguments.kafka_options, now, before.read)
    begins = max(first) + arguments.grace + arguments.skew if first else -1
    return Topic(until.offsets, max(before.begins_ms, begins), until.open_ms)


def begins(topics: Topics, arguments: Arguments) -> list[tuple[str, str, int]]:
    """Broker and address, as the ledger writes it, of each topic that lacks something, and up to when."""
    return [(*destination(place, arguments), topic.begins_ms) for place, topic in topics.items() if topic.begins_ms >= 0]


def reaches(topics: Topics, arguments: Arguments) -> list[tuple[str, str, int]]:
    """The same of each topic in which a transaction is open: what was delivered by then stands before that."""
    margin = arguments.grace + arguments.skew
    return [(*destination(place, arguments), topic.reaches_ms - margin) for place, topic in topics.items() if topic.reaches_ms is not None]


def stuck(topics: Topics, arguments: Arguments, now: int) -> dict[str, int]:
    """By place, the topics in which a transaction is open for longer than a bridge may be silent, and up to when they are read."""
    found = {place: topic.reaches_ms for place, topic in topics.items() if topic.reaches_ms is not None}
    return {place: at for place, at in found.items() if now - at > arguments.silent}


def destination(place: str, arguments: Arguments) -> tuple[str, str]:
    """Broker and address, as the ledger writes it."""
    broker = inputs.broker_of(place)
    return broker, renamed(broker, inputs.address_of(place)[1], arguments.aliases)
