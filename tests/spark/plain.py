"""The same audit in plain Python, message by message: slow, obvious, and written from docs/audit.md, not from the jobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from delaybridge.core.ledger import Row
    from delaybridge.spark_jobs.question import Question

Occurrence = tuple[str, str, int, int]
"""Destination, id, number, due time."""

Finding = tuple[str, Occurrence]


def findings(ledger: Sequence[Row], seen: Sequence[dict[str, Any]], question: Question) -> Counter[Finding]:
    """Everything that is wrong and how often, in hours that are taken to be complete."""
    due = [row for row in ledger if question.since <= row.due_time < question.until]
    arrived = [row for row in seen if row["id"] and question.since <= row["due_time"] < question.until]
    found: Counter[Finding] = Counter()
    for name, occurrence, times in (*_settled(due), *_sighted(due, arrived, ledger)):
        found[name, occurrence] += times
        if name == "unrecorded":
            found["missing", occurrence] -= times
    return +found + _untimely(due, arrived, question)


def _settled(due: Iterable[Row]) -> Iterator[tuple[str, Occurrence, int]]:
    by_occurrence: defaultdict[Any, Counter[bool]] = defaultdict(Counter)
    for row in due:
        by_occurrence[row.destination, row.id, row.occurrence, row.due_time][row.event == "scheduled"] += 1
    for occurrence, count in by_occurrence.items():
        scheduled, closed = count[True], count[False]
        if scheduled > closed:
            yield "missing", occurrence, scheduled - closed
        elif closed > scheduled:
            yield "duplicated" if scheduled else "never_scheduled", occurrence, closed - scheduled


def _sighted(due: Iterable[Row], arrived: Iterable[dict[str, Any]], ledger: Sequence[Row]) -> Iterator[tuple[str, Occurrence, int]]:
    delivered = Counter((row.destination, row.id, row.occurrence, row.due_time) for row in due if row.event == "delivered")
    observed = Counter((row["destination"], row["id"], row["occurrence"], row["due_time"]) for row in arrived)
    for occurrence in delivered.keys() | observed.keys():
        here = [row for row in due if (row.destination, row.id, row.occurrence, row.due_time) == occurrence]
        history = [row for row in ledger if (row.id, row.occurrence) == occurrence[1:3]]
        surplus = observed[occurrence] - delivered[occurrence]
        scheduled = sum(row.event == "scheduled" for row in here)
        unrecorded = max(0, min(surplus, 2 * scheduled - len(here)))
        if surplus < 0:
            yield "not_observed", occurrence, -surplus
        elif not delivered[occurrence] and _dead_letter(history, occurrence[0]):
            continue
        if unrecorded:
            yield "unrecorded", occurrence, unrecorded
        if surplus > unrecorded:
            more = "duplicated" if delivered[occurrence] and observed[occurrence] > scheduled else "unwanted"
            yield more if here else "never_scheduled", occurrence, surplus - unrecorded


def _dead_letter(history: Sequence[Row], destination: str) -> bool:
    return any(row.event == "dead_lettered" for row in history) and all(row.destination != destination for row in history)


def _untimely(due: Iterable[Row], arrived: Iterable[dict[str, Any]], question: Question) -> Counter[Finding]:
    """By the ledger; by who saw it, where the ledger does not say the same."""
    by_ledger: Counter[Finding] = Counter()
    for row in due:
        if row.event == "delivered" and not 0 <= row.event_time - row.due_time <= question.sla:
            occurrence = row.destination, row.id, row.occurrence, row.due_time
            by_ledger["early" if row.event_time < row.due_time else "late", occurrence] += 1
    by_sight: Counter[Finding] = Counter()
    for seen in arrived:
        lateness = seen["event_time"] - seen["due_time"]
        if not -question.skew <= lateness <= question.sla + question.skew:
            by_sight["early" if lateness < 0 else "late", (seen["destination"], seen["id"], seen["occurrence"], seen["due_time"])] += 1
    return by_ledger + Counter({one: times for one, times in by_sight.items() if one not in by_ledger})
