"""Ordinary producers and consumers of each broker, on pika, kafka-python, confluent-kafka and stomp.py, with one flat form for what they send and get.

A message is a dictionary: a header by its name, `#body`, `#key` (Kafka), `#text` (ActiveMQ: text rather than bytes), and what else a broker says
beside the headers by a name that begins with a dot (`.priority`). Values are what the client library makes of them; `Several` are those of headers of one
name, in their order.
"""

from __future__ import annotations

import abc
import contextlib
import queue
import secrets
import threading
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import pika
import stomp
from brokers.kafka import create_topic
from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition

from delaybridge.adapters.rabbitmq.wire import decode, encode
from delaybridge.core import fields
from delaybridge.core.message import Properties
from integration.rabbit import Rabbit, RawProperties, SeenProperties, now_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Flat = dict[str, Any]
PATIENCE = 30.0
LARGEST = 8 << 20


class Several(list[Any]):
    """The values of headers of one name."""


class Got(NamedTuple):
    """A message and when it came, epoch ms."""

    message: Flat
    at: int


class End(abc.ABC):
    """One broker; `name` is that of a queue or topic that nobody else uses."""

    def __init__(self, broker: Any) -> None:
        self.url: str = broker.url
        self.prefix = f"across-{secrets.token_hex(4)}"

    @abc.abstractmethod
    def options(self) -> dict[str, Any]:
        """The broker's section in the bridge's configuration."""

    @abc.abstractmethod
    def declare(self, name: str) -> dict[str, Any]:
        """Make a queue or topic; where it is, as the `from` of a route says it."""

    @abc.abstractmethod
    def address(self, name: str) -> str:
        """The same, as a destination's address."""

    @abc.abstractmethod
    def send(self, name: str, messages: list[Flat]) -> None:
        """Publish these, and wait until the broker has them."""

    @abc.abstractmethod
    def receive(self, name: str) -> Iterator[Got]:
        """Whatever comes; ends when nothing has come for PATIENCE seconds."""

    def close(self) -> None:  # noqa: B027 - not every broker needs it
        """Delete what is ours, where the broker keeps it."""


def together(pairs: Iterable[tuple[str, Any]]) -> Flat:
    """Headers by their names."""
    found: dict[str, list[Any]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else Several(values) for name, values in found.items()}


def split(message: Flat) -> tuple[Flat, Flat]:
    """Headers, and what stands beside them, without the dots."""
    headers = {name: value for name, value in message.items() if name[0] not in ".#"}
    return headers, {name[1:]: value for name, value in message.items() if name[0] == "."}


class RabbitEnd(End):
    """The properties have pika's names. `#table`: headers in wire form, for types that pika reads and cannot write."""

    def __init__(self, broker: Any) -> None:
        super().__init__(broker)
        self._rabbit = Rabbit(broker.url)

    def options(self) -> dict[str, Any]:
        return {"type": "rabbitmq", "url": self.url}

    def declare(self, name: str) -> dict[str, Any]:
        return {"queue": self._rabbit.queue(name)}

    def address(self, name: str) -> str:
        return self._rabbit.address(name)

    def send(self, name: str, messages: list[Flat]) -> None:
        for message in messages:
            headers, said = split(message)
            properties = pika.BasicProperties(headers=headers, **said)
            if "#table" in message:
                properties = RawProperties(encode(Properties(), fields.table(headers.items()) + message["#table"]))
            self._rabbit.publish_raw("", self._rabbit.name(name), message["#body"], properties)

    def receive(self, name: str) -> Iterator[Got]:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            _, properties, body = self._rabbit.channel.basic_get(self._rabbit.name(name), auto_ack=True)
            if properties is None:
                self._rabbit.connection.sleep(0.01)
                continue
            said = {f".{each}": value for each, value in vars(properties).items() if each not in ("raw", "headers") and value is not None}
            assert isinstance(properties, SeenProperties)
            raw = list(fields.fields(decode(properties.raw)[1]))
            floats = {each.name.decode(): fields.value_of(each) for each in raw if each.tag in "fd"}  # pika makes whole numbers of them
            several = together((each.name.decode(), fields.value_of(each)) for each in raw)  # of which pika gives the last
            several = {name: values for name, values in several.items() if isinstance(values, Several)}
            yield Got({"#body": body} | said | dict(properties.headers or {}) | floats | several, now_ms())

    @cached_property
    def keeps_several(self) -> bool:
        """Whether the broker keeps all headers of one name: RabbitMQ 4.3 gives a consumer the first of them only."""
        self.declare("several")
        self.send("several", [{"#body": b"", "#table": fields.table([("one", "1"), ("one", "2")])}])
        return isinstance(next(self.receive("several")).message["one"], Several)

    def close(self) -> None:
        self._rabbit.close()


