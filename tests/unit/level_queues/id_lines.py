"""A log of ids, and what its readers know: those that were there from the beginning, and those that read what the broker has left of it."""

from __future__ import annotations

from delaybridge.adapters.id_log import Line
from delaybridge.bridge.level_queues.ids.known import Ids
from delaybridge.bridge.level_queues.ids.lines import Claim, beginning, cancelling, claiming

T0 = 1_763_700_000_000
HOUR = 3_600_000
DAY = 24 * HOUR


class Log:
    """Lines in order, and a reader that has read them all."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, Line]] = []
        self.ids = Ids()
        self._marks = 0

    def append(self, *lines: Line) -> int:
        """The place of the first."""
        first = self._next()
        for line in lines:
            place = self._next()
            self.lines.append((place, line))
            more = self.ids.apply(place, line)
            if line.value is not None:  # as the register does
                self.append(*more)
        return first

    def _next(self) -> int:
        return self.lines[-1][0] + 1 if self.lines else 0

    def mark(self) -> bytes:
        self._marks += 1
        return self._marks.to_bytes(8, "big")

    def claim(self, name: str = "a", now: int = T0, due: int = T0 + HOUR) -> Claim:
        mark = self.mark()
        return Claim(mark, self.append(claiming(name, mark, now, due)))

    def term(self) -> int:
        return self.append(beginning(self.mark()))

    def under(
        self, term: int, mark: bytes, first: int = -1, now: int = T0
    ) -> Claim:  # the message has been at `first`, as its bridge knows
        return Claim(mark, self.append(claiming("a", mark, now, T0 + HOUR, first, term)), term=term)

    def again(self, claim: Claim, name: str = "a", now: int = T0, due: int = T0 + HOUR) -> Claim:
        """The source has given the message again."""
        return Claim(claim.mark, self.append(claiming(name, claim.mark, now, due, claim.place)))

    def cancel(self, name: str = "a", now: int = T0, until: int = 0) -> bytes:
        mark = self.mark()
        self.append(cancelling(name, mark, now, until))
        return mark

    def end(self, claim: Claim, event: str = "delivered", now: int = T0) -> None:
        self.append(*self.ids.ending("a", claim, event, now))  # type: ignore[arg-type]

    def compacted(self, *, tombstones: bool = True) -> Ids:
        """What a bridge knows that reads the log after the broker dropped all that it may."""
        last = {line.key: place for place, line in self.lines}
        self.lines = [(place, line) for place, line in self.lines if last[line.key] == place and (tombstones or line.value is not None)]
        found = Ids()
        for place, line in self.lines:
            found.apply(place, line)
        return found
