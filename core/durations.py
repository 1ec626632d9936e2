"""Durations, instants and delay levels as people write them; grammar in docs/headers.md. All values are milliseconds; what cannot be read is a ValueError."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta

INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
"""A whole number in text. Python's own `int` reads foreign digits, blanks and underscores as well."""

DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ: MessageStoreConfig.messageDelayLevel."""

EARLIEST_INSTANT = 100_000_000_000
"""Epoch milliseconds of March 1973; a number below it is epoch seconds (of any time up to the year 5138) sent by mistake."""

LATEST_INSTANT = 253_402_300_799_999
"""The last millisecond of the year 9999, as far as RFC 3339 reaches."""

HOUR_MS = 3_600_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = (604_800_000, 86_400_000, HOUR_MS, 60_000, 1_000)  # w d h m s; both patterns end in a smaller part
_NUMBER = "([0-9]{1,15})"
_WORDS = re.compile(f"(?=[0-9])(?:{_NUMBER}w)?(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m(?!s))?(?:{_NUMBER}s)?(?:{_NUMBER}ms)?")
_ISO = re.compile(
    f"P(?=[0-9T])(?:{_NUMBER}W)?(?:{_NUMBER}D)?(?:T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}(?:[.,]([0-9]{{1,9}}))?S)?)?"
)
_FRACTION = re.compile("[0-9][.,][0-9]")
_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]((?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?([Zz]|[+-][0-9]{2}:[0-5][0-9])"
)


def _fraction(digits: str | None) -> int:
    """The decimals of a second, rounded up to milliseconds: a delay is never shorter than asked for."""
    return -(-int((digits or "0").ljust(9, "0")) // 1_000_000)


def parse_duration(text: str) -> int:
    """`90s`, `1d12h`, `PT15M`, or a whole number of milliseconds."""
    if INTEGER.fullmatch(text):
        return int(text)
    found = _WORDS.fullmatch(text) or _ISO.fullmatch(text)
    if found is None:
        hint = ": write a fraction as 1500ms, or as PT1.5S" if _FRACTION.search(text) else ""
        raise ValueError(f"{text!r:.80} is not a duration such as 90s, 1d12h or PT15M{hint}")
    *parts, last = found.groups()
    small = int(last or 0) if found.re is _WORDS else _fraction(last)
    return sum(int(part or 0) * unit for part, unit in zip(parts, _UNITS, strict=True)) + small


def duration(ms: int) -> str:
    """Milliseconds as people write them, in one unit: `90s`, `2h`; what `parse_duration` reads."""
    for unit, size in zip("wdhms", _UNITS, strict=True):
        if ms and not ms % size and unit != "w":
            return f"{ms // size}{unit}"
    return f"{ms}ms" if ms else "0"


def parse_instant(text: str) -> int:
    """RFC 3339 with an offset, or a whole number of epoch milliseconds; the result is epoch milliseconds."""
    if INTEGER.fullmatch(text):
        return int(text)
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r:.80} is neither epoch milliseconds nor RFC 3339 with an offset")
    day, time, fraction, offset = found.groups()
    moment = datetime.fromisoformat(f"{day}T{time}{offset.upper()}")
    return (moment - _EPOCH) // timedelta(milliseconds=1) + _fraction(fraction)


def parse_levels(text: str) -> tuple[int, ...]:
    """A table of delay levels, such as DEFAULT_LEVELS: durations apart by blanks, each longer than the one before."""
    levels = tuple(parse_duration(word) for word in text.split())
    if not levels or levels[0] <= 0 or any(later <= earlier for earlier, later in itertools.pairwise(levels)):
        raise ValueError(f"{text!r:.200}: levels are durations in rising order, such as {DEFAULT_LEVELS[:13]!r}")
    return levels
