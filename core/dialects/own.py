"""delaybridge's own headers. `x-delay` belongs to RabbitMQ's plugin as well: numbers are read as the plugin reads them, durations are ours."""

from ..durations import EARLIEST_INSTANT
from ..fields import Field
from ..reasons import Reason, Refusal
from ..schedule import Limits, Recurrence
from . import rabbitmq
from .base import Asked, Dialect, Headers, binary, cron, duration, instant, natural, recurring, shown, zone

NAME = "delaybridge"
DELAY, UNTIL, CRON = b"x-delay", b"x-delay-until", b"x-delay-cron"
PERIOD, REPEAT, ENDS = b"x-delay-period", b"x-delay-repeat", b"x-delay-ends"


def own_instant(field: Field) -> int:
    """An instant of our own headers: epoch seconds, sent by mistake, are refused."""
    value = instant(field)
    if value < EARLIEST_INSTANT:
        raise Refusal(Reason.BAD_INSTANT, f"{shown(field)} lies before March 1973; milliseconds are expected")
    return value


def read(headers: Headers, now: int, limits: Limits) -> Asked:
    """See "Combinations" in docs/headers.md."""
    name, delay, left = _delay(headers.get(DELAY), limits)
    if len(headers) == 1 and DELAY in headers:
        return Asked(name, now + delay if delay else None, left=left)
    until = own_instant(headers[UNTIL]) if UNTIL in headers else None
    expression = _cron(headers)
    if until is not None and (delay or expression):
        raise Refusal(Reason.AMBIGUOUS_SCHEDULE, "x-delay-until goes with neither x-delay nor x-delay-cron")
    period, repeat = _repeats(headers, expression, until, now, delay)
    if expression or period:
        start = now if until is None else max(until, now)
        lead = delay if expression or until is not None else delay or period
        plan = Recurrence(start=start, delay=lead, period=period, repeat=repeat, cron=expression, zone=zone(headers))
        return recurring(plan, name if delay else NAME, limits)._replace(left=left)
    if until is not None:
        return Asked(NAME, until)
    return Asked(name, now + delay if delay else None, left=left)


def _delay(field: Field | None, limits: Limits) -> tuple[str, int, bytes]:
    """The dialect that the value belongs to, the delay (0: none), and the header that is left on delivery."""
    if field is None:
        return NAME, 0, b""
    delay = rabbitmq.plugin_delay(field)
    name = NAME if delay is None else rabbitmq.NAME
    if delay is None:
        delay = duration(field)
    if delay > limits.max_delay:
        raise Refusal(Reason.DELAY_TOO_LONG, f"{shown(field)} is more than {limits.max_delay} ms", name)
    if delay < 0 and binary(field) and 0 <= int.from_bytes(field.payload, "little", signed=True) < -delay:
        # Some seconds in the order of .NET's BitConverter: as a negative number it would ask for no delay.
        raise Refusal(Reason.BAD_NUMBER, f"{shown(field)} is {delay} ms, as an integer in bytes is big-endian", name)
    if delay <= 0:
        return name, 0, b""
    return name, delay, rabbitmq.negated(delay) if name == rabbitmq.NAME else b""


def _cron(headers: Headers) -> str:
    expression = cron(headers.get(CRON))
    if CRON in headers and not expression:
        raise Refusal(Reason.BAD_CRON, "x-delay-cron is empty")
    return expression


def _repeats(headers: Headers, expression: str, until: int | None, now: int, delay: int) -> tuple[int, int]:
    """Period and repeat; without a repeat, as many as fit before the end."""
    if PERIOD not in headers:
        repeat = natural(headers.get(REPEAT))
        if REPEAT in headers and (repeat or not expression):
            raise Refusal(Reason.INCOMPLETE_SCHEDULE, "x-delay-repeat needs x-delay-period")
        return 0, 0
    period = duration(headers[PERIOD])
    if period <= 0:
        raise Refusal(Reason.PERIOD_TOO_SHORT, f"{shown(headers[PERIOD])} must be above zero")
    if REPEAT in headers:
        return period, natural(headers[REPEAT])
    if expression or ENDS not in headers:
        raise Refusal(Reason.INCOMPLETE_SCHEDULE, "x-delay-period needs x-delay-repeat, or, without a cron, x-delay-ends")
    begin = now + (delay or period) if until is None else max(until, now)
    return period, max(0, own_instant(headers[ENDS]) - begin) // period


DIALECT = Dialect(NAME, (DELAY, UNTIL, CRON, PERIOD), (REPEAT,), read)
