"""The brokers that every sentence about adapters is tried on. A new adapter adds one entry to STAGES."""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

from brokers.common import wait_until
from brokers.kafka import create_topic

from delaybridge.adapters import activemq, kafka, memory, rabbitmq
from delaybridge.adapters.base import Outcome, Outgoing, Sink, Source
from delaybridge.bridge import plugins
from delaybridge.bridge.apart.frames import Setup
from delaybridge.bridge.apart.sink import ApartSink
from delaybridge.bridge.apart.source import ApartSource
from delaybridge.bridge.config import Logs
from delaybridge.core import fields
from delaybridge.core.message import Message, Properties

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class Stage:
    """One broker, a queue of its own on it (`address`), and the sources and sinks that a test opens there.

    `cumulative` says that this broker can only acknowledge all messages up to one, `exact` that its tokens name messages, not contents: then
    any message may be called a redelivery. `log` says that it is a log: see `Received.log`. `form` is what a message becomes when it passes through
    this broker, after docs/across-brokers.md.
    """

    cumulative = False
    exact = False
    log = False

    def __init__(self, adapter: Any, options: Any, endpoint: Any, address: str) -> None:
        self.adapter = adapter
        self.options = options
        self.endpoint = endpoint
        self.address = address
        self.outcomes: list[Outcome] = []
        self._opened: list[Source | Sink] = []

    def source(self) -> Source:
        source: Source = self.adapter.source(self.options, self.endpoint)
        source.connect()
        self._opened.append(source)
        return source

    def tap(self, address: str) -> Source:
        source: Source = self.adapter.tap(self.options, address)
        source.connect()
        self._opened.append(source)
        return source

    def sink(self) -> Sink:
        sink: Sink = self.adapter.sink(self.options)
        sink.connect(self.outcomes.extend)
        self._opened.append(sink)
        return sink

    def send(self, *messages: Message) -> None:
        """Publish to the queue, and wait until all are confirmed."""
        sink = self.sink()
        before = len(self.outcomes)
        sink.publish([Outgoing(str(number).encode(), self.address, one) for number, one in enumerate(messages)])
        wait_until(lambda: len(self.outcomes) == before + len(messages), "confirms")
        assert [error for _, error in self.outcomes[before:] if error] == []
        sink.close()

    def form(self, sent: Message) -> Message:
        return sent

    def close(self) -> None:
        for opened in self._opened:
            opened.close()
            if isinstance(opened, ApartSource | ApartSink):
                opened.end()


def _memory(request: pytest.FixtureRequest) -> Stage:  # noqa: ARG001 - the signature of STAGES
    queue = _name()
    return Stage(memory.adapter, memory.Memory(name=secrets.token_hex(4)), memory.Endpoint(queue=queue), queue)


def _rabbitmq(request: pytest.FixtureRequest) -> Stage:
    queue = _name()
    options = rabbitmq.RabbitMQ(url=request.getfixturevalue("rabbitmq").url, connection_timeout=15)
    return Stage(rabbitmq.adapter, options, rabbitmq.Endpoint(queue=queue), queue)


def _name() -> str:
    return f"contract-{secrets.token_hex(6)}"


class KafkaStage(Stage):
    """Header values are bytes, properties are headers, and the time of a record is that of its publication."""

    cumulative = True
    exact = True
    log = True

    PROPERTIES = (
        "content_type",
        "content_encoding",
        "correlation_id",
        "reply_to",
        "message_id",
        "type",
        "app_id",
        "priority",
        "expiration",
    )

    def form(self, sent: Message) -> Message:
        written = {name: value for name in self.PROPERTIES if (value := getattr(sent.properties, name)) is not None}
        headers = [(field.name, self._bytes(fields.value_of(field))) for field in fields.fields(sent.headers)]
        headers += [(name.replace("_", "-").encode(), self._bytes(value)) for name, value in written.items()]
        if sent.properties.timestamp is not None:
            headers.append((b"x-delay-timestamp", b"%d" % (sent.properties.timestamp * 1000)))
        return Message(sent.body, fields.table(headers), Properties(**written, timestamp_ms=ANY), sent.key)

    @staticmethod
    def _bytes(value: fields.Value) -> bytes | None:
        if isinstance(value, bool):
            return b"true" if value else b"false"
        return value if value is None or isinstance(value, bytes) else str(value).encode()