class KafkaEnd(End):
    """`.timestamp` is the record's."""

    def options(self) -> dict[str, Any]:
        return {"type": "kafka", "bootstrap_servers": self.url}

    def declare(self, name: str) -> dict[str, Any]:
        create_topic(self.url, self.address(name), 3)
        return {"topic": self.address(name), "group": self.prefix + name}

    def address(self, name: str) -> str:
        return f"{self.prefix}.{name}"

    def send(self, name: str, messages: list[Flat]) -> None:
        producer = Producer({"bootstrap.servers": self.url, "message.max.bytes": LARGEST})  # kafka-python sends no null in a header
        for message in messages:
            headers, said = split(message)
            pairs = [(each, value) for each, values in headers.items() for value in (values if isinstance(values, Several) else [values])]
            producer.produce(self.address(name), message["#body"], message["#key"], headers=pairs, timestamp=said["timestamp"])
        assert producer.flush(PATIENCE) == 0

    def receive(self, name: str) -> Iterator[Got]:
        with contextlib.closing(KafkaConsumer(bootstrap_servers=self.url)) as consumer:
            partitions = [TopicPartition(self.address(name), number) for number in range(3)]
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                for records in consumer.poll(timeout_ms=100).values():
                    for record in records:
                        said = {"#body": record.value, "#key": record.key, ".timestamp": record.timestamp}
                        yield Got(said | together(record.headers), now_ms())


OWN = (
    "destination",
    "subscription",
    "ack",
    "message-id",
    "content-length",
    "timestamp",
    "expires",
    "priority",
    "persistent",
    "redelivered",
)
"""Headers of a MESSAGE frame that ActiveMQ makes itself."""


class Listener(stomp.ConnectionListener):  # type: ignore[misc]  # stomp.py has no types
    """What came on a connection."""

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[Got] = queue.SimpleQueue()
        self.receipts: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.connected = threading.Event()

    def on_connected(self, _: Any) -> None:
        self.connected.set()

    def on_receipt(self, frame: Any) -> None:
        self.receipts.put(frame.headers["receipt-id"])

    def on_message(self, frame: Any) -> None:
        at, given = now_ms(), frame.headers
        body = frame.body.encode() if isinstance(frame.body, str) else frame.body
        said = {"#body": body, "#text": "content-length" not in given, ".priority": given["priority"]}
        said[".persistent"] = given.get("persistent", "false")
        if given["expires"] != "0":
            said[".ttl"] = int(given["expires"]) - int(given["timestamp"])
        self.messages.put(Got(said | {name: value for name, value in given.items() if name not in OWN}, at))


class ActiveEnd(End):
    """`.priority` and `.persistent` are text; `.ttl` is the time to live in ms."""

    def options(self) -> dict[str, Any]:
        return {"type": "activemq", "url": self.url}

    def declare(self, name: str) -> dict[str, Any]:
        return {"queue": f"{self.prefix}.{name}"}

    def address(self, name: str) -> str:
        return f"/queue/{self.prefix}.{name}"

    @contextlib.contextmanager
    def _connected(self) -> Iterator[tuple[Any, Listener]]:
        where = urlsplit(self.url)
        connection = stomp.Connection12([(where.hostname, where.port)], auto_decode=False, auto_content_length=False, heartbeats=(0, 0))
        listener = Listener()
        connection.set_listener("", listener)
        connection.connect()
        assert listener.connected.wait(PATIENCE)
        try:
            yield connection, listener
        finally:
            connection.disconnect()

    def send(self, name: str, messages: list[Flat]) -> None:
        with self._connected() as (connection, listener):
            for number, message in enumerate(messages):
                headers, said = split(message)
                now = now_ms()
                expiry = {"timestamp": str(now), "expires": str(now + said.pop("ttl"))} if "ttl" in said else {}
                length = {} if message["#text"] else {"content-length": str(len(message["#body"]))}
                connection.send(self.address(name), message["#body"], headers=headers | said | expiry | length | {"receipt": str(number)})
                assert listener.receipts.get(timeout=PATIENCE) == str(number)

    def receive(self, name: str) -> Iterator[Got]:
        with self._connected() as (connection, listener):
            connection.subscribe(self.address(name), "1", "auto")
            while True:
                try:
                    yield listener.messages.get(timeout=PATIENCE)
                except queue.Empty:
                    return
