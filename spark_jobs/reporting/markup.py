"""Values as the report writes them. Whatever comes from a message or a broker passes through `text`."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST = 400
"""So many characters of an id or a name are shown; the tables have all of them."""

Cell = tuple[str, str]
"""HTML, and a CSS class: `n` number, `t` instant, nothing for what may need several lines."""


def text(given: object) -> str:
    """As HTML: nothing in it is markup, hides, or turns the text beside it around."""
    more = f" … ({len(str(given)):,} characters)" if len(str(given)) > LONGEST else ""
    return f"<bdi>{escape(title(str(given)))}</bdi>{more}"


def title(given: str) -> str:
    """The same where no markup can stand, as in a tooltip; it is yet to be escaped."""
    return printable(given[:LONGEST])


def printable(given: str) -> str:
    """With what moves the cursor, hides, or turns text around written out: names and ids are what anybody sent."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in given)


def number(value: int | None) -> str:
    """With separators; a dash where it is not known."""
    return "-" if value is None else f"{value:,}"


def words(name: str) -> str:
    """A finding or column, as people write it."""
    return name.replace("_", " ")


def instant(told: str | None) -> str:
    """An instant of the report's JSON, shorter; all are UTC."""
    return "" if told is None else escape(told.replace("T", " ").removesuffix("Z").removesuffix(".000"))


def duration(ms: int) -> str:
    """Milliseconds in the largest unit, to three digits; days of which there are more are told in full."""
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if abs(ms) >= size:
            return f"{ms / size:.3g} {unit}" if abs(ms) < 999 * size else f"{ms / size:,.0f} {unit}"
    return f"{ms} ms"


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table that becomes a list where the page is narrow."""
    body = "".join(f"<tr>{''.join(_cell(name, *cell) for name, cell in zip(head, row, strict=True))}</tr>" for row in rows)
    titles = "".join(f'<th class="{kind}">{name}</th>' for name, (_, kind) in zip(head, rows[0] if rows else (), strict=False))
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


def _cell(name: str, html: str, kind: str) -> str:
    return f'<td class="{kind}" data-name="{name}">{f"<span>{html}</span>" if html else ""}</td>'
