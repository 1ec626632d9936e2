"""A record whose time is too far away for Spark, as nanoseconds that were taken for milliseconds: its source fails before anybody sees the row.

Spark counts microseconds in 64 bits. Its error names neither the topic nor the record; Kafka's index by time does.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from ..columns import UnusableInput
from .kafka_client import consumer_of
from .places import address_of, is_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import SparkSession

_OVERFLOW = "ArithmeticException: long overflow"
_TOO_FAR = (2**63 - 1) // 1000 + 1
"""Epoch milliseconds of which Spark can make no timestamp."""


@contextmanager
def named(spark: SparkSession, places: Iterable[str], options: Mapping[str, str]) -> Iterator[None]:
    """Where a job fails over such records of topics among these places, UnusableInput names the first of each partition, and says what helps."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if _OVERFLOW not in str(error) or not (found := [each for place in places for each in _found(spark, place, options)]):
            raise
        raise UnusableInput(
            f"Spark cannot read records whose time is that far away: {'; '.join(found)}. "
            "To audit the topic, remove them with kafka-delete-records, which removes all before them, too; or audit what an observer wrote. "
            "The topic's message.timestamp.after.max.ms keeps others from coming"
        ) from error


def _found(spark: SparkSession, place: str, options: Mapping[str, str]) -> Iterator[str]:
    if not is_topic(place):
        return
    servers, topic = address_of(place)
    with consumer_of(spark, servers, topic, options) as (consumer, partitions):
        first = consumer.offsetsForTimes(dict.fromkeys(partitions, _TOO_FAR))
        for one in partitions:
            if (record := first[one]) is not None:
                yield f"topic {topic}, partition {one.partition()}, offset {record.offset()} ({record.timestamp()} ms)"
