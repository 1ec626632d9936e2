"""What is sent to each broker, and what it becomes on each: docs/across-brokers.md, message by message, in the flat form of brokers_ends.py."""

from __future__ import annotations

import random
import struct
import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from unittest.mock import ANY

from delaybridge.core import fields
from integration.brokers_ends import Flat, Several

NOW = int(time.time() * 1000)
SECOND = NOW // 1000 * 1000
INSTANT = datetime.fromtimestamp(SECOND // 1000, UTC)
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
BODIES = {
    "an empty body": b"",
    "text": "grüße".encode(),
    "bytes with NULs": b"\x00\xff\x00 \n\x00",
    "5 MiB": random.Random(1).randbytes(5 << 20),
}


class Case(NamedTuple):
    """One message as its producer sends it, and what a consumer of each broker gets, less what all of its kind have."""

    sent: Flat
    rabbitmq: Flat
    kafka: Flat
    activemq: Flat


class Value(NamedTuple):
    """A header's value, as it is sent and as it arrives."""

    sent: Any
    rabbitmq: Any
    kafka: Any
    activemq: Any


def _kept(said: Flat, kafka: Flat, activemq: Flat) -> Case:
    """What RabbitMQ's consumers get as it was sent."""
    return Case(said, said, kafka, activemq)


def _headers(values: dict[str, Value], renamed: dict[str, str]) -> Case:
    """`renamed`: at ActiveMQ."""
    columns = [{name: value[column] for name, value in values.items()} for column in range(4)]
    columns[3] = {renamed.get(name, name): value for name, value in columns[3].items()}
    return Case(*columns)


EVERY_BODY = {what: Case(said, said, said, said) for what, said in ((what, {"#body": body}) for what, body in BODIES.items())}
"""Bodies are equal everywhere."""

RABBIT_VALUES = {
    "int": Value(-7, -7, b"-7", "-7"),
    "long": Value(2**40, 2**40, b"1099511627776", "1099511627776"),
    "yes": Value(True, True, b"true", "true"),
    "no": Value(False, False, b"false", "false"),
    "text": Value("grüße: a\nb", "grüße: a\nb", "grüße: a\nb".encode(), "grüße: a\nb"),
    "bytes": Value(b"abc", b"abc", b"abc", "abc"),
    "raw": Value(b"\xff\x00", b"\xff\x00", b"\xff\x00", "/wA="),
    "nothing": Value(None, None, None, ""),
    "instant": Value(INSTANT, INSTANT, b"%d" % (SECOND // 1000), str(SECOND // 1000)),
    "money": Value(Decimal("12.34"), Decimal("12.34"), b"12.34", "12.34"),
    "table": Value({"a": 1, "b": ["ü", None]}, {"a": 1, "b": ["ü", None]}, '{"a":1,"b":["ü",null]}'.encode(), '{"a":1,"b":["ü",null]}'),
    "list": Value([1, True, b"\xff"], [1, True, b"\xff"], b'[1,true,"/w=="]', '[1,true,"/w=="]'),
    "traceparent": Value(TRACE, TRACE, TRACE.encode(), TRACE),
    "tracestate": Value("a=b,c=d", "a=b,c=d", b"a=b,c=d", "a=b,c=d"),
    "cloudEvents:id": Value("e1", "e1", b"e1", "e1"),
    "cloudEvents_source": Value("/shop", "/shop", b"/shop", "/shop"),
}

RABBIT_NUMBERS = {"b": -5, "B": 200, "s": -300, "u": 60_000, "I": -70_000, "i": 4_000_000_000, "l": 2**40, "f": 0.5, "d": 0.1}
FORMATS = {"b": "b", "B": "B", "s": "h", "u": "H", "I": "i", "i": "I", "l": "q", "f": "f", "d": "d"}
"""By AMQP's type: its number, and how it is written."""

KAFKA_VALUES = {
    "text": Value("grüße".encode(), "grüße".encode(), "grüße".encode(), "grüße"),
    "raw": Value(b"\xff\x00", b"\xff\x00", b"\xff\x00", "/wA="),
    "empty": Value(b"", b"", b"", ""),
    "traceparent": Value(TRACE.encode(), TRACE.encode(), TRACE.encode(), TRACE),
    "tracestate": Value(b"a=b", b"a=b", b"a=b", "a=b"),
    "ce_id": Value(b"e1", b"e1", b"e1", "e1"),
    "ce_source": Value(b"/shop", b"/shop", b"/shop", "/shop"),
}

TWICE = {"twice": Several([b"1", None, b"3"]), "between": b"b"}
"""ActiveMQ gets the last."""

ACTIVE_VALUES = {
    "text": Value("grüße: a\nb", "grüße: a\nb", "grüße: a\nb".encode(), "grüße: a\nb"),
    "number": Value("7", "7", b"7", "7"),
    "empty": Value("", "", b"", ""),
    "traceparent": Value(TRACE, TRACE, TRACE.encode(), TRACE),
    "tracestate": Value("a=b", "a=b", b"a=b", "a=b"),
    "ce_id": Value("e1", "e1", b"e1", "e1"),
    "cloudEvents_source": Value("/shop", "/shop", b"/shop", "/shop"),
}

RABBIT_SAID = {
    ".content_type": "application/json", ".content_encoding": "utf-8", ".delivery_mode": 1, ".priority": 12, ".correlation_id": "c",
    ".reply_to": "replies", ".expiration": "600000", ".message_id": "m", ".timestamp": SECOND // 1000, ".type": "t", ".user_id": "guest",
    ".app_id": "a", ".cluster_id": "x",
}  # fmt: skip
KAFKA_SAID = {
    "content-type": b"text/plain", "content-encoding": b"utf-8", "priority": b"3", "correlation-id": b"c", "reply-to": b"replies",
    "expiration": b"600000", "message-id": b"m", "type": b"t", "app-id": b"a",
}  # fmt: skip
ACTIVE_SAID = {
    "content-type": "text/plain", "content-encoding": "utf-8", ".priority": "7", "correlation-id": "c", "reply-to": "/queue/replies",
    ".ttl": 600_000, "type": "t", "app-id": "a", ".persistent": "true",
}  # fmt: skip

FROM_RABBITMQ: dict[str, Case] = EVERY_BODY | {
    "headers": _headers(RABBIT_VALUES, {"raw": "raw_base64"}),
    "numbers of every type": Case(
        {"#table": b"".join(b"\1" + (tag + tag).encode() + struct.pack(f">{FORMATS[tag]}", number) for tag, number in RABBIT_NUMBERS.items())},
        dict(RABBIT_NUMBERS),
        {tag: repr(number).encode() for tag, number in RABBIT_NUMBERS.items()},
        {tag: repr(number) for tag, number in RABBIT_NUMBERS.items()},
    ),
    "headers of one name": Case(
        {"#table": fields.table([("twice", "1"), ("between", "b"), ("twice", None), ("twice", "3")])},
        {"twice": Several(["1", None, "3"]), "between": "b"},
        {"twice": Several([b"1", None, b"3"]), "between": b"b"},
        {"twice": "3", "between": "b"},
    ),
    "properties": Case(
        RABBIT_SAID,
        RABBIT_SAID,
        {
            "content-type": b"application/json", "content-encoding": b"utf-8", "priority": b"12", "correlation-id": b"c", "reply-to": b"replies",
            "expiration": b"600000", "message-id": b"m", "type": b"t", "app-id": b"a", "x-delay-timestamp": b"%d" % SECOND,
        },
        {
            "content-type": "application/json", "content-encoding": "utf-8", ".priority": "9", "correlation-id": "c", "reply-to": "replies",
            ".ttl": 600_000, "x-delay-message-id": "m", "type": "t", "app-id": "a", "user-id": "guest", "cluster-id": "x",
            "x-delay-timestamp": str(SECOND),
        },
    ),
    "a text by its content type": _kept({".content_type": "text/plain"}, {"content-type": b"text/plain"}, {"content-type": "text/plain", "#text": True}),
    "a key": _kept({"x-delay-key": "k1"}, {"x-delay-key": b"k1", "#key": b"k1"}, {"x-delay-key": "k1"}),
    "a tombstone": _kept({"x-delay-tombstone": True, "#body": b""}, {"#body": None}, {"x-delay-tombstone": "true", "#body": b""}),
}  # fmt: skip

FROM_KAFKA: dict[str, Case] = EVERY_BODY | {
    "headers": _headers(KAFKA_VALUES, {"raw": "raw_base64"}),
    "properties": Case(
        KAFKA_SAID,
        KAFKA_SAID | {
            ".content_type": "text/plain", ".content_encoding": "utf-8", ".priority": 3, ".correlation_id": "c", ".reply_to": "replies",
            ".expiration": "600000", ".message_id": "m", ".type": "t", ".app_id": "a",
        },
        KAFKA_SAID,
        {
            "content-type": "text/plain", "content-encoding": "utf-8", ".priority": "3", "correlation-id": "c", "reply-to": "replies",
            ".ttl": 600_000, "x-delay-message-id": "m", "type": "t", "app-id": "a",
        },
    ),
    "a key": Case({"#key": b"k1"}, {"x-delay-key": "k1"}, {"#key": b"k1"}, {"x-delay-key": "k1"}),
    "a key that is no text": Case({"#key": b"\xff\x00"}, {"x-delay-key": b"\xff\x00"}, {"#key": b"\xff\x00"}, {"x-delay-key_base64": "/wA="}),
    "headers without a value": Case({"nothing": None}, {"nothing": None}, {"nothing": None}, {"nothing": ""}),
    "headers of one name": Case(TWICE, TWICE, TWICE, {"twice": "3", "between": "b"}),
    "a tombstone": Case(
        *({"#body": None, "#key": b"k2"}, {"#body": b"", "x-delay-key": "k2", "x-delay-tombstone": True}),
        *({"#body": None, "#key": b"k2"}, {"#body": b"", "x-delay-key": "k2", "x-delay-tombstone": "true"}),
    ),
}  # fmt: skip

FROM_ACTIVEMQ: dict[str, Case] = EVERY_BODY | {
    "headers": _headers(ACTIVE_VALUES, {}),
    "properties": Case(
        ACTIVE_SAID,
        {
            ".content_type": "text/plain", ".content_encoding": "utf-8", ".priority": 7, ".correlation_id": "c", ".reply_to": "/queue/replies",
            ".expiration": "600000", ".delivery_mode": 2, ".type": "t", ".app_id": "a",
        },
        {
            "content-type": b"text/plain", "content-encoding": b"utf-8", "priority": b"7", "correlation-id": b"c", "reply-to": b"/queue/replies",
            "expiration": b"600000", "type": b"t", "app-id": b"a",
        },
        ACTIVE_SAID,
    ),
    "a text": Case({"#text": True}, {}, {}, {"#text": True}),
    "an empty text": Case({"#body": b"", "#text": True}, {"#body": b""}, {"#body": b""}, {"#body": b"", "#text": True}),
    "a key": Case({"x-delay-key": "k1"}, {"x-delay-key": "k1"}, {"x-delay-key": b"k1", "#key": b"k1"}, {"x-delay-key": "k1"}),
    "a key that is no text": Case(
        *({"x-delay-key_base64": "/wA="}, {"x-delay-key_base64": "/wA=", "x-delay-key": b"\xff\x00"}),
        *({"x-delay-key_base64": b"/wA=", "#key": b"\xff\x00"}, {"x-delay-key_base64": "/wA="}),
    ),
    "a tombstone": Case(
        *({"#body": b"", "x-delay-tombstone": "true"}, {"#body": b"", "x-delay-tombstone": "true"}),
        *({"#body": None}, {"#body": b"", "x-delay-tombstone": "true"}),
    ),
}  # fmt: skip

CASES = {"rabbitmq": FROM_RABBITMQ, "kafka": FROM_KAFKA, "activemq": FROM_ACTIVEMQ}

PLAIN: dict[str, Flat] = {
    "rabbitmq": {"#body": b"body"},
    "kafka": {"#body": b"body", "#key": None, ".timestamp": NOW},
    "activemq": {"#body": b"body", "#text": False},
}
"""What a producer of each says of any message, unless its case says otherwise."""

AT: dict[str, Flat] = {
    "rabbitmq": {"#body": b"body"},
    "kafka": {"#body": b"body", "#key": None, ".timestamp": ANY},
    "activemq": {"#body": b"body", "#text": False, ".priority": "4", ".persistent": "true"},
}
"""What a consumer of each gets with any message, unless its case says otherwise."""

BETWEEN: dict[tuple[str, str], Flat] = {
    ("rabbitmq", "rabbitmq"): {},
    ("rabbitmq", "kafka"): {},
    ("rabbitmq", "activemq"): {},
    ("kafka", "rabbitmq"): {".timestamp": NOW // 1000, ".delivery_mode": 2},
    ("kafka", "kafka"): {"x-delay-timestamp": b"%d" % NOW},
    ("kafka", "activemq"): {"x-delay-timestamp": str(NOW)},
    ("activemq", "rabbitmq"): {".timestamp": ANY, ".delivery_mode": 1, ".priority": 4, ".message_id": ANY},
    ("activemq", "kafka"): {"x-delay-timestamp": ANY, "priority": b"4", "message-id": ANY},
    ("activemq", "activemq"): {"x-delay-timestamp": ANY, "x-delay-message-id": ANY},
}
"""What any message has besides, from one to the other."""


def sent(source: str, case: str) -> Flat:
    """A message as its producer sends it, with its case's name in a header."""
    return PLAIN[source] | CASES[source][case].sent


def expected(source: str, sink: str, case: str) -> Flat:
    """What its consumer gets."""
    said: Flat = getattr(CASES[source][case], sink)
    return AT[sink] | BETWEEN[source, sink] | said
