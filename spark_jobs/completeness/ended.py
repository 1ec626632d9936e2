"""Names that `--ended` gives and nobody has: told, and no reason to end, for a bridge's last row may have been removed with its old days."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .gaps import Seen
    from .reach import Mark, Reach


def tell_of_nobody(asked: frozenset[str], bridges: Iterable[Reach], marks: Mapping[str, Mark], observers: Iterable[Seen] = ()) -> None:
    """A line on standard error, with the names that there are, where one that was asked for is none of them, nor one that a bridge had before."""
    there = {one.bridge for one in bridges} | {name for own, mark in marks.items() for name, _ in mark.names(own)}
    there |= {one.observer for one in observers if one.observer is not None}
    if nobody := sorted(asked - there - {"*"}):
        who = f"the names are {', '.join(sorted(there))}" if there else "there is no name at all"
        sys.stderr.write(f"--ended {', '.join(nobody)} is ignored: nobody wrote what was given under that name; {who}\n")
