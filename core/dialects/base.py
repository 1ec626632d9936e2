"""What a dialect is, and how a header's value is read by its wire type. Rules for producers: docs/headers.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..cron import parse_cron, parse_zone
from ..durations import INTEGER, LATEST_INSTANT, parse_duration, parse_instant
from ..fields import Field, value_of
from ..reasons import Reason, Refusal
from ..recurrence import MOST_SERIES, crowded, first
from ..schedule import Limits, Recurrence

Headers = Mapping[bytes, Field]
"""The control headers of one message by canonical name (hyphens), the last of duplicates."""


class Asked(NamedTuple):
    """What one dialect asks for: the first due time, None for no delay. `left` is appended to the delivered message's headers."""

    dialect: str
    due: int | None
    recurrence: Recurrence | None = None
    left: bytes = b""


class Dialect(NamedTuple):
    """A name, the headers whose presence asks for a delay, those that only go with them, and how to read them (epoch ms in, Refusal raised)."""

    name: str
    asks: tuple[bytes, ...]
    also: tuple[bytes, ...]
    read: Callable[[Headers, int, Limits], Asked]


TIMEZONE = b"x-delay-timezone"
INTEGERS = frozenset("bBsuIilL")
_TYPES = {
    "t": "boolean",
    "T": "timestamp",
    "D": "decimal",
    "F": "table",
    "A": "array",
    "V": "null",
    "x": "bytes",
    "f": "float",
    "d": "double",
}
"""What producers call the types that are refused."""


def shown(field: Field) -> str:
    """A header for a person: its name, and its value cut short."""
    return f"{field.name.decode(errors='replace')}: {value_of(field)!r:.80}"


def wrong_type(field: Field, wanted: str) -> Refusal:
    """The refusal of a header whose wire type holds no such value."""
    what = shown(field)
    if field.tag == "T":  # its bytes tell nobody anything
        what = f"{field.name.decode(errors='replace')}: {int.from_bytes(field.payload)}"
    return Refusal(Reason.WRONG_TYPE, f"{what} ({_TYPES.get(field.tag, field.tag)}) is not {wanted}")


def text(field: Field) -> str:
    """Text as it is; of a byte array, without the JSON quotes that Spring puts around (Kafka)."""
    if field.tag not in "Sx":
        raise wrong_type(field, "text")
    try:
        value = field.payload.decode()
    except UnicodeDecodeError as error:
        raise wrong_type(field, "UTF-8 text") from error
    if field.tag == "x" and len(value) > 1 and value[0] == value[-1] == '"':
        return value[1:-1]
    return value


def binary(field: Field) -> bool:
    """Whether it is an integer as its bytes (Kafka), not as its digits."""
    payload = field.payload
    return field.tag == "x" and len(payload) in {4, 8} and not (payload.isascii() and payload.decode().isprintable())


def scalar(field: Field) -> int | str:
    """A whole number, however it was sent, or the text that is none."""
    if field.tag in INTEGERS:
        value = value_of(field)
        assert isinstance(value, int)
        return value
    if binary(field):
        return int.from_bytes(field.payload, signed=True)
    if field.tag not in "Sx":
        raise wrong_type(field, "a number or text")
    written = text(field)
    return int(written) if INTEGER.fullmatch(written) else written


def said(field: Field) -> int | str:
    """As `scalar`, of a header that asks for something: bytes that nobody can have meant as an integer are refused."""
    value = scalar(field)
    if isinstance(value, int) and value > LATEST_INSTANT and binary(field):  # a double, or an integer in the order of .NET's BitConverter
        raise Refusal(
            Reason.BAD_NUMBER, f"{shown(field)} is {value} as a big-endian integer: send digits, or the bytes of an integer in that order"
        )
    return value


def number(field: Field) -> int:
    """A whole number of either sign."""
    value = said(field)
    if isinstance(value, str):
        raise Refusal(Reason.BAD_NUMBER, f"{shown(field)} is not a whole number")
    return value


