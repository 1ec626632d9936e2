"""Apache RocketMQ: delay levels, and the timer messages of version 5 (MessageConst, HookUtils.handleScheduleMessage)."""

from ..durations import DEFAULT_LEVELS, parse_levels
from ..schedule import Limits
from .base import Asked, Dialect, Headers, after, at, number

NAME = "rocketmq"
LEVEL = b"DELAY"
SECONDS, MILLISECONDS, DELIVER = b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS"
_LEVELS = parse_levels(DEFAULT_LEVELS)


def read(headers: Headers, now: int, limits: Limits) -> Asked:
    """A level above 0 clears the timers; of the timers only the first that is there counts."""
    level = number(headers[LEVEL]) if LEVEL in headers else 0
    if level > 0:
        levels = limits.levels or _LEVELS
        return after(levels[min(level, len(levels)) - 1], now, NAME)
    if SECONDS in headers:
        return after(number(headers[SECONDS]) * 1000, now, NAME)
    if MILLISECONDS in headers:
        return after(number(headers[MILLISECONDS]), now, NAME)
    return at(number(headers[DELIVER]) if DELIVER in headers else 0, NAME)


DIALECT = Dialect(NAME, (LEVEL, SECONDS, MILLISECONDS, DELIVER), (), read)
