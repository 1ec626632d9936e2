"""When somebody listened at a destination, and when nobody did. The rule is in `rule`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...core.durations import HOUR_MS
from ..question import FOREVER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..question import Question


@dataclass(frozen=True, slots=True)
class Seen:
    """What an observer says: it has seen what arrived at its destination from `since_ms` (-1: from the beginning) to `at_ms`, and that is in files.

    Without an `observer`: the destination is a topic, and is read so far.
    """

    observer: str | None
    broker: str
    address: str
    at_ms: int
    since_ms: int = -1


@dataclass(frozen=True, slots=True)
class Gap:
    """Nobody listened at a destination until `observer` began, at `until_ms`: since `before` had ended, at `since_ms`; or ever, where these two say nothing.

    Without an `observer`: the destination is a topic, which holds what arrived from then on.
    """

    broker: str
    address: str
    observer: str | None
    until_ms: int
    before: str | None = None
    since_ms: int = -1


def furthest(marks: Iterable[Seen], question: Question) -> list[Seen]:
    """One mark for each destination: observers of one destination follow each other, so the latest counts.

    If that one has ended, it reaches to the end, unless one that began after it goes on, and is still behind it.
    """
    return [_furthest(those, question) for _, those in sorted(_by_place(marks).items())]


def _furthest(marks: list[Seen], question: Question) -> Seen:
    latest = max(marks, key=lambda one: one.at_ms)
    if not _has_ended(latest, question):
        return latest
    behind = [one for one in marks if one.since_ms > latest.since_ms and not _has_ended(one, question)]
    return replace(max(behind, key=lambda one: one.since_ms), at_ms=latest.at_ms) if behind else replace(latest, at_ms=FOREVER)


def _has_ended(mark: Seen, question: Question) -> bool:
    return mark.observer is not None and question.has_ended(mark.observer)


def _by_place(marks: Iterable[Seen]) -> dict[tuple[str, str], list[Seen]]:
    found: dict[tuple[str, str], list[Seen]] = {}
    for mark in marks:
        found.setdefault((mark.broker, mark.address), []).append(mark)
    return found


def of(marks: Iterable[Seen], question: Question, cut: Iterable[Gap] = ()) -> list[Gap]:
    """When nobody listened, as far as something that is due in the window may have arrived then, however late. With those of topics that were `cut`.

    After an observer that is named as `ended` nothing arrived until the next one.
    """
    found = list(cut)
    for (broker, address), those in sorted(_by_place(marks).items()):
        reached, before = -1, None
        for run in sorted(those, key=lambda one: one.since_ms):
            if run.since_ms > reached and before not in question.ended:
                found.append(Gap(broker, address, run.observer, run.since_ms, before, reached))
            if run.at_ms > reached:
                reached, before = run.at_ms, run.observer
    return [gap for gap in found if gap.until_ms + question.skew > question.since]


def unseen(gap: Gap, question: Question) -> range:
    """The hours of the window, by their begin, in which something is due that may have arrived in the gap."""
    since = max(question.since, gap.since_ms - question.sla - question.grace)
    until = min(question.until, gap.until_ms + question.skew)
    return range(since // HOUR_MS * HOUR_MS, until if since < until else 0, HOUR_MS)