def natural(field: Field | None) -> int:
    """A whole number of zero or more; zero where the header is not there."""
    if field is None:
        return 0
    value = number(field)
    if value < 0:
        raise Refusal(Reason.NEGATIVE_VALUE, f"{shown(field)} must not be negative")
    return value


def duration(field: Field) -> int:
    """Milliseconds, or a duration in text."""
    value = said(field)
    if isinstance(value, int):
        return value
    try:
        return parse_duration(value)
    except ValueError as error:
        raise Refusal(Reason.BAD_DURATION, f"{field.name.decode()}: {error}") from error


def instant(field: Field) -> int:
    """Epoch milliseconds, or RFC 3339."""
    value = said(field)
    if isinstance(value, int):
        return value
    try:
        return parse_instant(value)
    except ValueError as error:
        raise Refusal(Reason.BAD_INSTANT, f"{field.name.decode()}: {error}") from error


def cron(field: Field | None) -> str:
    """A parsed cron expression; empty where the header is not there, or is empty."""
    value = "" if field is None else text(field)
    if not value:
        return ""
    try:
        return parse_cron(value)
    except ValueError as error:
        raise Refusal(Reason.BAD_CRON, str(error)) from error


def zone(headers: Headers) -> str:
    """The name of the cron's time zone."""
    field = headers.get(TIMEZONE)
    if field is None:
        return "UTC"
    name = text(field)
    try:
        parse_zone(name)
    except ValueError as error:
        raise Refusal(Reason.BAD_TIMEZONE, str(error)) from error
    return name


def at(due: int, dialect: str) -> Asked:
    """One delivery at an instant; zero or less is none."""
    return Asked(dialect, due if due > 0 else None)


def after(delay: int, now: int, dialect: str) -> Asked:
    """One delivery after a delay; zero or less is none."""
    return Asked(dialect, now + delay if delay > 0 else None)


def agreed(asked: list[Asked]) -> Asked:
    """What all of them ask for; no delay agrees with any."""
    if len(asked) == 1:
        return asked[0]
    asking = [each for each in asked if each.due is not None]
    if any((each.due, each.recurrence) != (asking[0].due, asking[0].recurrence) for each in asking):
        names = " and ".join(dict.fromkeys(each.dialect for each in asking))
        raise Refusal(Reason.AMBIGUOUS_SCHEDULE, f"the headers of {names} ask for different schedules")
    return asking[0] if asking else asked[0]


def recurring(plan: Recurrence, dialect: str, limits: Limits) -> Asked:
    """A plan that goes on after its first occurrence, checked."""
    if plan.repeat > limits.max_repeat:
        raise Refusal(Reason.REPEAT_TOO_LARGE, f"{plan.repeat} repeats are more than {limits.max_repeat}")
    if plan.repeat and plan.period < max(limits.min_period, 1):
        raise Refusal(Reason.PERIOD_TOO_SHORT, f"a period of {plan.period} ms is below {limits.min_period} ms")
    if max(plan.period, plan.delay) > limits.max_delay:
        raise Refusal(Reason.DELAY_TOO_LONG, f"{max(plan.period, plan.delay)} ms are more than {limits.max_delay} ms")
    if plan.cron and plan.repeat and crowded(plan):
        raise Refusal(Reason.OVERLAPPING_SERIES, f"{plan.cron!r}: more than {MOST_SERIES} series would run at once")
    due = first(plan)
    if due is None:
        raise Refusal(Reason.BAD_CRON, f"{plan.cron!r} never matches")
    return Asked(dialect, due, plan if plan.cron or plan.repeat else None)


def scheduled(start: int, delay: int, period: int, repeat: int, expression: str, zone: str, dialect: str, limits: Limits) -> Asked:
    """ActiveMQ's four properties, by its documentation: a period without a delay puts the first delivery after one period."""
    if not (delay or period or expression):
        return Asked(dialect, None)
    first_delay = delay if expression else delay or period
    plan = Recurrence(start=start, delay=first_delay, period=period, repeat=repeat, cron=expression, zone=zone)
    return recurring(plan, dialect, limits)
