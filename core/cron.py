"""Cron expressions: cronsim's, narrowed to five fields and bounded. Instants are epoch milliseconds; what cannot be read is a ValueError.

Summer time, after Debian's cron: a job at fixed hours and minutes that falls into the gap runs at the first minute after it, and once where the
clocks go back; a job whose minute or hour begins with `*` runs at every real match.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST = 256
MOST_ITEMS = 64
_ALIASES = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}  # fmt: skip
_ALPHABET = re.compile(r"[0-9A-Za-z*?/,\-# \t]+")
_RANGE_OF_ONE = re.compile(r"\b0*([0-9A-Z]+)-0*\1/[0-9]*[1-9][0-9]*(?=,|$)", re.IGNORECASE)
"""`5-5/2` is 5; cronsim takes it for `5/2`, which is 5 and every second one after it."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = 60_000


class _Cron(CronSim):
    """Cronsim's, but hours go forward by real time."""

    def advance_hour(self) -> bool:
        """Forward to an hour that matches, or to the next day; whether that changed anything.

        Where clocks go forward at midnight (Cairo, Beirut, Havana, Santiago), that day begins at 1:00, after the gap. Cronsim continues from a
        midnight that did not exist: it takes 1:00 for hour 0, and skips hour 1. It also turns the minute to 0: where clocks go back by 45 minutes
        within an hour (Chatham), it would do so for ever.
        """
        if self.dt.tzinfo in (None, UTC):
            return super().advance_hour()
        real = self.dt.astimezone(UTC).astimezone(self.dt.tzinfo)
        if real != self.dt:
            self.dt = real
            return True
        if self.dt.hour in self.hours:
            return False
        day = self.dt.date()
        while self.dt.hour not in self.hours and self.dt.date() == day:
            self._next_hour()
        return True

    def _next_hour(self) -> None:
        begun = self.dt
        self.tick(3600 - begun.minute * 60 - begun.second)
        if self.dt.utcoffset() != begun.utcoffset():
            self.dt = begun.replace(second=0)
            while self.dt.hour == begun.hour and self.dt.date() == begun.date():
                self.tick(60)


@lru_cache(maxsize=1024)
def parse_cron(text: str) -> str:
    """The expression in five plain fields: `@daily` spelled out, `?` read as `*`.

    Bounded before it is parsed: a list of 100,000 items would keep a parser busy for the better part of a second.
    """
    if len(text) > LONGEST:
        raise ValueError(f"a cron expression holds at most {LONGEST} characters, this one has {len(text)}")
    expanded = _ALIASES.get(text.strip().lower(), text)
    if not _ALPHABET.fullmatch(expanded):
        raise ValueError(f"{text!r} is not a cron expression")
    parts = ["*" if part == "?" else _RANGE_OF_ONE.sub(r"\1", part) for part in expanded.split()]
    if len(parts) != 5:
        raise ValueError(f"{text!r} has {len(parts)} fields; a cron expression has 5: minute, hour, day, month, weekday")
    if any(part.count(",") >= MOST_ITEMS for part in parts):
        raise ValueError(f"a field of a cron expression holds at most {MOST_ITEMS} items")
    try:
        CronSim(" ".join(parts), _EPOCH)
    except CronSimError as error:
        raise ValueError(f"{text!r}: {_reason(parts, str(error))}") from error
    return " ".join(parts)


def _reason(parts: list[str], error: str) -> str:
    """Cronsim's reason, except for valid days that none of the months has: those it calls bad."""
    with suppress(CronSimError):
        CronSim(" ".join([*parts[:3], "*", parts[4]]), _EPOCH)
        if "day-of-month" in error:
            return "it never matches, because none of its months has such a day"
    return error


@lru_cache(maxsize=1024)
def parse_zone(name: str) -> tzinfo:
    """The IANA time zone of this name."""
    if name == "UTC":
        return UTC  # for this very object cronsim skips its handling of summer time
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # OSError: the name of a folder of the database
        raise ValueError(f"{name!r:.80} is not an IANA time zone") from error


def matches(expression: str, zone: str, after: int) -> Iterator[int]:
    """The instants after `after` at which a parsed expression matches, in rising order; ends where 50 years hold none, or the calendar ends."""
    try:
        moment = (_EPOCH + timedelta(seconds=after // 1000)).astimezone(parse_zone(zone))
        for match in _Cron(expression, moment):
            instant = int(match.timestamp()) * 1000
            # Asked inside the repeated hour, cronsim answers with its first round, which is over.
            if instant > after:
                after = instant
                yield instant
    except OverflowError:
        return


def next_match(expression: str, zone: str, after: int) -> int | None:
    """The first match after `after`. Matches are at whole minutes, so that it is the same within a minute."""
    return _next_match(expression, zone, after - after % _MINUTE)


@lru_cache(maxsize=4096)
def _next_match(expression: str, zone: str, minute: int) -> int | None:
    """Remembered, because a herd of jobs asks the same at every full hour, and of an expression that matches once in decades again and again."""
    return next(matches(expression, zone, minute), None)
