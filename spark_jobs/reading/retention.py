"""What a topic does not hold any more, or does not give yet: Kafka removes a partition's oldest records, and a reader is not told that anything was there.

A partition whose first offset is not 0 has lost its beginning. The topic *begins* a grace after the youngest first record of such partitions, as a ledger
does after its first event. If such a partition holds no record at all, everything that is gone is older than the topic keeps records (`retention.ms`); where
that is not known, or records are kept by size, everything may have been there until now. Compaction, which removes records between others, is not found by
this.

A reader of committed records reads no further than the first transaction that is open, whoever it belongs to: what was delivered behind it is there, and is
not seen. The topic *reaches* to when that transaction begins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from py4j.protocol import Py4JJavaError

from ..completeness.gaps import Gap, Seen
from .kafka_client import admin_of, consumer_of, kafka_of
from .marks import renamed
from .places import address_of, broker_of, is_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from ..question import Question

_ISOLATION = "kafka.isolation.level"
_ANY_TIME = 1 << 31
"""Epoch milliseconds of January 1970: what is less py4j hands on as an int, and Kafka asks for a long."""


def gaps(spark: SparkSession, places: Iterable[str], options: Mapping[str, str], question: Question) -> Iterator[Gap]:
    """For each topic among these places that has lost its beginning: the gap from the beginning of time until it begins. Raises Spark's errors."""
    for place in places:
        if is_topic(place):
            broker, (servers, name) = broker_of(place), address_of(place)
            if first := beginnings(spark, servers, name, options, question.now):
                until = min(max(first) + question.grace, question.as_of)
                yield Gap(broker, renamed(broker, name, question.aliases), None, until)


def beginnings(
    spark: SparkSession, servers: str, topic: str, options: Mapping[str, str], now: int, read: Mapping[int, int] = MappingProxyType({})
) -> list[int]:
    """When each partition begins that has lost records (epoch ms): what is gone is older.

    Lost are those between the offset up to which the partition was `read` and its first one; where it was not read, those from offset 0.
    """
    with consumer_of(spark, servers, topic, options) as (consumer, partitions):
        begin = consumer.beginningOffsets(partitions)
        records = consumer.offsetsForTimes({one: _ANY_TIME for one in partitions if begin[one] > read.get(one.partition(), 0)}).values()
        first = [None if record is None else record.timestamp() for record in records]
    empty = now - _kept(spark, servers, topic, options) if None in first else now
    return [empty if at is None else at for at in first]


def _kept(spark: SparkSession, servers: str, topic: str, options: Mapping[str, str]) -> int:
    """For how many milliseconds the topic keeps every record at least, as far as the cluster says so."""
    config = kafka_of(spark).common.config
    which = config.ConfigResource(config.ConfigResource.Type.TOPIC, topic)
    with admin_of(spark, servers, options) as admin:
        try:
            (told,) = admin.describeConfigs([which]).all().get().values()
        except Py4JJavaError:  # this user may not ask
            return 0
    by_time, by_size = (int(told.get(name).value()) for name in ("retention.ms", "retention.bytes"))
    return by_time if by_size < 0 <= by_time else 0


def id_of(spark: SparkSession, servers: str, topic: str, options: Mapping[str, str]) -> str:
    """The cluster's id of a topic, which another topic of its name does not have; empty where the cluster does not say, as before Kafka 2.8."""
    with admin_of(spark, servers, options) as admin:
        try:
            (told,) = admin.describeTopics([topic]).allTopicNames().get().values()
        except Py4JJavaError:  # it is not there, or this user may not ask
            return ""
    found = told.topicId()
    return "" if found.equals(kafka_of(spark).common.Uuid.ZERO_UUID) else str(found.toString())


@dataclass(frozen=True, slots=True)
class Ends:
    """The offset up to which each partition is read; and, of partitions in which something stands behind that, since when (epoch ms)."""

    offsets: dict[int, int]
    waiting: Mapping[int, int] = field(default_factory=dict)

    @property
    def open_ms(self) -> int | None:
        """The earliest of these instants."""
        return min(self.waiting.values(), default=None)


def ends(spark: SparkSession, servers: str, topic: str, options: Mapping[str, str]) -> Ends:
    """Up to where a topic is read now: in each partition up to the first transaction that is open, unless `options` say otherwise.

    In `open_ms` -1 stands for an instant that is not known.
    """
    with consumer_of(spark, servers, topic, {**options, _ISOLATION: "read_uncommitted"}) as (consumer, partitions):
        whole = consumer.endOffsets(partitions)  # first: what comes before the other question is behind no open transaction
        with consumer_of(spark, servers, topic, {_ISOLATION: "read_committed", **options}) as (reader, _):
            read = reader.endOffsets(partitions)
        waiting = {one.partition(): _earliest(spark, consumer, one, read[one]) for one in partitions if read[one] < whole[one]}
        return Ends({one.partition(): read[one] for one in partitions}, waiting)


def _earliest(spark: SparkSession, consumer: Any, partition: Any, offset: int) -> int:
    """The lowest time of some records from an offset on: one alone may bear any time that its producer gave it."""
    consumer.assign([partition])
    consumer.seek(partition, offset)
    found = consumer.poll(cast("Any", spark._jvm).java.time.Duration.ofSeconds(10))  # noqa: SLF001 - as below
    return min((record.timestamp() for record in found.records(partition)), default=-1)


def unfinished(spark: SparkSession, places: Iterable[str], options: Mapping[str, str], aliases: Mapping[str, str]) -> Iterator[Seen]:
    """Of each topic among these places in which a transaction is open, how far it is read now. Raises Spark's errors."""
    for place in places:
        if is_topic(place):
            broker, (servers, name) = broker_of(place), address_of(place)
            open_ms = ends(spark, servers, name, options).open_ms
            if open_ms is not None:
                yield Seen(None, broker, renamed(broker, name, aliases), open_ms)
