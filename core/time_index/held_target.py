"""How far the records that are held back at one target have been handed out."""

from __future__ import annotations

from . import keys


class HeldTarget:
    """The records that are held back at one target: `count` in all, `out` of them in flight.

    None of them lies before `first`, and none that could be handed out lies before `position`: both are keys of the index of held-back records.
    """

    __slots__ = ("count", "end", "first", "out", "position", "prefix")

    def __init__(self, prefix: bytes, count: int, position: bytes) -> None:
        self.prefix = prefix
        self.end = keys.after(prefix)
        self.count = count
        self.out = 0
        self.first = self.position = position

    @property
    def waits(self) -> bool:
        """Whether any of it is not in flight. Where all of it is, what falls due for the target may follow."""
        return self.count > self.out

    def entry(self, key: bytes) -> bytes:
        """Where the record under this due key stands in the index."""
        return self.prefix + key[2:]

    def back(self, key: bytes) -> None:
        """The record under this due key may be handed out, for the first time or again."""
        entry = self.entry(key)
        self.position = min(self.position, entry)
        self.first = min(self.first, entry)
