"""Publishes messages a batch at a time, and waits until each is confirmed: for those who, unlike a lane, have nothing else to do meanwhile."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from ..adapters.base import AdapterError, NotConnected, Outgoing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..adapters.base import Outcome, Sink
    from ..core.message import Message


class Outlet:
    """Publishes batches, and waits for up to `patience` seconds until all of one is confirmed. One thread. `name`: what errors call who confirms.

    A context manager: it connects the sink when it is entered, and closes it when it is left. Errors of both, and of the block, go on.
    """

    def __init__(self, sink: Sink, patience: float, name: str) -> None:
        self._sink = sink
        self._patience = patience
        self._name = name
        self._outcomes: list[Outcome] = []
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        self._sink.connect(self._confirm)
        return self

    def __exit__(self, *_: object) -> None:
        self._sink.close()

    def _confirm(self, outcomes: Sequence[Outcome]) -> None:
        with self._changed:
            self._outcomes.extend(outcomes)
            self._changed.notify()

    def publish(self, messages: Sequence[tuple[str, Message]]) -> dict[int, AdapterError]:
        """Publish these, each with its address. Returns, by their places, the errors of those that are not taken.

        Raises NotConnected, also where not all is confirmed in time.
        """
        self._outcomes = []
        self._sink.publish([Outgoing(b"%d" % number, address, message) for number, (address, message) in enumerate(messages)])
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._outcomes) == len(messages), self._patience):
                raise NotConnected(f"{self._name} did not confirm within {self._patience:g} s")
        return {int(tag): error for tag, error in sorted(self._outcomes, key=lambda told: int(told[0])) if error is not None}
