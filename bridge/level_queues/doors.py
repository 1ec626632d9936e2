"""How messages enter the level queues: by the bridge's publisher; or, on a broker with transactions, in the one that acknowledges them at their source."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Protocol

from ...adapters.base import BackOff, NotConnected
from ...core.reasons import Reason
from ..workers import LOOK
from .countdown import Countdown
from .publisher import Item

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from ...adapters.base import Holding
    from ...adapters.moves import Joined
    from ...core.store import LedgerEvent, SourceProgress
    from .journal import Rows
    from .places import Addressed

GRACE = 3.0
"""Seconds after `shut` in which messages on their way in are confirmed, as a rule. If one is not, its whole batch comes again."""


class Publishing(Protocol):
    """What puts messages into the level queues: a `Publisher`."""

    def submit(self, items: Sequence[Item]) -> None:
        """Publish, in order, without blocking; each item hears what became of it."""
        ...

    def seek_missing(self) -> None:
        """A queue is not there: make it again soon. Any thread."""
        ...


class Doors:
    """The ways into the level queues. `exact`: the routes whose tokens name one message each. `journal` keeps the ledger's rows, and those tokens."""

    def __init__(self, publisher: Publishing, journal: Rows, exact: Container[str]) -> None:
        self._publisher = publisher
        self._journal = journal
        self._exact = exact
        self._joined: dict[str, Joined] = {}
        self._holders: dict[str, Holding] = {}
        self._shut = float("inf")

    def join(self, route: str, source: Joined) -> None:
        """From now on acknowledge this route's batches in the transaction in which they enter: nothing enters twice."""
        self._joined[route] = source
        self.hold(route, source)

    def hold(self, route: str, source: Holding) -> None:
        """From now on ask this route's source whether it still has its messages, before they claim ids."""
        self._holders[route] = source

    def holder(self, route: str) -> Holding | None:
        """The source of this route, where it can tell whether it still has what it gave."""
        return self._holders.get(route)

    def exact(self, route: str) -> bool:
        """Whether this route's tokens name one message each."""
        return route in self._exact

    def may_have_moved(self, route: str) -> bool:
        """Whether what came by this route, and comes again, may have been given to another bridge meanwhile, and is known to be the same message."""
        return self.exact(route) and route not in self._joined

    def shut(self) -> None:
        """The bridge is stopping: what still waits for its confirmation waits only moments longer. Any thread."""
        self._shut = time.monotonic()

    def enter(self, items: Sequence[Addressed], told: Sequence[LedgerEvent], now: int, came: SourceProgress | None) -> None:
        """Durable on return. Raises NotConnected if the bridge stops before the broker has confirmed all; some messages may have entered then.

        Nothing else ends the wait: if a batch were given up for one message, the source would give all of it again.
        Ledger rows are written after that, with exact tokens beside them: this bridge recognises what comes again, unless it was killed in between. On a
        joined route nothing that has entered comes again; if the bridge was killed in between, its rows are missing.
        """
        route = came.source if came else ""
        joined = self._joined.get(route)
        if joined is not None and items:
            try:
                joined.publish(items, lambda: self._journal.tell(told, now))
            except NotConnected as error:
                if isinstance(error.__cause__, BackOff) and error.__cause__.reason == Reason.UNROUTABLE:
                    self._publisher.seek_missing()
                raise
        else:
            self._published(items)
            self._journal.tell(told, now, came if joined is None and self.exact(route) else None)

    def _published(self, items: Sequence[Addressed]) -> None:
        """Publish and wait; what is refused is tried again meanwhile. Raises NotConnected when the bridge stops before all is confirmed."""
        if not items:
            return
        waiting, done = threading.Event(), threading.Event()
        last = Countdown(len(items), done.set)
        waiting.set()
        self._publisher.submit([Item([item], last.one, waiting.is_set) for item in items])
        while not done.wait(LOOK):
            if time.monotonic() >= self._shut + GRACE:
                waiting.clear()
                raise NotConnected(f"the level queues took {len(items) - last.left} of {len(items)} messages before the bridge stopped")
