"""The forecast on one screen of a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ..reporting.markup import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS, PEAK_ROWS = 8, 5
"""So many destinations, and so many peaks, stand on the screen; the table has all of them."""

_MARKS = "▁▂▃▄▅▆▇█"


def screen(told: dict[str, Any]) -> Group:
    """The summary."""
    parts: list[Any] = [_headline(told)]
    if told["destinations"]:
        parts += [_destinations(told["destinations"]), _profiles(told)]
    if told["peaks"]:
        parts.append(_peaks(told["peaks"]))
    return Group(*parts)


def places(told: dict[str, Any]) -> list[str]:
    """Where the table is, in a line; none where nothing was written."""
    return [f"Table: {told['tables']['minutes']}"] if "tables" in told else []


def _headline(told: dict[str, Any]) -> Text:
    totals, places = told["totals"], told["destinations"]
    text = Text(f"{_counted(totals['deliveries'], 'delivery', 'deliveries')} at {_counted(len(places), 'destination')}", style="bold")
    text.append(f", {totals['overdue']:,} of them overdue" if totals["overdue"] else "", style="yellow")
    exports = "; ".join(f"{one['bridge']}: {one['pending']:,} pending at {one['exported']}" for one in told["exports"])
    text.append(f"\n{_short(told['from'])} to {_short(told['until'])}, from {exports or 'exports of nothing'}", style="default")
    return text


def _counted(number: int, word: str, words: str = "") -> str:
    return f"{number:,} {word if number == 1 else words or f'{word}s'}"


def _destinations(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("Destination", overflow="fold")
    for name in ("deliveries", "overdue", "a minute", "busiest", "at", "peaks"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows[:ROWS]:
        busiest = row["busiest"]
        numbers = (f"{row['deliveries']:,}", f"{row['overdue']:,}", f"{row['average_per_minute']:,.1f}", f"{busiest['deliveries']:,}")
        table.add_row(_place(row), *numbers, _short(busiest["minute"])[5:], str(row["peaks"]))
    if len(rows) > ROWS:
        table.caption = f"and {_counted(len(rows) - ROWS, 'more destination')}"
    return table


def _profiles(told: dict[str, Any]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True, max_width=28)
    table.add_column("The busiest minute of each " + _length(told["slot_minutes"]), no_wrap=True)
    for row in told["destinations"][:ROWS]:
        table.add_row(_place(row), line(row["profile"], _threshold(row, told)))
    return table


def _place(row: dict[str, Any]) -> Text:
    return Text(printable(f"{row['destination_broker']} {row['destination']}"))


def _threshold(row: dict[str, Any], told: dict[str, Any]) -> float:
    rule = told["peak"]
    return max(float(row["average_per_minute"] * rule["times_average"]), float(rule["at_least"]))


def line(profile: Sequence[int], peak: float) -> Text:
    """A mark for each value, as high as its share of the highest; blank for none, red from `peak` on."""
    highest = max(profile, default=0)
    text = Text()
    for value in profile:
        mark = _MARKS[-(-value * len(_MARKS) // highest) - 1] if value else " "
        text.append(mark, style="red" if value >= peak else "")
    return text


def _peaks(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Peaks", title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("Minute")
    table.add_column("Destination", overflow="fold")
    for name in ("deliveries", "overdue", "times the average"):
        table.add_column(name, justify="right")
    for row in rows[:PEAK_ROWS]:
        table.add_row(_short(row["minute"]), _place(row), f"{row['deliveries']:,}", f"{row['overdue']:,}", f"{row['times_average']:,.1f}")
    if len(rows) > PEAK_ROWS:
        table.caption = f"and {len(rows) - PEAK_ROWS} more"
    return table


def _length(minutes: int) -> str:
    return f"{minutes} min" if minutes != 1 else "minute"


def _short(instant: str) -> str:
    """`2026-11-21T14:05:00Z` as `2026-11-21 14:05`."""
    return instant[:16].replace("T", " ")
