"""Charts as inline SVG: no script, no font, no request. Widths are percentages and heights are pixels, so that text keeps its size on any screen."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

from .markup import duration, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

EDGES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000, 3_600_000)
"""Lower ends of the histogram's bars, in milliseconds; before them: early."""

THIN = 0.4
"""What is there is about so many percent wide, or two pixels high: one among a million can be seen."""

UP, DOWN, FOOT = 90, 26, 22
"""Pixels of a timeline above its line, below it, and for the labels."""
WIDEST = 5.0


class Part(NamedTuple):
    """How many, the CSS class, and what they are called."""

    size: int
    kind: str
    name: str


class Bar(NamedTuple):
    """A bar of the histogram: deliveries from `low` to below `high`; None: and more. `low` is negative for what is early."""

    low: int
    high: int | None
    timely: int
    untimely: int

    @property
    def filled(self) -> bool:
        """Whether there is any."""
        return self.timely + self.untimely > 0


class Column(NamedTuple):
    """What stands above and below one place of a timeline. `whole` is false where more may come."""

    label: str
    above: Sequence[Part]
    below: int
    whole: bool = True


def share_bar(parts: Sequence[Part], title: str, whole: int, height: int = 16) -> str:
    """One bar, divided as the parts are; `whole` is what a full bar stands for."""
    left, drawn = 0.0, []
    for part, width in zip(parts, _widths([part.size for part in parts], whole), strict=True):
        if width:
            drawn.append(f'<rect class="{part.kind}" x="{left:.2f}%" width="{width:.2f}%" height="{height}"/>')
            left += width
    told = escape(f"{title}: {_told(parts)}")
    return f'<svg class="chart" height="{height}" role="img" aria-label="{told}"><title>{told}</title>{"".join(drawn)}</svg>'


def _widths(counts: Sequence[int], whole: int) -> list[float]:
    """Percentages of a bar; what makes the small ones visible is taken from all."""
    total = sum(count for count in counts if count > 0)
    full = max(whole, total, 1)
    widths = [max(THIN, 100 * count / full) if count > 0 else 0.0 for count in counts]
    shrink = min(1.0, max(THIN, 100 * total / full) / (sum(widths) or 1))
    return [width * shrink for width in widths]


def _told(parts: Iterable[Part]) -> str:
    return ", ".join(f"{number(part.size)} {part.name}" for part in parts if part.size) or "nothing"


def legend(parts: Iterable[Part], *, counted: bool = True) -> str:
    """What the colours mean, with the numbers."""
    items = "".join(
        f'<li><svg aria-hidden="true"><rect class="{part.kind}" width="12" height="12" rx="2"/></svg>'
        f"{f'{number(part.size)} ' if counted else ''}{escape(part.name)}</li>"
        for part in parts
    )
    return f'<ul class="legend">{items}</ul>'


def histogram(values: Sequence[tuple[int, int, str]]) -> str:
    """Deliveries by lateness; `values` are lateness, number and timing (`early`, `on_time`, `late`)."""
    bars = _folded(_trimmed(lateness_bars(values)))
    highest, total = max((bar.timely + bar.untimely for bar in bars), default=0), sum(bar.timely + bar.untimely for bar in bars)
    return f'<div class="histogram">{"".join(_row(bar, highest, total) for bar in bars)}</div>'


def _row(bar: Bar, highest: int, total: int) -> str:
    parts, count = (Part(bar.timely, "done", "on time"), Part(bar.untimely, "wrong", "early or late")), bar.timely + bar.untimely
    label = (
        "early" if bar.low < 0 else f"{duration(bar.low)} or more" if bar.high is None else f"{duration(bar.low)} to {duration(bar.high)}"
    )
    return f'<span>{label}</span>{share_bar(parts, label, highest)}<span class="n">{number(count)}{_share(count, total)}</span>'


def _share(count: int, total: int) -> str:
    percent = 100 * count / max(1, total)
    return "" if not count else " · &lt;0.1%" if percent < 0.05 else f" · {percent:.1f}%"


def lateness_bars(values: Sequence[tuple[int, int, str]]) -> list[Bar]:
    """From early to very late."""
    lows = (-1, *EDGES)
    counts = {low: [0, 0] for low in lows}
    for lateness, count, timing in values:
        low = max((edge for edge in lows if edge <= lateness), default=-1)
        counts[low][timing != "on_time"] += count
    return [Bar(low, high, *counts[low]) for low, high in zip(lows, (*EDGES, None), strict=True)]


def _trimmed(bars: list[Bar]) -> list[Bar]:
    """Without what is empty on both ends."""
    filled = [index for index, bar in enumerate(bars) if bar.filled]
    return bars[filled[0] : filled[-1] + 1] if filled else []


def _folded(bars: Iterable[Bar]) -> list[Bar]:
    """Neighbours that are empty become one."""
    folded: list[Bar] = []
    for bar in bars:
        if folded and folded[-1].low >= 0 and not bar.filled and not folded[-1].filled:
            folded[-1] = folded[-1]._replace(high=bar.high)
        else:
            folded.append(bar)
    return folded


def timeline(columns: Sequence[Column], ticks: Sequence[tuple[float, str]], title: str) -> str:
    """Columns of stacked parts; what is wrong hangs below the line, on a scale of its own. `ticks` are percentages and labels."""
    highest = max((sum(part.size for part in column.above) for column in columns), default=0) or 1
    deepest = max((column.below for column in columns), default=0)
    down = DOWN if deepest else 0
    step = 100 / max(1, len(columns))
    drawn = [_column(column, index * step, step, highest, deepest) for index, column in enumerate(columns)]
    marks = [_tick(at, label, UP + down) for at, label in ticks]
    return (
        f'<svg class="chart" height="{UP + down + FOOT}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
        f'{"".join(drawn)}<line x1="0" x2="100%" y1="{UP}" y2="{UP}"/>{"".join(marks)}</svg>'
    )


def _column(column: Column, left: float, step: float, highest: int, deepest: int) -> str:
    width = min(step * 0.86, WIDEST)
    x, base, drawn = left + (step - width) / 2, float(UP), []
    if not column.whole:
        drawn.append(f'<rect class="dim" x="{left:.2f}%" y="0" width="{step:.2f}%" height="{UP}"/>')
    for part in column.above:
        height = max(2.0, part.size / highest * (UP - 6)) if part.size > 0 else 0.0
        base -= height
        drawn.append(_rect(part.kind, x, base, width, height) if height else "")
    if column.below:
        drawn.append(_rect("wrong", x, UP + 1, width, max(4.0, column.below / deepest * (DOWN - 4))))
    told = f"{column.label}: {_told((*column.above, Part(column.below, 'wrong', 'wrong')))}{'' if column.whole else ', incomplete'}"
    return f"<g><title>{escape(told)}</title>{''.join(drawn)}</g>"


def _rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:.2f}%" y="{y:.1f}" width="{width:.2f}%" height="{height:.1f}"/>'


def _tick(at: float, label: str, bottom: int) -> str:
    anchor = "start" if at < 4 else "end" if at > 92 else "middle"
    return (
        f'<line x1="{at:.2f}%" x2="{at:.2f}%" y1="{bottom}" y2="{bottom + 5}"/>'
        f'<text x="{at:.2f}%" y="{bottom + FOOT - 3}" text-anchor="{anchor}">{escape(label)}</text>'
    )
