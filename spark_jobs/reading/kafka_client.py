"""Kafka's own client, which Spark's source brings along: for what the source does not tell."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from py4j.protocol import Py4JJavaError

from ..columns import UnusableInput
from ..session import cause
from .places import address_of, is_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import SparkSession

_UNKNOWN = "UnknownTopicOrPartitionException"


@contextmanager
def consumer_of(spark: SparkSession, servers: str, topic: str, options: Mapping[str, str]) -> Iterator[tuple[Any, list[Any]]]:
    """A consumer, and the topic's partitions. Raises UnusableInput where Kafka tells of none."""
    kafka = kafka_of(spark)
    with _closing(kafka.clients.consumer.KafkaConsumer(_reading(servers, options))) as consumer:
        found = _partitions(consumer, servers, topic)
        yield consumer, [kafka.common.TopicPartition(topic, one.partition()) for one in found]


def require_there(spark: SparkSession, places: Iterable[str], options: Mapping[str, str]) -> None:
    """Raises UnusableInput where one of the topics among these places cannot be read: Spark's source tells that without its name."""
    for place in places:
        if is_topic(place):
            with consumer_of(spark, *address_of(place), options):
                pass


def require_writable(spark: SparkSession, place: str, options: Mapping[str, str]) -> None:
    """Raises UnusableInput where a producer finds no such topic. As for any producer, a cluster may make one that is not there."""
    servers, topic = address_of(place)
    settings = _settings(servers, "serializer", options)
    with _closing(kafka_of(spark).clients.producer.KafkaProducer(settings)) as producer:
        _partitions(producer, servers, topic)


@contextmanager
def admin_of(spark: SparkSession, servers: str, options: Mapping[str, str]) -> Iterator[Any]:
    """A client that asks about topics."""
    with _closing(kafka_of(spark).clients.admin.Admin.create(_reading(servers, options))) as admin:
        yield admin


def kafka_of(spark: SparkSession) -> Any:
    """The package of Kafka's classes."""
    return cast("Any", spark._jvm).org.apache.kafka  # noqa: SLF001 - the way to them that there is


@contextmanager
def _closing(client: Any) -> Iterator[Any]:
    try:
        yield client
    finally:
        client.close()


def _partitions(client: Any, servers: str, topic: str) -> Any:
    """Those of a topic. A consumer that knows of none says so, a producer waits, then raises."""
    try:
        if found := client.partitionsFor(topic):
            return found
    except Py4JJavaError as error:
        if _UNKNOWN not in cause(error):
            raise UnusableInput(f"topic {topic} at {servers}: {cause(error)}") from error
    raise UnusableInput(f"there is no topic {topic} at {servers}")


def _reading(servers: str, options: Mapping[str, str]) -> dict[str, str]:
    return {"allow.auto.create.topics": "false", **_settings(servers, "deserializer", options)}


def _settings(servers: str, translator: str, options: Mapping[str, str]) -> dict[str, str]:
    """Those of a client, by the options of Spark's source, which come last."""
    bytes_ = f"org.apache.kafka.common.serialization.ByteArray{translator.capitalize()}"
    asked = {name.removeprefix("kafka."): value for name, value in options.items() if name.startswith("kafka.")}
    return {"bootstrap.servers": servers, f"key.{translator}": bytes_, f"value.{translator}": bytes_, **asked}
