"""Definite answers about messages, also about those that are just being published."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..adapters.clock import Clock
    from ..core.store import Answer, Store

PATIENCE = 5.0
"""Seconds that a request waits for a message that is being published, before it is answered `in_flight`."""


class Answers:
    """Asks a store again while a message is in flight: its confirmation makes the answer definite. Any thread.

    `stopping` says that the daemon ends: then nobody is kept waiting.
    """

    def __init__(self, store: Store, clock: Clock, stopping: Callable[[], bool]) -> None:
        self._store = store
        self._clock = clock
        self._stopping = stopping

    def cancel(self, id: str) -> Answer:  # noqa: A002 - the field's own word
        """See `views.ControlPort.cancel`."""
        return self.definite(lambda: self._store.cancel(id, self._clock()))

    def definite(self, ask: Callable[[], Answer]) -> Answer:
        """What `ask` answers, as soon as that is definite, or PATIENCE is over. Polled: a notification would slow every delivery."""
        deadline = time.monotonic() + PATIENCE
        while (answer := ask()).outcome == "in_flight" and time.monotonic() < deadline and not self._stopping():
            time.sleep(0.02)
        return answer
