"""What a topic does not hold any more. A broker removes a partition's oldest records, and what Spark reads does not tell that anything was there.

A partition whose first offset is not 0 has lost its beginning. The topic *begins* a grace after the youngest first record of such partitions, as a ledger
does after its first event; where these hold no record at all, when the inputs are read. A topic in which compaction removes records between others is not
found by this.
"""

from __future__ import annotations

from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from .completeness import Gap
from .inputs import address_of, broker_of
from .marks import renamed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from .question import Question

_ANY_TIME = 1 << 31
"""Epoch milliseconds of January 1970: what is less py4j hands on as an int, and Kafka asks for a long."""


def gaps(spark: SparkSession, places: Iterable[str], options: Mapping[str, str], question: Question) -> Iterator[Gap]:
    """From the beginning of time until each topic among these places begins, where that is not with its first record. Raises Spark's errors."""
    for place in places:
        if place.startswith("kafka://"):
            broker, (servers, name) = broker_of(place), address_of(place)
            if first := first_records(spark, servers, name, options):
                there = [at for at in first if at is not None]
                until = max(there) + question.grace if there else question.as_of
                yield Gap(broker, renamed(broker, name, question.aliases), None, until)


def first_records(
    spark: SparkSession, servers: str, topic: str, options: Mapping[str, str], read: Mapping[int, int] = MappingProxyType({})
) -> list[int | None]:
    """The time, epoch milliseconds, of the first record of each partition that begins behind the offset up to which it was `read`; None where it holds none.

    What was not read must begin with offset 0.
    """
    with _consumer(spark, servers, topic, options) as (consumer, partitions):
        begin = consumer.beginningOffsets(partitions)
        found = consumer.offsetsForTimes({one: _ANY_TIME for one in partitions if begin[one] > read.get(one.partition(), 0)})
        return [None if record is None else record.timestamp() for record in found.values()]


def ends(spark: SparkSession, servers: str, topic: str, options: Mapping[str, str]) -> dict[int, int]:
    """The offset behind the last record of each partition, as far as Spark reads it: where `options` do not say otherwise, up to an open transaction."""
    with _consumer(spark, servers, topic, {"kafka.isolation.level": "read_committed", **options}) as (consumer, partitions):
        end = consumer.endOffsets(partitions)
        return {one.partition(): end[one] for one in partitions}


@contextmanager
def _consumer(spark: SparkSession, servers: str, topic: str, options: Mapping[str, str]) -> Iterator[tuple[Any, list[Any]]]:
    """One of Kafka's own, and the topic's partitions."""
    kafka = cast("Any", spark._jvm).org.apache.kafka  # noqa: SLF001 - the client that Spark's source brings along
    consumer = kafka.clients.consumer.KafkaConsumer(_settings(servers, options))
    try:
        yield consumer, [kafka.common.TopicPartition(topic, one.partition()) for one in consumer.partitionsFor(topic) or ()]
    finally:
        consumer.close()


def _settings(servers: str, options: Mapping[str, str]) -> dict[str, str]:
    """Those of a consumer, by the options of Spark's source."""
    bytes_ = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
    asked = {name.removeprefix("kafka."): value for name, value in options.items() if name.startswith("kafka.")}
    ours = {"bootstrap.servers": servers, "key.deserializer": bytes_, "value.deserializer": bytes_, "allow.auto.create.topics": "false"}
    return {**ours, **asked}
