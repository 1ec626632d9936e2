"""Text from outside made safe to print: control characters escaped, so that an id or a header can neither forge a line nor drive a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container


def printable(text: str, kept: Container[str] = ()) -> str:
    """The text with all that does not print, but `kept`, as backslash escapes."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in kept else each.encode("unicode_escape").decode() for each in text)
