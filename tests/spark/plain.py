"""The same audit in plain Python, message by message: slow, obvious, and written from docs/audit.md, not from the jobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from delaybridge.core.ledger import Row
    from delaybridge.spark_jobs.question import Question

Finding = tuple[str, str, str, int, int]
"""Finding, destination, id, occurrence, due time."""


def findings(ledger: Sequence[Row], seen: Sequence[dict[str, Any]], question: Question) -> set[Finding]:
    """Everything that is wrong, in hours that are taken to be complete."""
    due = [row for row in ledger if question.since <= row.due_time < question.until]
    arrived = [row for row in seen if row["id"] and question.since <= row["due_time"] < question.until]
    from_sightings = set(_sighted(due, arrived, ledger))
    unrecorded = {one[1:] for one in from_sightings if one[0] == "unrecorded"}
    settled = {one for one in _settled(due) if not (one[0] == "missing" and one[1:] in unrecorded)}
    return settled | from_sightings | set(_untimely(due, arrived, question))


def _settled(due: Iterable[Row]) -> Iterator[Finding]:
    by_occurrence: defaultdict[Any, Counter[bool]] = defaultdict(Counter)
    for row in due:
        by_occurrence[row.destination, row.id, row.occurrence, row.due_time][row.event == "scheduled"] += 1
    for occurrence, count in by_occurrence.items():
        scheduled, closed = count[True], count[False]
        if scheduled > closed:
            yield "missing", *occurrence
        elif closed > scheduled:
            yield "duplicated" if scheduled else "never_scheduled", *occurrence


def _sighted(due: Iterable[Row], arrived: Iterable[dict[str, Any]], ledger: Sequence[Row]) -> Iterator[Finding]:
    delivered = Counter((row.destination, row.id, row.occurrence, row.due_time) for row in due if row.event == "delivered")
    observed = Counter((row["destination"], row["id"], row["occurrence"], row["due_time"]) for row in arrived)
    for occurrence in delivered.keys() | observed.keys():
        if observed[occurrence] < delivered[occurrence]:
            yield "not_observed", *occurrence
        elif observed[occurrence] > delivered[occurrence] > 0:
            yield "duplicated", *occurrence
        elif observed[occurrence] > delivered[occurrence]:
            destination, id_, number, due_time = occurrence
            name = _not_delivered([row for row in ledger if (row.id, row.occurrence) == (id_, number)], destination, due_time)
            if name:
                yield name, *occurrence


def _not_delivered(history: Sequence[Row], destination: str, due: int) -> str | None:
    if any(row.event == "dead_lettered" for row in history) and all(row.destination != destination for row in history):
        return None
    told = [row for row in history if row.due_time == due]
    if not told:
        return "never_scheduled"
    scheduled = sum(row.event == "scheduled" for row in told)
    return "unrecorded" if scheduled > len(told) - scheduled else "unwanted"


def _untimely(due: Iterable[Row], arrived: Iterable[dict[str, Any]], question: Question) -> Iterator[Finding]:
    for row in due:
        if row.event == "delivered" and not 0 <= row.event_time - row.due_time <= question.sla:
            yield "early" if row.event_time < row.due_time else "late", row.destination, row.id, row.occurrence, row.due_time
    for seen in arrived:
        lateness = seen["event_time"] - seen["due_time"]
        if not -question.skew <= lateness <= question.sla + question.skew:
            yield "early" if lateness < 0 else "late", seen["destination"], seen["id"], seen["occurrence"], seen["due_time"]
