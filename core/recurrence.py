"""Which occurrence comes next. Pure questions: all state is in the Schedule, all times are arguments (epoch milliseconds).

`down` is when the bridge did not run: an occurrence that fell due then is *missed*, and the misfire rule decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from .cron import matches, next_match
from .downtimes import NONE
from .durations import LATEST_INSTANT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .downtimes import Downtimes
    from .schedule import Recurrence, Schedule

Decision = Literal["deliver", "misfire_skipped", "ended"]
"""What to do with an occurrence that is handed out: deliver it, or let it expire for this reason."""

MOST_SERIES = 100


def first(recurrence: Recurrence) -> int | None:
    """When the first occurrence is due; None where a cron has no match."""
    return _instant_after(recurrence, recurrence.start + recurrence.delay) if recurrence.cron else recurrence.start + recurrence.delay


def expired(schedule: Schedule, now: int) -> bool:
    """Whether the schedule's end has passed: what is handed out now expires (`ended`)."""
    return schedule.ends is not None and now > schedule.ends


def decision(schedule: Schedule, down: Downtimes, now: int) -> Decision:
    """What to do with an occurrence that is handed out, missed or not. `fire` delivers the oldest missed one; `following` drops the others."""
    if expired(schedule, now):
        return "ended"
    return "misfire_skipped" if schedule.misfire == "skip" and missed(schedule, down) else "deliver"


def missed(schedule: Schedule, down: Downtimes) -> bool:
    """Whether this occurrence fell due while the bridge was down."""
    return down.end_of(schedule.due) is not None


def resumed(schedule: Schedule, down: Downtimes) -> int | None:
    """When the bridge ran again after a missed occurrence, from where `fire` and `skip` go on; None if nothing was missed, and for `all`."""
    return None if schedule.misfire == "all" else down.end_of(_begun(schedule))


def following(schedule: Schedule, now: int, down: Downtimes) -> Schedule | None:
    """The occurrence after this one, which was delivered or has expired; None where there is none, at the latest after the year 9999.

    In a repeat, occurrences that are skipped after a missed one count as used up; with a cron the occurrence number rises by one, because
    counting a year of missed minutes would take seconds.
    """
    if schedule.recurrence is None or expired(schedule, now):
        return None
    after, resume = _begun(schedule), resumed(schedule, down)
    found = None if resume else _tied(schedule, schedule.recurrence, after)
    if found is None:
        after = resume - 1 if resume else after
        found = _next_match(schedule, schedule.recurrence, after) if schedule.recurrence.cron else _next_period(schedule.recurrence, after)
    if found is None or found[0] > (LATEST_INSTANT if schedule.ends is None else schedule.ends):
        return None
    due, occurrence, tie = found
    return msgspec.structs.replace(schedule, due=due, occurrence=occurrence, tie=tie, moved_from=None)


def upcoming(schedule: Schedule) -> Iterator[Schedule]:
    """The occurrence itself and those that follow, where each is delivered when it is due."""
    ahead: Schedule | None = schedule
    while ahead is not None:
        yield ahead
        ahead = following(ahead, ahead.due, NONE)


def moved(schedule: Schedule, due: int) -> Schedule:
    """The same occurrence at another instant, set by hand; the recurrence goes on as before after both."""
    return msgspec.structs.replace(schedule, due=due, moved_from=_place(schedule))


def crowded(recurrence: Recurrence) -> bool:
    """Whether more than MOST_SERIES series of a cron would run at once, judged by the first matches and by those after the first pause."""
    span = recurrence.repeat * recurrence.period
    begun, alive = None, 0
    pauses = 0
    for match in matches(recurrence.cron, recurrence.zone, recurrence.start):
        if begun is None or match - begun > span:
            pauses += begun is not None
            begun, alive = match, 0
        alive += 1
        if alive > MOST_SERIES or pauses == 2:
            break
    return alive > MOST_SERIES


def _begun(schedule: Schedule) -> int:
    """All later occurrences are due after this instant."""
    return max(_place(schedule), schedule.due)


def _place(schedule: Schedule) -> int:
    return schedule.due if schedule.moved_from is None else schedule.moved_from


def _next_period(recurrence: Recurrence, after: int) -> tuple[int, int, int] | None:
    begin = recurrence.start + recurrence.delay
    occurrence = (after - begin) // recurrence.period + 2
    return None if occurrence > recurrence.repeat + 1 else (begin + (occurrence - 1) * recurrence.period, occurrence, 0)


def _tied(schedule: Schedule, recurrence: Recurrence, at: int) -> tuple[int, int, int] | None:
    """The message of one more series of a cron at the instant of this one, if there is any."""
    if at != _place(schedule) or not recurrence.cron or schedule.tie + 1 >= _occurrences_at(recurrence, at):
        return None
    return at, schedule.occurrence + 1, schedule.tie + 1


def _next_match(schedule: Schedule, recurrence: Recurrence, after: int) -> tuple[int, int, int] | None:
    due = _instant_after(recurrence, after)
    return None if due is None else (due, schedule.occurrence + 1, 0)


def _instant_after(recurrence: Recurrence, after: int) -> int | None:
    """The first instant after `after` at which any series has a message: of the running ones, and of the one that begins next."""
    shifted = after - recurrence.delay
    span = recurrence.repeat * recurrence.period
    if not span:
        match = next_match(recurrence.cron, recurrence.zone, shifted)
        return None if match is None else match + recurrence.delay
    best = None
    for match in matches(recurrence.cron, recurrence.zone, max(recurrence.start, shifted - span)):
        begins = match > shifted
        instant = match if begins else match + ((shifted - match) // recurrence.period + 1) * recurrence.period
        best = instant if best is None else min(best, instant)
        if begins:
            break
    return None if best is None else best + recurrence.delay


def _occurrences_at(recurrence: Recurrence, instant: int) -> int:
    """How many series have a message at this very instant."""
    shifted = instant - recurrence.delay
    span = recurrence.repeat * recurrence.period
    count = 0
    if span:
        for match in matches(recurrence.cron, recurrence.zone, max(recurrence.start, shifted - span - 1)):
            if match > shifted:
                break
            count += (shifted - match) % recurrence.period == 0
    return count
