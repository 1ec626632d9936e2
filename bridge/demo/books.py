"""Whether the ledger, what was sent and what arrived agree."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ...core.ledger import CLOSING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .account import Account

Rows = list[dict[str, object]]


def read(path: Path) -> Rows:
    """All rows of a folder of Parquet files."""
    import pyarrow.dataset as ds  # noqa: PLC0415 - slow to import

    files = sorted(path.rglob("*.parquet"))
    rows: Rows = ds.dataset(files, format="parquet").to_table().to_pylist() if files else []
    return rows


def checks(account: Account, ledger: Iterable[dict[str, object]], pending: int) -> dict[str, bool]:
    """Each as a sentence, and whether it holds. About the bridge: what happens to a message behind its back is the audit's to find."""
    events: Counter[object] = Counter()
    delivered: Counter[tuple[object, object]] = Counter()
    replaced: list[object] = []  # releasing the cron moves it, which the ledger calls replaced, too
    for row in ledger:
        events[row["event"]] += 1
        if row["event"] == "replaced" and row["id"] != "demo-cron":
            replaced.append(row["id"])
        if row["event"] == "delivered":
            delivered[row["id"], row["occurrence"]] += 1
    closed = {event: events[event] for event in CLOSING}
    sums = " + ".join(f"{count} {event}" for event, count in closed.items() if count)
    out = account.arrivals.taken_by_group
    arrived = "was delivered" if account.faults else "arrived"
    return {
        "none early": not any(value < 0 for late in account.arrivals.lateness.values() for value in late),
        f"every expected message {arrived}": all(out[group] == count for group, count in account.expected.items() if count),
        "the cron fired": out["cron"] > 0,
        "three were refused with a reason": account.dead.taken_by_group["refused"] == 3,
        "one was cancelled, one replaced": (events["cancelled"] >= 1, len(replaced)) == (True, 1),
        f"the ledger names what {arrived}": delivered == account.arrivals.taken,
        f"it adds up: {events['scheduled']} scheduled = {sums} + {pending} pending": events["scheduled"] == sum(closed.values()) + pending,
    }
