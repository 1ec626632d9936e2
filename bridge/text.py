"""Text for people: times, and what came from outside made safe to print, so that an id or a header can neither forge a line nor drive a terminal."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container


def printable(text: str, kept: Container[str] = ()) -> str:
    """The text with all unprintable characters, except `kept`, as backslash escapes."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in kept else each.encode("unicode_escape").decode() for each in text)


def fits_a_header(text: str) -> bool:
    """Whether HTTP can send it as the value of a header: one line of printable ASCII. Blanks at its ends are taken off on the way."""
    return text.isascii() and text.isprintable() and text == text.strip()


def messages(number: int) -> str:
    """So many of them, in words."""
    return f"{number} message{'' if number == 1 else 's'}"


def without_login(url: str) -> str:
    """A URL as errors show it: without the user and the password that may stand in it."""
    return re.sub(r"^(\w+://)?.*@", r"\1", url)


def instant(ms: int | None) -> str:
    """Epoch milliseconds as RFC 3339 in UTC."""
    if ms is None:
        return ""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
