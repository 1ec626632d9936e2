"""The same audit in plain Python, message by message: slow, obvious, and written from docs/audit.md, not from the jobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from delaybridge.spark_jobs.question import HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from delaybridge.core.ledger import Row
    from delaybridge.spark_jobs.question import Question

Finding = tuple[str, str, int]
"""Finding, id, occurrence."""


def findings(ledger: Sequence[Row], seen: Sequence[dict[str, Any]], question: Question) -> set[Finding]:
    """Everything that is wrong, in hours that are taken to be complete."""
    due = [row for row in ledger if question.since <= row.due_time < question.until]
    arrived = [row for row in seen if row["id"] and question.since <= row["due_time"] < question.until]
    from_sightings = set(_sighted(due, arrived, ledger))
    unrecorded = {(id_, occurrence) for name, id_, occurrence in from_sightings if name == "unrecorded"}
    settled = {one for one in _settled(due) if not (one[0] == "missing" and one[1:] in unrecorded)}
    return settled | from_sightings | set(_untimely(due, arrived, question))


def _settled(due: Iterable[Row]) -> Iterator[Finding]:
    by_occurrence: defaultdict[Any, Counter[bool]] = defaultdict(Counter)
    for row in due:
        by_occurrence[row.bridge, row.destination, row.due_time // HOUR_MS, row.id, row.occurrence][row.event == "scheduled"] += 1
    for (*_, id_, occurrence), count in by_occurrence.items():
        scheduled, closed = count[True], count[False]
        if scheduled > closed:
            yield "missing", id_, occurrence
        elif closed > scheduled:
            yield "duplicated" if scheduled else "never_scheduled", id_, occurrence


def _sighted(due: Iterable[Row], arrived: Iterable[dict[str, Any]], ledger: Sequence[Row]) -> Iterator[Finding]:
    delivered = Counter((row.destination, row.due_time // HOUR_MS, row.id, row.occurrence) for row in due if row.event == "delivered")
    observed = Counter((row["destination"], row["due_time"] // HOUR_MS, row["id"], row["occurrence"]) for row in arrived)
    for key in delivered.keys() | observed.keys():
        destination, _, id_, occurrence = key
        if observed[key] < delivered[key]:
            yield "not_observed", id_, occurrence
        elif observed[key] > delivered[key] > 0:
            yield "duplicated", id_, occurrence
        elif observed[key] > delivered[key]:
            told = [row for row in ledger if (row.id, row.occurrence) == (id_, occurrence)]
            name = _not_delivered(told, destination)
            if name:
                yield name, id_, occurrence


def _not_delivered(told: Sequence[Row], destination: str) -> str | None:
    if not told:
        return "never_scheduled"
    if any(row.event == "dead_lettered" for row in told) and all(row.destination != destination for row in told):
        return None
    scheduled = sum(row.event == "scheduled" for row in told)
    return "unrecorded" if scheduled > len(told) - scheduled else "unwanted"


def _untimely(due: Iterable[Row], arrived: Iterable[dict[str, Any]], question: Question) -> Iterator[Finding]:
    for row in due:
        if row.event == "delivered" and not 0 <= row.event_time - row.due_time <= question.sla:
            yield "early" if row.event_time < row.due_time else "late", row.id, row.occurrence
    for seen in arrived:
        lateness = seen["event_time"] - seen["due_time"]
        if not -question.skew <= lateness <= question.sla + question.skew:
            yield "early" if lateness < 0 else "late", seen["id"], seen["occurrence"]
