"""How a dead letter gets to a destination: as a record of its own, a *carrier*, with the reason in its headers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from . import fields, headers
from .message import PERSISTENT, Message, Properties
from .reasons import Reason
from .schedule import Schedule

if TYPE_CHECKING:
    from .store import Record

_ENCLOSING = Properties(content_type=b"application/vnd.delaybridge.message+msgpack", delivery_mode=PERSISTENT)


def carrier(record: Record, address: str, now: int, reason: str, detail: str) -> Record:
    """The record that takes a dead letter to `address`, due at once, its reason in `x-delay-reason` and `x-delay-detail`.

    It does not expire, as RabbitMQ's own dead letters do not: its time to live stands in `x-delay-expiration`. Nor has it a user id, which RabbitMQ
    takes only from that user: it stands in `x-delay-user-id`.
    """
    message, given = record.message, record.message.properties
    told: dict[bytes, fields.Value] = {headers.REASON: str(reason), headers.DETAIL: detail[:1000]}
    told |= {
        name: said.decode(errors="replace")
        for name, said in ((headers.EXPIRATION, given.expiration), (headers.USER_ID, given.user_id))
        if said is not None
    }
    # No broker takes a damaged table; and the reason of an earlier dead-lettering is replaced.
    damaged = reason == Reason.HEADER_DAMAGED
    kept = b"" if damaged else fields.without(message.headers, fields.named(message.headers, told))
    properties = replace(given, expiration=None, user_id=None, partition=None, copies=None)
    if damaged and properties.delivery_mode is None:  # it could not be read: RabbitMQ would forget the message when it is restarted
        properties = replace(properties, delivery_mode=PERSISTENT)
    return replace(
        record,
        message=Message(message.body, kept + fields.table(told.items()), properties, message.key),
        schedule=Schedule(due=now, occurrence=record.schedule.occurrence),
        address=address,
        kind="dead_letter",
        taken=now,
    )


def carried(record: Record) -> tuple[str, str]:
    """Why a carrier's message was dead-lettered: code and detail."""
    told = dict(_reason(record.message))
    return str(told.get(headers.REASON, Reason.DELIVERY_FAILED)), str(told.get(headers.DETAIL, ""))


def enclosed(message: Message) -> Message:
    """A carrier's message in the body of another one, which has nothing but the reason beside it: for a broker that does not take so much as headers."""
    return Message(msgspec.msgpack.encode(message), fields.table(_reason(message)), _ENCLOSING)


def _reason(message: Message) -> list[tuple[bytes, fields.Value]]:
    """The headers of a carrier's message that say why."""
    return [(field.name, fields.value_of(field)) for field in fields.named(message.headers, {headers.REASON, headers.DETAIL})]
