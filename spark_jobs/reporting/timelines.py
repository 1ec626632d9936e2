"""One chart for each destination: what was delivered, what is pending, what is wrong, by due time. All have the same axis."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ...core.durations import HOUR_MS
from ...core.ledger import CLOSING
from ..question import FOREVER
from ..reconciling.findings import FINDINGS
from .charts import Column, Part, legend, timeline
from .markup import number, text, title, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SHOWN = 24
"""So many destinations are drawn, those with most discrepancies first, then the largest."""
COLUMNS = 84
TICKS = 5
STEPS = (1, 2, 3, 4, 6, 12, 24, 48, 72, 168, 336, 672, 1344, 2688)
"""Hours that one column, or the way from one label to the next, may stand for."""
YEAR = 8760
"""A window of more hours has the year in its labels: without it, one day would stand there twice."""

_BOUNDS = {"nowhere": -1, "the end": FOREVER}
_OTHERWISE = tuple(name for name in CLOSING if name != "delivered")

Row = dict[str, Any]


def wrong(row: Mapping[str, Any]) -> int:
    """How many discrepancies."""
    return sum(row[name] or 0 for name in FINDINGS)


def _added(rows: Iterable[Row], *names: str) -> int:
    return sum(row[name] or 0 for row in rows for name in names)


def section(told: Mapping[str, Any]) -> str:
    """All of them, ranked, from the report's JSON."""
    destinations, hours, window = told["destinations"], told["hours"], told["window"]
    if not destinations:
        return '<p class="quiet">Nothing was due.</p>'
    axis = Axis(_ms(window["since"]), _ms(window["until"]), _ms(told["complete_until"]))
    by_place = {key: list(rows) for key, rows in groupby(hours, key=_key)}
    ranked = sorted(destinations, key=lambda row: (-wrong(row), -(row["scheduled"] or 0)))
    drawn = "".join(_place(row, by_place[_key(row)], axis) for row in ranked[:SHOWN])
    left = told["counted"]["destinations"] - SHOWN
    more = f'<p class="quiet">And {left:,} more, which the table of the summary has.</p>' if left > 0 else ""
    return f'{_legend(axis, hours)}<div class="places">{drawn}</div>{more}'


def _legend(axis: Axis, hours: Sequence[Row]) -> str:
    """Of what there is."""
    kinds = [
        Part(_added(hours, "delivered"), "done", "delivered"),
        Part(_added(hours, *_OTHERWISE), "other", "ended otherwise"),
        Part(_added(hours, "pending"), "open", "pending"),
        Part(sum(map(wrong, hours)), "wrong", "wrong: below the line, on a scale of its own"),
        Part(int(axis.complete_until < axis.until or not all(row["complete"] for row in hours)), "dim", "incomplete"),
    ]
    of = "hour" if axis.step == 1 else f"{axis.step} hours" if axis.step < 24 else f"{axis.step // 24} days" if axis.step > 24 else "day"
    return f'<p class="quiet">By due time, UTC; one column for each {of}.</p>{legend([kind for kind in kinds if kind.size], counted=False)}'


def _place(row: Row, hours: list[Row], axis: Axis) -> str:
    facts = ", ".join(f"{number(row[name])} {name}" for name in ("scheduled", "delivered", "observed", "pending") if row[name] is not None)
    found = ", ".join(f"{number(row[name])} {words(name)}" for name in FINDINGS if row[name])
    told = f'<span class="bad">{found}</span>' if found else "nothing wrong"
    chart = timeline(axis.columns(hours), axis.ticks(), f"{title(row['destination_broker'])} {title(row['destination'])} by due time")
    return f"<div class=place><h3>{text(row['destination_broker'])} {text(row['destination'])}</h3><p>{facts}; {told}</p>{chart}</div>"


class Axis:
    """The window, cut into at most COLUMNS columns of whole hours."""

    def __init__(self, since: int, until: int, complete_until: int) -> None:
        self.until, self.complete_until = until, complete_until
        self.since = since // HOUR_MS * HOUR_MS
        self.hours = -(-(until - self.since) // HOUR_MS)
        self.step = _step(self.hours, COLUMNS)
        self.count = -(-self.hours // self.step)
        self.year = " %Y" if self.hours > YEAR else ""

    def columns(self, hours: Iterable[Row]) -> list[Column]:
        """The rows of one destination, those of one column added up; an hour in which nothing was due is a gap."""
        binned: dict[int, list[Row]] = {}
        for row in hours:
            binned.setdefault((_ms(row["due_hour"]) - self.since) // HOUR_MS // self.step, []).append(row)
        return [self._column(index, binned.get(index, [])) for index in range(self.count)]

    def _column(self, index: int, rows: Sequence[Row]) -> Column:
        begin = self.since + index * self.step * HOUR_MS
        whole = min(begin + self.step * HOUR_MS, self.until) <= self.complete_until and all(row["complete"] for row in rows)
        above = (
            Part(_added(rows, "delivered"), "done", "delivered"),
            Part(_added(rows, *_OTHERWISE), "other", "ended otherwise"),
            Part(_added(rows, "pending"), "open", "pending"),
        )
        return Column(f"{datetime.fromtimestamp(begin / 1000, UTC):%d %b{self.year} %H:%M}", above, sum(map(wrong, rows)), whole)

    def ticks(self) -> list[tuple[float, str]]:
        """Where labels stand, in percent, and what they say: the day at midnight, else the hour."""
        every = _step(self.hours, TICKS)
        first = self.since // HOUR_MS
        marked = range(first + -first % every, first + self.hours, every)
        return [(100 * (hour - first) / (self.count * self.step), self._label(hour)) for hour in marked]

    def _label(self, hour: int) -> str:
        at = datetime.fromtimestamp(hour * 3600, UTC)
        return at.strftime("%H:%M" if at.hour else f"{at.day} %b{self.year}")


def _step(hours: int, most: int) -> int:
    return next((step for step in STEPS if hours <= step * most), STEPS[-1] * -(-hours // (STEPS[-1] * most)))


def _key(row: Row) -> tuple[str, str]:
    return row["destination_broker"], row["destination"]


def _ms(told: str) -> int:
    """An instant as `verdict.instant` writes it."""
    return _BOUNDS[told] if told in _BOUNDS else round(datetime.fromisoformat(told).timestamp() * 1000)
