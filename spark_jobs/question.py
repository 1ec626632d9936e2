"""What is asked of an audit."""

from __future__ import annotations

from dataclasses import dataclass, field

FOREVER = 1 << 62
"""An instant (epoch ms) after all others."""

MARKED_MS = 120_000
"""The marks of bridges and observers that run are no older: they are replaced at each flush, and once a minute."""


@dataclass(frozen=True, slots=True)
class Question:
    """A window of due time, and what counts as wrong in it. Times are epoch milliseconds, UTC; durations milliseconds.

    since, until    due times from the one to before the other
    as_of           when the inputs were read: what is younger may not be in them yet
    now             when that is asked: a row of a ledger that happened later was written by a clock that was ahead
    sla             a delivery that is later than this is late
    skew            by how much the clocks of bridges and observers may differ
    grace           what happened may reach the files so much later
    ended           bridges and observers that have written their last row; "*" for all
    watched         destinations (broker, address) that the observed input covers even if nothing of them is in it
    aliases         observed address, or `BROKER:ADDRESS` -> the ledger's address for it
    """

    since: int
    until: int
    as_of: int
    sla: int = 5_000
    skew: int = 100
    grace: int = 120_000
    ended: frozenset[str] = frozenset()
    watched: frozenset[tuple[str, str]] = frozenset()
    aliases: dict[str, str] = field(default_factory=dict)
    now: int = FOREVER

    def has_ended(self, name: str) -> bool:
        """Whether this bridge or observer is said to have ended, by its name or with all others."""
        return not self.ended.isdisjoint({name, "*"})