def _kafka(request: pytest.FixtureRequest) -> Stage:
    url, topic = request.getfixturevalue("kafka").url, _name()
    create_topic(url, topic)
    options = kafka.Kafka(bootstrap_servers=url, connection_timeout=15)
    return KafkaStage(kafka.adapter, options, kafka.Endpoint(topic=topic, group=topic), topic)


class ActiveStage(Stage):
    """Headers are text, in the order of their names, and ActiveMQ gives each message an id and a time of its own."""

    cumulative = True
    exact = True

    def form(self, sent: Message) -> Message:
        given = sent.properties
        headers = dict(self._text(field.name, fields.value_of(field)) for field in fields.fields(sent.headers))
        if given.timestamp is not None:
            headers["x-delay-timestamp"] = str(given.timestamp * 1000)
        if given.cluster_id is not None:
            headers["cluster-id"] = given.cluster_id.decode()
        if given.correlation_id is not None:  # in the one sentence that sets it, it is no UTF-8
            headers["correlation-id_base64"] = base64.b64encode(given.correlation_id).decode()
        properties = Properties(
            given.content_type, given.content_encoding, 2, 4 if given.priority is None else given.priority, None, given.reply_to, given.expiration,
            ANY if given.message_id is None else given.message_id, type=given.type, app_id=given.app_id, timestamp_ms=ANY, text=bool(given.text),
        )  # fmt: skip
        return Message(sent.body, fields.table(sorted(headers.items())), properties, sent.key)

    @staticmethod
    def _text(name: bytes, value: fields.Value) -> tuple[str, str]:
        if isinstance(value, bytes):
            return f"{name.decode()}_base64", base64.b64encode(value).decode()
        if isinstance(value, bool):
            return name.decode(), str(value).lower()
        return name.decode() or "_", "" if value is None else str(value)


def _activemq(request: pytest.FixtureRequest) -> Stage:
    queue = _name()
    options = activemq.ActiveMQ(url=request.getfixturevalue("activemq").url, connection_timeout=15)
    return ActiveStage(activemq.adapter, options, activemq.Endpoint(queue=queue), f"/queue/{queue}")


class Apart:
    """An adapter whose sources and sinks have processes of their own: they keep all that the adapter's own promise."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def source(self, options: Any, route: Any) -> Source:
        return ApartSource(Setup(self._kind, options, route, Logs(), frozenset()), "contract")

    def sink(self, options: Any) -> Sink:
        return ApartSink(Setup(self._kind, options, None, Logs(), frozenset()), "contract")

    def tap(self, options: Any, address: str) -> Source:
        """Whoever observes has a process anyway."""
        tapping: Any = plugins.adapter(self._kind)
        return tapping.tap(options, address)  # type: ignore[no-any-return]  # as all of ours


def _apart(kind: str) -> Callable[[pytest.FixtureRequest], Stage]:
    def made(request: pytest.FixtureRequest) -> Stage:
        stage = STAGES[kind](request)
        stage.adapter = Apart(kind)
        return stage

    return made


STAGES: dict[str, Callable[[pytest.FixtureRequest], Stage]] = {
    "activemq": _activemq,
    "memory": _memory,
    "rabbitmq": _rabbitmq,
    "kafka": _kafka,
}
STAGES |= {
    f"{kind}_apart": _apart(kind) for kind in ("rabbitmq", "kafka")
}  # one that one thread drives alone, and one with threads of its own
