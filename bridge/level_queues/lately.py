"""What a bridge has lately done with messages of levels: if the broker gives one again, that is not done a second time.

What is passed on, or delivered, waits for moments before it is acknowledged, and a broker that loses the connection gives again all that it has not heard
of. A bridge that lives knows better. What another bridge has done it does not know, nor does it after a restart.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

Name = TypeVar("Name", bound="Hashable")

PASSED_ON = 5_000
"""Messages of a level, at least: more than may be unacknowledged, see `passage.WINDOW`, and as many of which the acknowledgement may be on its way."""

DELIVERED = 10_000
"""Messages of all levels, at least: what lanes deliver in a second or two, after which it is acknowledged."""


class Lately(Generic[Name]):
    """The latest names, at least `least` of them and up to twice as many. Any thread."""

    def __init__(self, least: int) -> None:
        self._least = least
        self._latest: set[Name] = set()
        self._before: set[Name] = set()
        self._lock = threading.Lock()

    def add(self, names: Iterable[Name]) -> None:
        """These are the latest."""
        with self._lock:
            self._latest.update(names)
            if len(self._latest) >= self._least:
                self._before, self._latest = self._latest, set()

    def __contains__(self, name: Name) -> bool:
        return name in self._latest or name in self._before
