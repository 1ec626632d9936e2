"""How messages enter the level queues: each bridge's own publisher, or, on a broker with transactions, together with the end of what they came as."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from ...adapters.base import NotConnected
from .countdown import Countdown
from .publisher import Item

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from ...adapters.exchange import Joined
    from ...core.message import Message
    from ...core.store import Told
    from ...core.time_index import TimeIndex

PATIENCE = 10.0
"""Seconds that `enter` waits for the broker's confirmations. What was confirmed when it gives up is delivered again with the rest."""


class Publishing(Protocol):
    """What puts messages into the level queues: `Publisher`."""

    def submit(self, items: Sequence[Item]) -> None:
        """Publish, in order, without blocking; each item hears what became of it."""
        ...


class Doors:
    """`exact` are the routes whose tokens name one message each; `journal` keeps the ledger's rows, and those tokens."""

    def __init__(self, publisher: Publishing, journal: TimeIndex, exact: Container[str]) -> None:
        self._publisher = publisher
        self._journal = journal
        self._exact = exact
        self._joined: dict[str, Joined] = {}

    def join(self, route: str, source: Joined) -> None:
        """The batches of a route are forgotten by their broker together with their entry: nothing enters twice."""
        self._joined[route] = source

    def exact(self, route: str) -> bool:
        """Whether this route's tokens name one message each."""
        return route in self._exact

    def enter(self, items: Sequence[tuple[str, Message]], told: Sequence[Told], now: int, route: str, tokens: Sequence[bytes]) -> None:
        """Durable is what the broker confirmed; raises NotConnected where it did not, and some of it may be there then.

        Rows come after that. Exact tokens are remembered beside them: what comes again is recognised by this bridge, unless it was killed in between. Of a
        route that is joined nothing comes again that has entered; where it was killed in between, rows are missing.
        """
        joined = self._joined.get(route)
        if joined is not None and items:
            joined.publish(items, lambda: self._journal.tell(told, now))
        else:
            self._published(items)
            self._journal.tell(told, now, route, tokens if joined is None and self.exact(route) else ())

    def _published(self, items: Sequence[tuple[str, Message]]) -> None:
        """Publish and wait; what is refused is tried again meanwhile. Raises NotConnected."""
        if not items:
            return
        waiting, done = threading.Event(), threading.Event()
        last = Countdown(len(items), done.set)
        waiting.set()
        self._publisher.submit([Item(address, message, last.one, waiting.is_set) for address, message in items])
        if not done.wait(PATIENCE):
            waiting.clear()
            raise NotConnected(f"the level queues took {len(items) - last.left} of {len(items)} messages within {PATIENCE:g} s")
