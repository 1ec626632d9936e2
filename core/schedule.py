"""What a message's headers ask for, as plain values. Times are epoch milliseconds, UTC; durations are milliseconds."""

from __future__ import annotations

from typing import Literal

import msgspec

Misfire = Literal["fire", "skip", "all"]
"""What to do with what fell due while the bridge was down: deliver once, not at all, or each one."""


class Recurrence(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """How a schedule goes on after its first occurrence.

    Without `cron`: occurrence n is due at `start + delay + (n - 1) * period`, for n = 1 .. repeat + 1. No drift: always counted from `start`.
    With `cron`: every match after `start` begins a series, its first message `delay` after the match, then `repeat` further ones a `period`
    apart (ActiveMQ's documented meaning). Plain cron is the series of one message and no delay.
    """

    start: int
    delay: int = 0
    period: int = 0
    repeat: int = 0
    cron: str = ""
    zone: str = "UTC"


class Schedule(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """When one occurrence is due, and how to find the next.

    `tie` counts the earlier occurrences of this schedule that were due at the very same instant (overlapping cron series). `moved_from` is
    when the occurrence was due before it was rescheduled by hand (`core.recurrence.moved`), None where it was not.
    """

    due: int
    occurrence: int = 1
    recurrence: Recurrence | None = None
    ends: int | None = None
    misfire: Misfire = "fire"
    tie: int = 0
    moved_from: int | None = None


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A readable delay: the schedule, the producer's own id and destination where given, and the headers that are left."""

    schedule: Schedule
    dialect: str
    headers: bytes
    id: str = ""
    to: str = ""


class PassThrough(msgspec.Struct, frozen=True, kw_only=True):
    """No delay was asked for (no delay header, or one whose system says that this value means none): deliver at once.

    `dialect` names the header that said so, and is empty where there was none.
    """

    headers: bytes
    dialect: str = ""
    id: str = ""
    to: str = ""


class Cancel(msgspec.Struct, frozen=True, kw_only=True):
    """The message is a cancellation; its body is ignored."""

    id: str


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The headers ask for what cannot be honoured. `reason` is a stable code of docs/headers.md, `detail` a sentence for people."""

    reason: str
    detail: str
    dialect: str = ""


Reading = Request | PassThrough | Cancel | Refused


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator allows. `levels` is RocketMQ's table of delay levels, in milliseconds."""

    max_delay: int = 10 * 366 * 86_400_000
    min_period: int = 1_000
    max_repeat: int = 10_000
    levels: tuple[int, ...] = ()
