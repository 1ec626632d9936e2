"""The messages of the measurements: bodies of 1 KB that do not compress, three headers, the properties that a framework sets."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator

from delaybridge.core import fields
from delaybridge.core.message import Message, Properties
from delaybridge.core.schedule import Schedule
from delaybridge.core.store import Put, Record

BODY = 1024
_NOISE = os.urandom(1 << 20)
_TRACED = fields.table([("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), ("tenant", "acme")])


def bodies() -> Iterator[bytes]:
    """Bodies that differ, without end."""
    return (_NOISE[at : at + BODY] for at in itertools.cycle(range(0, len(_NOISE) - BODY, 7)))


def messages(count: int, delay: int | None) -> list[Message]:
    """Messages as producers send them; without a delay they pass through."""
    asked = b"" if delay is None else fields.entry("x-delay", delay)
    table = _TRACED + asked
    return [Message(body, table, _properties(number)) for number, body in zip(range(count), bodies(), strict=False)]


def _properties(number: int) -> Properties:
    return Properties(
        content_type=b"application/json", delivery_mode=2, message_id=b"%032d" % number, timestamp=int(time.time()), app_id=b"shop"
    )


def puts(due: Iterator[int], taken: int, lane: str, address: str) -> Iterator[Put]:
    """The same messages as the bridge would put them, one for each due time."""
    for number, (at, body) in enumerate(zip(due, bodies(), strict=False)):
        message = Message(body, _TRACED, _properties(number))
        yield Put(Record(message=message, schedule=Schedule(due=at), lane=lane, address=address, dialect="own", route="bench",
                         source_broker=lane, source="/queues/bench.in", taken=taken))  # fmt: skip
