"""The messages that one lane has published and that are not answered yet."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...core.store import Due
    from ...core.targets import Target


@dataclass(slots=True)
class Flight:
    """One published message: since when, how large, and at which target it was held."""

    due: Due
    since: int
    size: int
    held: Target | None

    @property
    def address(self) -> str:
        """Where it goes."""
        return self.due.record.address


class Flights:
    """Messages in the order in which they were published. `bytes` is their size together, `to` how many go to each address. One thread."""

    def __init__(self) -> None:
        self.bytes = 0
        self.to: Counter[str] = Counter()
        self._by_key: dict[bytes, Flight] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def oldest(self) -> Flight:
        """The one that has been unconfirmed for longest; there is one."""
        return next(iter(self._by_key.values()))

    def take_off(self, flight: Flight) -> None:
        """A message is being published."""
        self._by_key[flight.due.key] = flight
        self.bytes += flight.size
        self.to[flight.address] += 1

    def land(self, key: bytes) -> Flight:
        """A message has its answer."""
        flight = self._by_key.pop(key)
        self.bytes -= flight.size
        address = flight.address
        self.to[address] -= 1
        if not self.to[address]:
            del self.to[address]
        return flight

    def set_back(self, by: int) -> None:
        """The clock was set back by so many milliseconds."""
        for flight in self._by_key.values():
            flight.since -= by
