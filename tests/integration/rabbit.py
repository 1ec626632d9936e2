"""Ordinary producers and consumers on pika for tests, with names of their own, and with a look at the bytes that pika hides."""

from __future__ import annotations

import contextlib
import secrets
import time
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import quote

import pika
import pika.exceptions
from pika.exchange_type import ExchangeType

from delaybridge.adapters.rabbitmq.wire import decode
from delaybridge.core import fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delaybridge.core.message import Properties

PATIENCE = 60.0
DELIVERY_HEADERS = {b"x-delay-id", b"x-delay-occurrence", b"x-delay-due"}


class RawProperties(pika.BasicProperties):
    """Properties whose bytes on the wire are given, whatever pika could or could not say."""

    def __init__(self, raw: bytes) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # pika leaves it untyped
        self.raw = raw

    def encode(self) -> list[bytes]:
        """What pika puts into the frame."""
        return [self.raw]


class SeenProperties(pika.BasicProperties):
    """Properties that keep their bytes beside what pika makes of them."""

    raw = b""

    def decode(self, encoded: bytes, offset: int = 0) -> Any:
        """What pika calls with the frame's content."""
        self.raw = encoded[offset:]
        with contextlib.suppress(RecursionError):
            super().decode(encoded, offset)  # type: ignore[no-untyped-call]  # pika leaves it untyped
        return self


pika.spec.props[pika.BasicProperties.INDEX] = SeenProperties


class Arrival(NamedTuple):
    """One delivery. `at` is epoch milliseconds; `raw` the content header as it was on the wire."""

    body: bytes
    headers: dict[str, Any]
    raw: bytes
    at: int

    @property
    def id(self) -> str:
        """The delivery's id."""
        return str(self.headers["x-delay-id"])

    @property
    def occurrence(self) -> int:
        """The delivery's number."""
        return int(self.headers["x-delay-occurrence"])

    @property
    def due(self) -> int:
        """When it was due, epoch ms."""
        return int(self.headers["x-delay-due"])

    @property
    def properties(self) -> Properties:
        """The properties as they were on the wire."""
        return decode(self.raw)[0]

    @property
    def own(self) -> list[fields.Field]:
        """The headers less those that the bridge adds on delivery, as they were on the wire."""
        return [field for field in fields.fields(decode(self.raw)[1]) if field.name not in DELIVERY_HEADERS]


def now_ms() -> int:
    """This machine's clock in epoch milliseconds, rounded up, so that nothing looks earlier than it was."""
    return -(-time.time_ns() // 1_000_000)


class Rabbit:
    """A connection with queues and exchanges whose names nobody else uses; `close` deletes them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.prefix = f"e2e-{secrets.token_hex(4)}"
        self._queues: list[str] = []
        self._exchanges: list[str] = []
        self.reconnect()

    def reconnect(self) -> None:
        """A new connection, after the broker or a mistake of ours ended the old one."""
        self.connection = pika.BlockingConnection(pika.URLParameters(self.url))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()

    def name(self, short: str) -> str:
        """A name of our own."""
        return f"{self.prefix}.{short}"

    def address(self, short: str) -> str:
        """The address of a queue of ours."""
        return "/queues/" + quote(self.name(short), safe="")

    def queue(self, short: str, **arguments: Any) -> str:
        """Declare a durable queue; its full name."""
        name = self.expected(short)
        self.channel.queue_declare(name, durable=True, arguments={key.replace("_", "-"): value for key, value in arguments.items()})
        return name

    def expected(self, short: str) -> str:
        """A queue that somebody else may declare, to be deleted at the end."""
        self._queues.append(self.name(short))
        return self.name(short)

    def exchange(self, short: str, kind: str) -> str:
        """Declare a durable exchange; its full name."""
        name = self.name(short)
        self.channel.exchange_declare(name, ExchangeType(kind), durable=True)
        self._exchanges.append(name)
        return name

    def publish(self, exchange: str, key: str, body: bytes = b"", headers: dict[str, Any] | None = None, **properties: Any) -> int:
        """Publish and wait for the confirm; when that began, epoch ms."""
        at = time.time_ns() // 1_000_000
        self.publish_raw(exchange, key, body, pika.BasicProperties(headers=headers, delivery_mode=2, **properties))
        return at

    def publish_raw(self, exchange: str, key: str, body: bytes, properties: pika.BasicProperties) -> None:
        """Publish as it is and wait for the confirm."""
        self.channel.basic_publish(exchange, key, body, properties, mandatory=True)

    def send(self, short: str, body: bytes = b"", **headers: Any) -> int:
        """Publish to a queue of ours; header names with `_` for `-`."""
        return self.publish("", self.name(short), body, {name.replace("_", "-"): value for name, value in headers.items()})

    def take(self, short: str) -> Arrival | None:
        """What is in a queue now."""
        _, properties, body = self.channel.basic_get(self.name(short), auto_ack=True)
        if properties is None:
            return None
        assert isinstance(properties, SeenProperties)
        return Arrival(cast("bytes", body), dict(properties.headers or {}), properties.raw, now_ms())

    def receive(self, short: str, count: int = 1, timeout: float = PATIENCE) -> list[Arrival]:
        """Wait for so many deliveries, and not longer than the deadline."""
        found: list[Arrival] = []
        deadline = time.monotonic() + timeout
        while len(found) < count:
            arrival = self.take(short)
            if arrival is not None:
                found.append(arrival)
                continue
            assert time.monotonic() < deadline, f"{len(found)} of {count} messages came to {short} within {timeout} s"
            self.connection.sleep(0.005)
        return found

    def one(self, short: str, timeout: float = PATIENCE) -> Arrival:
        """Wait for one delivery."""
        return self.receive(short, 1, timeout)[0]

    def waiting(self, short: str) -> int:
        """How many messages are ready in a queue."""
        return self.channel.queue_declare(self.name(short), passive=True).method.message_count or 0

    def close(self) -> None:
        """Delete what is ours."""
        with contextlib.suppress(pika.exceptions.AMQPError):
            self.connection.close()
        self.reconnect()
        for name in self._queues:
            self.channel.queue_delete(name)
        for name in self._exchanges:
            for gated in (name, f"{name}.gate", f"{name}.real"):
                self.channel.exchange_delete(gated)
        self.connection.close()


@contextlib.contextmanager
def rabbit(url: str) -> Iterator[Rabbit]:
    """Names and a connection for the length of the `with` block."""
    made = Rabbit(url)
    try:
        yield made
    finally:
        made.close()


def config(url: str, management_url: str, routes: list[dict[str, Any]], **sections: Any) -> dict[str, Any]:
    """A configuration of one RabbitMQ named `rabbit`."""
    broker = {"type": "rabbitmq", "url": url} | ({"management_url": management_url} if management_url else {})
    return {"brokers": {"rabbit": broker}, "routes": routes} | sections
