"""The same audit in plain Python, message by message: slow, obvious, and written from docs/audit.md, not from the jobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from delaybridge.core.durations import HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from delaybridge.core.ledger import Row
    from delaybridge.spark_jobs.question import Question

Occurrence = tuple[str, str, int, int]
"""Destination, id, number, due time."""

Finding = tuple[str, Occurrence]

Bucket = tuple[str, str, str, str, int]
"""Destination, kind, dialect, level, hour of due time (epoch ms)."""

SECOND, MINUTE, DAY = 1_000, 60_000, 24 * HOUR_MS
LEVELS = {
    "0s": 0, "1s": SECOND, "5s": 5 * SECOND, "10s": 10 * SECOND, "30s": 30 * SECOND, "1m": MINUTE, "2m": 2 * MINUTE, "5m": 5 * MINUTE,
    "10m": 10 * MINUTE, "20m": 20 * MINUTE, "30m": 30 * MINUTE, "1h": HOUR_MS, "2h": 2 * HOUR_MS, "6h": 6 * HOUR_MS, "1d": DAY, "7d": 7 * DAY,
    "30d": 30 * DAY,
}  # fmt: skip
"""As docs/audit.md has them."""


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


def summary(ledger: Sequence[Row], seen: Sequence[dict[str, Any]], question: Question) -> dict[Bucket, Counter[str]]:
    """What is counted in each bucket, where all rows of an occurrence are in one: events, `pending`, `residue`, `observed`, and what is wrong."""
    counted: defaultdict[Bucket, Counter[str]] = defaultdict(Counter)
    rows: defaultdict[Occurrence, list[Row]] = defaultdict(list)
    for row in ledger:
        if question.since <= row.due_time < question.until:
            rows[row.destination, row.id, row.occurrence, row.due_time].append(row)
            counted[_bucket(row)][row.event] += 1
    where = {occurrence: _bucket(of_it[0]) for occurrence, of_it in rows.items()}
    for occurrence, of_it in rows.items():
        open_ones = 2 * sum(row.event == "scheduled" for row in of_it) - len(of_it)
        counted[where[occurrence]]["pending" if open_ones > 0 else "residue"] += open_ones
    told = [(name, occurrence) for name, occurrence in findings(ledger, seen, question).elements()]
    told += [("observed", (one["destination"], one["id"], one["occurrence"], one["due_time"])) for one in seen if one["id"]]
    for name, occurrence in told:
        if question.since <= occurrence[3] < question.until:
            counted[where.get(occurrence, (occurrence[0], "", "", "", _hour(occurrence[3])))][name] += 1
    return {bucket: numbers for bucket, numbers in counted.items() if any(numbers.values())}


def _bucket(row: Row) -> Bucket:
    wait = row.due_time - row.taken_time
    level = next((name for name, longest in LEVELS.items() if wait <= longest), "longer")
    return row.destination, row.kind, row.dialect, level, _hour(row.due_time)


def _hour(instant: int) -> int:
    return instant // HOUR_MS * HOUR_MS


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
