"""What the demo shows of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE, SIMPLE_HEAD
from rich.console import Group
from rich.table import Table

from .workload import SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ...core.ledger import Event
    from ...core.store import Counts
    from .account import Account
    from .faults import Finding, Planted

_NUMBERS = ("sent", "deliv-\nered", "can-\ncelled", "re-\nplaced", "dead\nletters", "late\np50", "late\np99", "late\nmax", "early")


def progress(account: Account, counts: Counts, elapsed: float) -> Group:
    """While it runs."""
    table = Table(title=f"delaybridge demo, second {elapsed:.0f} of {SECONDS}", title_justify="left", box=SIMPLE, pad_edge=False)
    for name in ("sent", "waiting", "arrived", "dead-lettered", "cancelled", "replaced"):
        table.add_column(name, justify="right")
    events: dict[Event, int] = counts.events
    table.add_row(
        str(account.sent.total()),
        str(counts.pending),
        str(account.arrivals.total),
        str(account.dead.total),
        str(events.get("cancelled", 0)),
        str(events.get("replaced", 0)),
    )
    return Group(table, *account.arrivals.latest)


def sent_and_arrived(account: Account) -> Table:
    """At the end, by dialect."""
    table = Table(title="What was sent, and what arrived", caption="late: milliseconds", title_justify="left", box=SIMPLE_HEAD, padding=0)
    table.add_column("dialect", no_wrap=True)
    for column in _NUMBERS:
        table.add_column(column, justify="right", no_wrap=True)
    for group in account.sent:
        table.add_row(group, str(account.sent[group]), *_cells(account, group))
    return table


def _cells(account: Account, group: str) -> list[str]:
    late = sorted(account.arrivals.lateness.get(group, ()))
    percentiles = [f"{late[min(len(late) - 1, int(len(late) * q))]}" for q in (0.5, 0.99)] if late else ["", ""]
    return [
        str(len(late)),
        "1" if group == "cancelled" else "",
        "1" if group == "replaced" else "",
        str(len(account.dead.lateness.get(group, ()))) if group == "refused" else "",
        *percentiles,
        str(late[-1]) if late else "",
        str(sum(value < 0 for value in late)),
    ]


def planted_and_found(planted: Iterable[Planted], found: Collection[Finding]) -> Table:
    """Each fault, and what the audit calls it; then what it found besides."""
    table = Table(title="Done behind the bridge's back, and found", title_justify="left", box=SIMPLE_HEAD, padding=0)
    for column in ("message", "occurrence", " was", " the audit says"):
        table.add_column(column, no_wrap=True, justify="right" if column == "occurrence" else "left")
    rest = sorted(found)
    for fault in sorted(planted, key=lambda one: (one.fault, one.body)):
        said = [one for one in rest if one[1:] == fault.finding[1:]]
        rest = [one for one in rest if one not in said]
        named = ", ".join(finding for finding, _, _ in said) or "[red]nothing"
        table.add_row(fault.body, str(fault.occurrence), f" {fault.fault}", f" {named}")
    for finding, id_, occurrence in rest:
        table.add_row(id_, str(occurrence), " left alone", f" [red]{finding}")
    return table
