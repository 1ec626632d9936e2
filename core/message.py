"""A message as every broker's adapter hands it over: bytes kept as they came."""

from __future__ import annotations

import msgspec

from . import fields

PERSISTENT = 2
"""The delivery mode of what RabbitMQ still has after a restart."""


class Properties(msgspec.Struct, omit_defaults=True, frozen=True):
    """What a message has beside body and headers, in the names and units of AMQP 0-9-1, whose set is the richest.

    Text is bytes, as it was on the wire. `timestamp` is in seconds. `expiration` is the time to live, as decimal text in milliseconds; it begins when the
    message is delivered. AMQP does not know the last four:

        timestamp_ms   `timestamp` in milliseconds (Kafka, ActiveMQ)
        partition      Kafka's
        text           whether the body is text rather than bytes (ActiveMQ, whose receivers are given different types)
        copies         whether the headers `CC` and `BCC` count: it goes on to the exchange to which it was sent (RabbitMQ)
    """

    content_type: bytes | None = None
    content_encoding: bytes | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: bytes | None = None
    reply_to: bytes | None = None
    expiration: bytes | None = None
    message_id: bytes | None = None
    timestamp: int | None = None
    type: bytes | None = None
    user_id: bytes | None = None
    app_id: bytes | None = None
    cluster_id: bytes | None = None
    timestamp_ms: int | None = None
    partition: int | None = None
    text: bool | None = None
    copies: bool | None = None


NO_PROPERTIES = Properties()


class Message(msgspec.Struct, array_like=True, frozen=True):
    """Body, headers (a table, see `core.fields`), properties and key; `body` is None for a tombstone (Kafka)."""

    body: bytes | None
    headers: bytes = b""
    properties: Properties = NO_PROPERTIES
    key: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes of body and headers."""
        return len(self.body or b"") + len(self.headers)


def message(body: bytes, headers: dict[str, fields.Value] | None = None, properties: Properties = NO_PROPERTIES) -> Message:
    """A message from plain values, for plug-in authors, tools and tests."""
    return Message(body, fields.table((headers or {}).items()), properties)
