"""What commands print: tables for people, JSON for programs. Text from outside is escaped first."""

# ruff: noqa: PLC0415, T201 - rich takes a while to import, and JSON does without; printing is what this is for

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..text import printable
from .common import Output

if TYPE_CHECKING:
    from rich.table import Table

Row = Mapping[str, Any]
Columns = Mapping[str, Callable[[Row], Any]]
"""Heading and value of each column; values may be anything that `str` takes."""

_WIDE = 1_000
"""Columns of a table that goes to a pipe, or does not fit the terminal: nothing is cut."""


def print_json(rows: Iterable[Row], output: Output) -> None:
    """Many things of a kind: as a JSON object a line as they come, or as one JSON array."""
    if output is Output.NDJSON:
        for row in rows:
            print(json.dumps(row), flush=True)
    else:
        _array(rows)


def print_object(item: Row, output: Output) -> None:
    """One thing as JSON: on one line, or for people to read."""
    print(json.dumps(item, indent=None if output is Output.NDJSON else 2))


def show_first(rows: Callable[[int], Iterable[Row]], limit: int, columns: Columns, output: Output, empty: str) -> None:
    """The first `limit` of `rows(limit)`, as a table or as JSON; where a table leaves some out, it says so on standard error."""
    if output is not Output.TABLE:
        print_json(rows(limit), output)
        return
    found = list(rows(limit + 1))
    table(columns, [[value(row) for value in columns.values()] for row in found[:limit]], empty)
    if len(found) > limit:
        print(f"{limit} shown, there are more: --limit {10 * limit}", file=sys.stderr)


def show_one(item: Row, fields: Mapping[str, Any], output: Output) -> None:
    """One thing: `fields` as a table, or `item` as JSON."""
    if output is Output.TABLE:
        table({}, [[name, value] for name, value in fields.items() if value not in (None, "")])
    else:
        print_object(item, output)


def _array(rows: Iterable[Row]) -> None:
    """One JSON array, an element a line, so that a long listing is never held in memory. Nothing where there is no first one because asking for it fails."""
    before = "["
    for row in rows:
        print(before, f"\n {json.dumps(row)}", sep="", end="", flush=True)
        before = ","
    print("[\n]" if before == "[" else "\n]")


def table(headings: Iterable[str], rows: Sequence[Sequence[Any]], empty: str = "nothing", title: str = "") -> None:
    """A plain table on standard output. No word is cut, so that an id can be copied: where a terminal is too narrow for that, it wraps whole lines itself."""
    if not rows:
        print(f"{title}: {empty}" if title else empty)
        return
    from rich.console import Console

    console, drawn = Console(width=None if sys.stdout.isatty() else _WIDE), grid(headings, rows, title)
    if console.measure(drawn, options=console.options.update(width=_WIDE)).minimum > console.width:
        console.width = _WIDE
    with console.capture() as captured:
        console.print(drawn)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def grid(headings: Iterable[str], rows: Sequence[Sequence[Any]], title: str) -> Table:
    """The same, to be drawn by rich."""
    from rich.table import Table
    from rich.text import Text

    names = list(headings)
    drawn = Table(*names, box=None, pad_edge=False, show_header=bool(names), title=title or None, title_justify="left", header_style="bold")
    for row in rows:
        drawn.add_row(*(Text(printable(_text(cell), "\n"), overflow="fold") for cell in row))
    return drawn


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def duration(ms: int) -> str:
    """Milliseconds in the two largest units that say something: `1d 2h`, `5m 3s`, `250ms`."""
    if ms < 0:
        return f"-{duration(-ms)}"
    parts, rest = [], ms
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0ms"
