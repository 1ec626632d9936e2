"""What a message with these headers would do, for `delaybridge explain` and for tests: the same code as the daemon's, and no message sent."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Literal

import msgspec

from .fields import MalformedTableError, Value, plain, table
from .headers import read
from .recurrence import upcoming
from .schedule import Cancel, Limits, Misfire, PassThrough, Refused, Request

if TYPE_CHECKING:
    from collections.abc import Mapping

Verdict = Literal["delayed", "pass_through", "cancel", "refused"]


class Delivery(msgspec.Struct, frozen=True):
    """One delivery to come; `due` is epoch milliseconds."""

    occurrence: int
    due: int


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on a message, and what follows from it.

    `dialect` names whose headers decided. A refusal has a `reason` (a code of docs/headers.md) and a `detail`. A delayed message has its next `deliveries`,
    of which there are `more` than shown, `ends` and `misfire`. `id` and `to` are the producer's, empty where it gave none. `headers` are those that
    are left on the delivered message, less the delivery headers; names as text, the last of duplicates.
    """

    verdict: Verdict
    dialect: str = ""
    reason: str = ""
    detail: str = ""
    id: str = ""
    to: str = ""
    deliveries: tuple[Delivery, ...] = ()
    more: bool = False
    ends: int | None = None
    misfire: Misfire = "fire"
    headers: dict[str, Value] = {}


def explain(headers: bytes | Mapping[str, Value], now: int, limits: Limits, count: int = 5) -> Explanation:
    """Read a message's headers as if the broker had received it at `now` (epoch ms), and look `count` deliveries ahead. Never raises on what it reads."""
    raw = headers if isinstance(headers, bytes) else table(headers.items())
    reading = read(raw, now, limits)
    if isinstance(reading, Refused):
        return Explanation(verdict="refused", dialect=reading.dialect, reason=reading.reason, detail=reading.detail, headers=_plain(raw))
    if isinstance(reading, Cancel):
        return Explanation(verdict="cancel", id=reading.id)
    if isinstance(reading, PassThrough):
        left = plain(reading.headers)
        return Explanation(verdict="pass_through", dialect=reading.dialect, id=reading.id, to=reading.to, headers=left)
    return _delayed(reading, count)


def _delayed(request: Request, count: int) -> Explanation:
    schedule = request.schedule
    ahead = list(islice(upcoming(schedule), count + 1))
    return Explanation(
        verdict="delayed",
        dialect=request.dialect,
        id=request.id,
        to=request.to,
        deliveries=tuple(Delivery(each.occurrence, each.due) for each in ahead[:count]),
        more=len(ahead) > count,
        ends=schedule.ends,
        misfire=schedule.misfire,
        headers=plain(request.headers),
    )


def _plain(raw: bytes) -> dict[str, Value]:
    """A refused message keeps its headers, unless the table itself is damaged."""
    try:
        return plain(raw)
    except MalformedTableError:
        return {}
