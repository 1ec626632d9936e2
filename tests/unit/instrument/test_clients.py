"""The three clients, unmodified, against librdkafka's mock cluster: real sockets, real protocol."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka import Producer, SerializingProducer

import delaybridge

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings("ignore:delaybridge.instrument.. came too late")  # for what another test has left

LATE: list[tuple[str, Any]] = [("a", b"1"), ("x-delay", b"5000")]
UNPATCHED = (confluent_kafka.Producer,)  # in a container: a name of this module would be made to mean the patched one
QUIET = {"log_level": 0}


class Own(Producer):
    """What an application may have declared before anything was instrumented."""

    def produce(self, topic: str, *args: Any, **kwargs: Any) -> None:
        super().produce(topic, *args, **kwargs)


class Record(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]] | None


class Cluster:
    """A mock cluster of one broker, and what arrived there."""

    def __init__(self) -> None:
        self._owner = confluent_kafka.Producer({"test.mock.num.brokers": 1, **QUIET})
        brokers = self._owner.list_topics(timeout=5).brokers.values()
        self.url = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def configuration(self, **more: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self.url, **QUIET, **more}

    def records(self, count: int) -> list[Record]:
        """The first so many records of all topics, ordered by topic."""
        consumer = confluent_kafka.Consumer(self.configuration(**{"group.id": "test", "auto.offset.reset": "earliest"}))
        try:
            topics = [name for name in consumer.list_topics(timeout=5).topics if not name.startswith("__")]
            partitions = [confluent_kafka.TopicPartition(name, number, 0) for name in topics for number in range(4)]
            consumer.assign(partitions)
            got: list[Any] = []
            while len(got) < count:
                more = consumer.consume(count, timeout=10)
                assert more, f"only {len(got)} of {count} records came"
                got += more
            return sorted((Record(one.topic(), one.key(), one.value(), one.headers()) for one in got), key=lambda record: record[:3])
        finally:
            consumer.close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    delaybridge.instrument()
    yield Cluster()
    delaybridge.uninstrument()


def test_kafka_python_diverts_what_is_delayed(cluster: Cluster) -> None:
    with kafka.KafkaProducer(bootstrap_servers=cluster.url, api_version=(2, 3)) as producer:
        at_once = producer.send("orders", b"now", b"k", headers=[("a", b"1")]).get(30)
        later = producer.send("orders", value=b"later", key=b"k", headers=LATE, partition=2).get(30)
        assert producer.send("orders", b"last", b"k", LATE).get(30).topic == "orders.delayed"
    assert (at_once.topic, later.topic, later.partition) == ("orders", "orders.delayed", 2)
    assert cluster.records(3) == [
        Record("orders", b"k", b"now", [("a", b"1")]),
        Record("orders.delayed", b"k", b"last", LATE),
        Record("orders.delayed", b"k", b"later", LATE),
    ]


def test_kafka_python_that_was_made_before_diverts_as_well(cluster: Cluster) -> None:
    delaybridge.uninstrument()
    with kafka.KafkaProducer(bootstrap_servers=cluster.url, api_version=(2, 3)) as producer:
        assert producer.send("orders", b"v", headers=LATE).get(30).topic == "orders"
        delaybridge.instrument()
        assert producer.send("orders", b"v", headers=LATE).get(30).topic == "orders.delayed"
        delaybridge.uninstrument()
        assert producer.send("orders", b"v", headers=LATE).get(30).topic == "orders"


def test_a_serializer_of_kafka_python_is_told_the_topic_that_was_meant(cluster: Cluster) -> None:
    class Registry(kafka.Serializer):  # type: ignore[misc]  # an untyped module
        def serialize(self, topic: str, headers: Any, value: str) -> bytes:  # noqa: ARG002
            return f"{topic}: {value}".encode()

    with kafka.KafkaProducer(bootstrap_servers=cluster.url, api_version=(2, 3), value_serializer=Registry()) as producer:
        assert producer.send("orders", "v", headers=LATE).get(30).topic == "orders.delayed"
    assert [record.value for record in cluster.records(1)] == [b"orders: v"]


def test_a_message_that_a_serializer_of_kafka_python_sends_is_its_own(cluster: Cluster) -> None:
    class Audited(kafka.Serializer):  # type: ignore[misc]  # an untyped module
        def serialize(self, topic: str, headers: Any, value: str) -> bytes:  # noqa: ARG002
            if topic != "audit":
                producer.send("audit", "seen").get(30)
            return f"{topic}: {value}".encode()

    with kafka.KafkaProducer(bootstrap_servers=cluster.url, api_version=(2, 3), value_serializer=Audited()) as producer:
        producer.send("orders", "v", headers=LATE).get(30)
    assert [record.value for record in cluster.records(2)] == [b"audit: seen", b"orders: v"]


def test_the_topic_in_an_answer_is_plain_text_which_every_encoder_takes(cluster: Cluster) -> None:
    async def run() -> list[Any]:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.url) as other:
            batch = other.create_batch()
            batch.append(timestamp=None, key=b"k", value=b"v", headers=LATE)
            batched = await (await other.send_batch(batch, "orders", partition=1))
            return [
                await other.send_and_wait("orders", b"v", headers=LATE),
                batched,
                await other.send_and_wait(topic="orders", value=b"v", headers=LATE),
            ]

    with kafka.KafkaProducer(bootstrap_servers=cluster.url, api_version=(2, 3)) as producer:
        answers = [producer.send("orders", b"v", headers=LATE).get(30), producer.send(topic="orders", value=b"v", headers=LATE).get(10)]
    answers += asyncio.run(run())
    assert [(type(one.topic), one.topic) for one in answers] == [(str, "orders.delayed")] * 5


def test_kafka_python_says_itself_that_a_partition_is_missing(cluster: Cluster) -> None:
    with kafka.KafkaProducer(bootstrap_servers=cluster.url, api_version=(2, 3)) as producer:
        producer.send("orders.delayed", b"v").get(30)
        with pytest.raises((ValueError, AssertionError), match=r"[Pp]artition"):
            producer.send("orders", b"v", headers=LATE, partition=99)


@pytest.mark.parametrize("kind", [Producer, Own], ids=["Producer", "a class of the application"])
def test_confluent_kafka_diverts_what_is_delayed(cluster: Cluster, kind: Any) -> None:
    kind = confluent_kafka.Producer if kind in UNPATCHED else kind
    reports: list[tuple[Any, str]] = []
    producer = kind(cluster.configuration())
    producer.produce("orders", b"now", b"k", headers={"a": "1"})
    producer.produce(
        "orders", value=b"later", key=b"k", headers=dict(LATE), on_delivery=lambda error, one: reports.append((error, one.topic()))
    )
    producer.produce("orders", b"last", b"k", 2, None, None, 0, LATE)
    assert producer.flush(10) == 0
    assert reports == [(None, "orders.delayed")]
    assert cluster.records(3) == [
        Record("orders", b"k", b"now", [("a", b"1")]),
        Record("orders.delayed", b"k", b"last", LATE),
        Record("orders.delayed", b"k", b"later", LATE),
    ]


def test_a_name_that_a_module_imported_before_means_the_patched_producer(cluster: Cluster) -> None:
    assert Producer is confluent_kafka.Producer is confluent_kafka.cimpl.Producer
    assert issubclass(Producer, UNPATCHED[0])
    assert isinstance(Producer(cluster.configuration()), UNPATCHED[0])
    assert (Producer.__name__, Producer.__module__) == (UNPATCHED[0].__name__, UNPATCHED[0].__module__)
    delaybridge.uninstrument()
    assert Producer is UNPATCHED[0]


def test_a_serializer_of_confluent_kafka_is_told_the_topic_that_was_meant(cluster: Cluster) -> None:
    producer = SerializingProducer(
        cluster.configuration(**{"value.serializer": lambda value, context: f"{context.topic}: {value}".encode()})
    )
    producer.produce("orders", value="now", key=b"k")
    producer.produce("orders", value="later", key=b"k", headers=LATE)
    assert producer.flush(10) == 0
    assert [(one.topic, one.value) for one in cluster.records(2)] == [("orders", b"orders: now"), ("orders.delayed", b"orders: later")]


def test_producers_of_confluent_kafka_go_on_undiverted_when_it_is_taken_back(cluster: Cluster) -> None:
    producer = confluent_kafka.Producer(cluster.configuration())
    delaybridge.uninstrument()
    producer.produce("orders", b"v", headers=LATE)
    assert producer.flush(10) == 0
    assert [one.topic for one in cluster.records(1)] == ["orders"]


def test_producers_of_confluent_kafka_that_were_made_before_are_told_of(cluster: Cluster) -> None:
    delaybridge.uninstrument()
    early = UNPATCHED[0](cluster.configuration())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", RuntimeWarning)
        delaybridge.instrument()
    assert [(re.sub("[0-9]+", "#", str(one.message)), one.filename) for one in told] == [
        (
            "delaybridge.instrument() came too late for # of confluent-kafka's producers, which divert nothing: call it before they are made",
            __file__,
        )
    ]
    early.produce("orders", b"v", headers=LATE)
    assert early.flush(10) == 0
    assert [one.topic for one in cluster.records(1)] == ["orders"]


def test_no_producers_are_looked_for_where_confluent_kafka_is_imported_only_now() -> None:
    """All objects of the process are looked through: a start of an application need not wait for that."""
    script = (
        "import gc, delaybridge; delaybridge.instrument(); gc.get_objects = None; import confluent_kafka;"
        "print(confluent_kafka.Producer.produce.__module__)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == "delaybridge.adapters.instrument.divert\n"


@pytest.mark.parametrize("headers", [LATE, dict(LATE)], ids=["pairs", "mapping"])
def test_a_batch_of_confluent_kafka_whose_delay_would_be_dropped_is_refused(cluster: Cluster, headers: Any) -> None:
    producer = confluent_kafka.Producer(cluster.configuration())
    messages = [{"value": b"now"}, {"value": b"later", "headers": headers}]
    with pytest.raises(ValueError, match="use produce"):
        producer.produce_batch("orders", messages)
    with pytest.raises(ValueError, match="use produce"):
        producer.produce_batch(topic="orders", messages=messages)
    assert producer.produce_batch("orders", [{"value": b"now", "headers": {"a": "1"}}], partition=2) == 1
    with pytest.raises(TypeError):
        producer.produce_batch("orders", "no messages")  # type: ignore[arg-type]
    delaybridge.uninstrument()
    assert producer.produce_batch("orders", messages) == 2
    assert producer.flush(10) == 0
    assert [one.topic for one in cluster.records(3)] == ["orders"] * 3


def test_the_asyncio_producer_of_confluent_kafka_sends_through_the_patched_one(cluster: Cluster) -> None:
    """It takes no headers yet; when it does, they go through `produce` as well."""
    aio = pytest.importorskip("confluent_kafka.aio")

    async def run() -> None:
        producer = aio.AIOProducer(cluster.configuration(), batch_size=1)
        assert type(producer._producer) is confluent_kafka.Producer is not UNPATCHED[0]
        sent = await producer.produce("orders", b"now")
        await producer.flush()
        assert (await sent).topic() == "orders"
        with pytest.raises(NotImplementedError, match=r"[Hh]eaders"):
            await producer.produce("orders", b"later", headers=LATE)
        await producer.close()

    asyncio.run(run())


def test_aiokafka_diverts_what_is_delayed(cluster: Cluster) -> None:
    async def run() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.url) as producer:
            at_once = await producer.send_and_wait("orders", b"now", key=b"k", headers=[("a", b"1")])
            later = await producer.send_and_wait("orders", b"later", key=b"k", headers=LATE, partition=2)
            last = await (await producer.send("orders", b"last", b"k", None, None, LATE))
            assert (at_once.topic, later.topic, later.partition, last.topic) == ("orders", "orders.delayed", 2, "orders.delayed")

    asyncio.run(run())
    assert cluster.records(3) == [
        Record("orders", b"k", b"now", [("a", b"1")]),
        Record("orders.delayed", b"k", b"last", LATE),
        Record("orders.delayed", b"k", b"later", LATE),
    ]


async def batch_sent(cluster: Cluster, *headers: list[tuple[str, bytes]]) -> str:
    """The topic to which a batch of such records went."""
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.url) as producer:
        batch = producer.create_batch()
        for each in headers:
            batch.append(timestamp=None, key=b"k", value=b"v", headers=each)
        try:
            topic: str = (await (await producer.send_batch(batch, "orders", partition=1))).topic
        finally:
            batch.close()
        return topic


def test_a_batch_of_aiokafka_goes_where_its_records_ask_to_go(cluster: Cluster) -> None:
    assert asyncio.run(batch_sent(cluster, LATE, LATE)) == "orders.delayed"
    assert asyncio.run(batch_sent(cluster, [], [])) == "orders"


def test_a_batch_of_aiokafka_that_asks_for_both_is_refused(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="1 of the 2 records of this batch are delayed"):
        asyncio.run(batch_sent(cluster, [], LATE))


def test_a_batch_of_aiokafka_cannot_go_through_one_ingress_topic_for_all(cluster: Cluster) -> None:
    delaybridge.instrument(ingress="delaybridge.in")
    with pytest.raises(ValueError, match=r"cannot go through 'delaybridge\.in'"):
        asyncio.run(batch_sent(cluster, LATE))


def test_one_ingress_topic_for_all_takes_in_from_each_client(cluster: Cluster) -> None:
    delaybridge.instrument(ingress="delaybridge.in")
    with kafka.KafkaProducer(bootstrap_servers=cluster.url, api_version=(2, 3)) as producer:
        producer.send("kafka-python", b"1", b"k", headers=LATE).get(30)
    other = confluent_kafka.Producer(cluster.configuration())
    other.produce("confluent-kafka", b"2", b"k", headers=dict(LATE))
    assert other.flush(10) == 0

    async def run() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.url) as third:
            await third.send_and_wait("aiokafka", b"3", key=b"k", headers=LATE)

    asyncio.run(run())
    meant = [b"kafka-python", b"confluent-kafka", b"aiokafka"]
    assert cluster.records(3) == [
        Record("delaybridge.in", b"k", str(number).encode(), [*LATE, ("x-delay-to", topic)]) for number, topic in enumerate(meant, 1)
    ]


def test_a_delayed_message_of_a_transaction_is_part_of_it(cluster: Cluster) -> None:
    producer = confluent_kafka.Producer(cluster.configuration(**{"transactional.id": "t"}))
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("orders", b"v", b"k", headers=LATE)
    producer.commit_transaction(10)
    with contextlib.suppress(confluent_kafka.KafkaException):
        producer.flush(5)
    assert [one.topic for one in cluster.records(1)] == ["orders.delayed"]
