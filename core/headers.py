"""From a header table to what it asks for. The producers' interface is docs/headers.md.

Adding a dialect: one file in `core/dialects/`, one line in DIALECTS.
"""

from __future__ import annotations

import struct
from typing import get_args

from .dialects import activemq, alibaba, amqp, artemis, own, pulsar, rabbitmq, rocketmq, sqs
from .dialects.base import INTEGERS, TIMEZONE, Asked, Dialect, Headers, agreed, number, text
from .durations import LATEST_INSTANT
from .fields import Field, MalformedTableError, named, without
from .reasons import Reason, Refusal
from .schedule import Cancel, Limits, Misfire, PassThrough, Reading, Refused, Request, Schedule

DIALECTS: tuple[Dialect, ...] = (
    own.DIALECT, activemq.DIALECT, rocketmq.DIALECT, alibaba.DIALECT, pulsar.DIALECT, sqs.DIALECT, artemis.DIALECT, amqp.DIALECT,
)  # fmt: skip

ID, TO, CANCEL, ENDS, MISFIRE = b"x-delay-id", b"x-delay-to", b"x-delay-cancel", own.ENDS, b"x-delay-misfire"
OCCURRENCE, DUE = b"x-delay-occurrence", b"x-delay-due"
REASON, DETAIL, EXPIRATION, USER_ID = b"x-delay-reason", b"x-delay-detail", b"x-delay-expiration", b"x-delay-user-id"
"""Of a dead letter that goes to a destination."""
LONGEST_ID = 255
"""Bytes of a producer's id; a bridge's own are shorter."""
_MODIFIERS = (TIMEZONE, ENDS, MISFIRE)
_COMMON = (ID, TO, CANCEL, *_MODIFIERS, OCCURRENCE, DUE, REASON, DETAIL, EXPIRATION, USER_ID, activemq.JOB)


def _spellings(name: bytes) -> tuple[bytes, ...]:
    """A name and, for our own headers, its form for JMS."""
    return (name, name.replace(b"-", b"_")) if name.startswith(b"x-delay") else (name,)


_DIALECT_OF = {name: dialect for dialect in DIALECTS for name in dialect.asks + dialect.also}
_CANONICAL = {spelling: name for name in (*_DIALECT_OF, *_COMMON) for spelling in _spellings(name)}

CONTROL_NAMES = frozenset(_CANONICAL)
"""Every header that is taken off a delivered message."""

DELAY_NAMES = frozenset(spelling for dialect in DIALECTS for name in (*dialect.asks, CANCEL) for spelling in _spellings(name))
"""The headers with which a message asks the bridge for something: what an intercepting broker has to match."""

_OF_IDS = frozenset(spelling for name in (ID, OCCURRENCE) for spelling in _spellings(name))
_OF_DELIVERIES = frozenset(spelling for name in (ID, OCCURRENCE, DUE) for spelling in _spellings(name))

_LENGTH = struct.Struct(">I")
_NUMBERS = struct.Struct(f">{len(OCCURRENCE) + 2}sq{len(DUE) + 2}sq")
_HEAD_ID, _HEAD_OCCURRENCE, _HEAD_DUE = (
    bytes((len(name),)) + name + tag for name, tag in ((ID, b"S"), (OCCURRENCE, b"l"), (DUE, b"l"))
)  # fmt: skip


def read(headers: bytes, now: int, limits: Limits) -> Reading:
    """What a message's headers ask for, relative delays counted from `now` (epoch ms). Never raises, whatever the bytes are."""
    try:
        found = named(headers, CONTROL_NAMES)
    except MalformedTableError as error:
        return Refused(reason=Reason.HEADER_DAMAGED, detail=str(error))
    if not found:
        return PassThrough(headers=headers)
    by_name = {_CANONICAL[field[0]]: field for field in found}
    try:
        return _plan(headers, found, by_name, now, limits)
    except Refusal as refusal:
        return Refused(reason=refusal.reason, detail=refusal.detail, dialect=refusal.dialect)


def delivered(table: bytes, id: str, occurrence: int, due: int) -> bytes:  # noqa: A002 - the field's own word
    """A delivered message's table: what `read` left, and the three delivery headers."""
    raw = id.encode()
    return b"".join((table, _HEAD_ID, _LENGTH.pack(len(raw)), raw, _NUMBERS.pack(_HEAD_OCCURRENCE, occurrence, _HEAD_DUE, due)))


def undelivered(table: bytes) -> bytes:
    """A table as it came, less the headers that `delivered` adds, so that none stands there twice. An id that cannot be read stays, for people to see."""
    try:
        found = named(table, _OF_DELIVERIES)
    except MalformedTableError:
        return table
    present = {_CANONICAL[field.name] for field in found}
    kept = () if OCCURRENCE in present or chosen_id(table) else (ID,)
    return without(table, [field for field in found if _CANONICAL[field.name] not in kept])


