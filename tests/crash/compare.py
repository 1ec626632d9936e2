"""What producers sent, what consumers got, and what the ledger says of it: the comparison."""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crash.traffic import Arrival, Producer


def lost(producer: Producer, arrivals: Sequence[Arrival]) -> list[tuple[int, int]]:
    """Confirmed messages, by number and occurrence, that never arrived."""
    seen = {(arrival.number, arrival.occurrence) for arrival in arrivals}
    return [
        (number, occurrence)
        for number in sorted(producer.confirmed)
        for occurrence in range(1, producer.sent[number].copies + 1)
        if (number, occurrence) not in seen
    ]


def early(producer: Producer, arrivals: Sequence[Arrival]) -> list[Arrival]:
    """Deliveries before they were due, or whose due time is before the one that was asked for."""
    return [each for each in arrivals if each.at < each.due or each.due < producer.sent[each.number].earliest]


def renamed(arrivals: Sequence[Arrival]) -> dict[int, set[str]]:
    """Messages that arrived under more than one id: duplicates that a consumer could not recognise."""
    ids: defaultdict[int, set[str]] = defaultdict(set)
    for arrival in arrivals:
        ids[arrival.number].add(arrival.id)
    return {number: names for number, names in ids.items() if len(names) > 1}


def duplicates(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """Second and later deliveries of one id and occurrence, as they arrived, less those of which the broker says that they are its own."""
    seen: set[tuple[str, int]] = set()
    found = []
    for arrival in sorted((each for each in arrivals if not each.again), key=lambda each: each.at):
        key = (arrival.id, arrival.occurrence)
        if key in seen:
            found.append(arrival)
        seen.add(key)
    return found


def after_each(kills: Sequence[int], times: Sequence[int]) -> Counter[int]:
    """How many of these instants lie between each kill (by index) and the next."""
    return Counter(bisect.bisect_right(kills, at) - 1 for at in times)


def busy_at(moments: Sequence[int], times: Sequence[int], within: int) -> int:
    """At how many moments something happened within so many milliseconds before."""
    ordered = sorted(times)
    return sum(bisect.bisect_right(ordered, moment) > bisect.bisect_left(ordered, moment - within) for moment in moments)


def ledger_problems(rows: Sequence[dict[str, Any]], arrivals: Sequence[Arrival]) -> list[str]:
    """What is wrong with ledgers that should name exactly what arrived, each once, and add up. Prints the rows of the first occurrence that does not."""
    scheduled, closed = (
        Counter((row["id"], row["occurrence"]) for row in rows if (row["event"] == "scheduled") is wanted) for wanted in (True, False)
    )
    delivered = {(row["id"], row["occurrence"]) for row in rows if row["event"] == "delivered"}
    arrived = {(arrival.id, arrival.occurrence) for arrival in arrivals}
    odd = next((each for each in scheduled | closed if (scheduled[each], closed[each]) != (1, 1)), None)
    for row in rows:
        if (row["id"], row["occurrence"]) == odd:
            print(row)
    numbers: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        numbers[row["bridge"]].append(row["sequence"])
    checks = {
        "a row stands twice": all(len(set(each)) == len(each) for each in numbers.values()),
        "a row is missing": all(max(each) - min(each) + 1 == len(set(each)) for each in numbers.values()),
        "an occurrence is scheduled or closed twice": max((*scheduled.values(), *closed.values(), 1)) == 1,
        "scheduled and closed differ": scheduled == closed,
        f"delivered and arrived differ: {len(delivered - arrived)} only delivered, {len(arrived - delivered)} only arrived": delivered
        == arrived,
    }
    return [problem for problem, fine in checks.items() if not fine]
