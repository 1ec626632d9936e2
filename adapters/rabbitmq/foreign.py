"""Messages that came from other brokers, in the terms of AMQP 0-9-1; see docs/across-brokers.md.

A key travels in the header `x-delay-key`, as text where it is UTF-8; a producer may say a whole number, too. A tombstone is an empty body with the header
`x-delay-tombstone`. What an earlier broker's message had in these headers gives way. What came from a broker that keeps everything on disk is persistent here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...core.dialects.base import INTEGERS, number
from ...core.fields import entry, fields, named, without
from ...core.message import PERSISTENT, Message

if TYPE_CHECKING:
    from ...core.fields import Field
    from ...core.message import Properties

KEY = b"x-delay-key"
TOMBSTONE = b"x-delay-tombstone"
_KEYS = frozenset("Sx") | INTEGERS
_LONGEST = 315_360_000_000
"""Ten years in milliseconds: RabbitMQ refuses a longer time to live, and closes the channel."""


def is_foreign(message: Message) -> bool:
    """Whether the message holds anything that RabbitMQ's own never do."""
    given = message.properties
    return given.timestamp_ms is not None or message.key is not None or message.body is None or _is_endless(given.expiration)


def native(message: Message) -> Message:
    """The same as RabbitMQ can carry it."""
    table = message.headers
    if message.key is not None and message.key != key_of(table):
        table = without(table, named(table, {KEY})) + entry(KEY, _text(message.key))
    if message.body is None:
        table = without(table, named(table, {TOMBSTONE})) + entry(TOMBSTONE, value=True)
    return Message(message.body or b"", table, _properties(message.properties), message.key)


def _properties(given: Properties) -> Properties:
    if _is_endless(given.expiration):
        given = replace(given, expiration=None)
    if given.timestamp_ms is None:
        return given
    return replace(
        given,
        delivery_mode=given.delivery_mode or PERSISTENT,
        timestamp=given.timestamp_ms // 1000 if given.timestamp is None else given.timestamp,
    )


def _is_endless(expiration: bytes | None) -> bool:
    """Whether this time to live is longer than RabbitMQ can count."""
    if expiration is None:
        return False
    digits = expiration.lstrip(b"0")
    return digits.isdigit() and (len(digits) > len(str(_LONGEST)) or int(digits) > _LONGEST)


def key_of(table: bytes) -> bytes | None:
    """The key that `native` wrote, or a producer did; the header stays where it is."""
    if KEY not in table:
        return None
    return next((_key(field) for field in fields(table) if field.name == KEY and field.tag in _KEYS), None)


def _key(field: Field) -> bytes:
    return b"%d" % number(field) if field.tag in INTEGERS else field.payload


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