def chosen_id(table: bytes) -> str:
    """The id that its producer gave a message, whatever else is wrong with it; empty where there is none that can be read."""
    try:
        by_name = {_CANONICAL[field[0]]: field for field in named(table, _OF_IDS)}
        return _chosen_id(by_name)
    except (MalformedTableError, Refusal):
        return ""


def _plan(headers: bytes, found: list[Field], by_name: Headers, now: int, limits: Limits) -> Reading:
    asked = _asked(by_name, now, limits)
    wanted = agreed(asked) if asked else None
    if CANCEL in by_name:
        if wanted is not None and wanted.due is not None:
            raise Refusal(Reason.AMBIGUOUS_SCHEDULE, "x-delay-cancel goes with no delay header", wanted.dialect)
        return Cancel(id=_name(by_name[CANCEL], Reason.BAD_ID, LONGEST_ID))
    id_ = _chosen_id(by_name)
    to = _name(by_name[TO], Reason.BAD_DESTINATION, 512) if TO in by_name else ""
    if wanted is None or wanted.due is None:
        return _undelayed(headers, found, by_name, asked, id_, to, now)
    left = without(headers, found) + b"".join(each.left for each in asked)
    return Request(schedule=_schedule(wanted, wanted.due, by_name, now, limits), dialect=wanted.dialect, headers=left, id=id_, to=to)


def _chosen_id(by_name: Headers) -> str:
    """If there is an occurrence header as well, the id is that of an earlier delivery, and not chosen."""
    return _name(by_name[ID], Reason.BAD_ID, LONGEST_ID) if ID in by_name and OCCURRENCE not in by_name else ""


def _asked(by_name: Headers, now: int, limits: Limits) -> list[Asked]:
    present = {_DIALECT_OF[name].name: _DIALECT_OF[name] for name in by_name if name in _DIALECT_OF}
    asked = []
    for dialect in DIALECTS if len(present) > 1 else present.values():
        if dialect.name in present:
            try:
                asked.append(dialect.read(by_name, now, limits))
            except Refusal as refusal:
                refusal.dialect = refusal.dialect or dialect.name
                raise
    return asked


def _undelayed(headers: bytes, found: list[Field], by_name: Headers, asked: list[Asked], id_: str, to: str, now: int) -> PassThrough:
    """A numeric `x-delay` that asks for no delay stays as it was: the plugin leaves it, and a negated one marks a delivered message.

    It is due now, so its end must not have passed.
    """
    alone = next((name for name in _MODIFIERS if name in by_name), None)
    if alone is not None and not asked:
        raise Refusal(Reason.INCOMPLETE_SCHEDULE, f"{alone.decode()} goes with a delay header")
    dialect = asked[0].dialect if asked else ""
    _ends(by_name, now, dialect)
    _misfire(by_name.get(MISFIRE))
    kept = by_name.get(own.DELAY) if any(each.dialect == rabbitmq.NAME for each in asked) else None
    removed = [field for field in found if field is not kept]
    return PassThrough(headers=without(headers, removed), dialect=dialect, id=id_, to=to)


def _schedule(wanted: Asked, due: int, by_name: Headers, now: int, limits: Limits) -> Schedule:
    if due - now > limits.max_delay:
        raise Refusal(Reason.DELAY_TOO_LONG, f"due in {due - now} ms, more than {limits.max_delay} ms from now", wanted.dialect)
    if TIMEZONE in by_name and (wanted.recurrence is None or not wanted.recurrence.cron):
        raise Refusal(Reason.INCOMPLETE_SCHEDULE, "x-delay-timezone goes with a cron", wanted.dialect)
    ends = _ends(by_name, due, wanted.dialect)
    return Schedule(due=due, recurrence=wanted.recurrence, ends=ends, misfire=_misfire(by_name.get(MISFIRE)))


def _ends(by_name: Headers, due: int, dialect: str) -> int | None:
    """An end beyond the year 9999 is cut to the end of that year: nothing is due later, and an export's columns do not hold every number."""
    if ENDS not in by_name:
        return None
    ends = min(own.own_instant(by_name[ENDS]), LATEST_INSTANT)
    if due > ends:
        raise Refusal(Reason.ENDS_BEFORE_DUE, f"x-delay-ends lies {due - ends} ms before the first delivery", dialect)
    return ends


def _misfire(field: Field | None) -> Misfire:
    if field is None:
        return "fire"
    rule = text(field)
    for known in get_args(Misfire):
        if rule == known:
            return known  # type: ignore[no-any-return]  # get_args does not say that it gives Misfires
    raise Refusal(Reason.BAD_MISFIRE, f"x-delay-misfire: {rule!r:.80} is none of {', '.join(get_args(Misfire))}")


def _name(field: Field, reason: Reason, longest: int) -> str:
    value = str(number(field)) if field.tag in INTEGERS else text(field)
    if not 0 < len(value.encode()) <= longest or any(char < " " or char == "\x7f" for char in value):
        raise Refusal(reason, f"{field.name.decode()} holds 1 to {longest} bytes of text without control characters")
    return value
