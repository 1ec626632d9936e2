"""Delay levels: a table of durations, and how any delay is made of them.

RocketMQ's idea: one queue for each level, in which every message waits equally long, so that the head is always the next one to leave and
nothing is ever sorted. A delay that is not a level takes hops: the largest level that fits, again and again (15m = 10m + 5m); a remainder below the
smallest level is waited out in memory.
"""

from __future__ import annotations

import msgspec

SLACK = 5
"""Milliseconds by which a level may be longer than the time that is left: reading a message takes a moment, and `1h` is to be one hop all the same."""


class Hops(msgspec.Struct, frozen=True):
    """The same level several times in a row; `level` is in milliseconds."""

    level: int
    times: int


class Levels(msgspec.Struct, frozen=True):
    """A table of levels in milliseconds, rising. Level 0 stands before the first: it lets a message through at once."""

    table: tuple[int, ...]

    @property
    def waits(self) -> tuple[int, ...]:
        """How long a message waits at level 0, 1, 2, ... (milliseconds)."""
        return (0, *self.table)

    def fit(self, remaining: int) -> int:
        """The number of the largest level that fits into `remaining` milliseconds; 0 where none does."""
        return next((number for number in range(len(self.table), 0, -1) if self.table[number - 1] <= remaining + SLACK), 0)

    def path(self, delay: int) -> tuple[tuple[Hops, ...], int]:
        """The hops of a delay if processing took no time, and the milliseconds that are left for memory."""
        hops = []
        for level in reversed(self.table):
            if times := (delay + SLACK) // level:
                hops.append(Hops(level, times))
                delay -= times * level
        return tuple(hops), max(0, delay)
