"""What only a store with an index can do, refused with a reason."""
# ruff: noqa: ARG002 - these are a contract's arguments, and none of them changes the answer

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.store import Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.store import Answer, DeadLetter, Page, Pending, Query


class Unindexed:
    """The methods of `core.store.Store` that look for a message. `shelf` is where dead letters lie instead."""

    indexed = False

    def __init__(self, shelf: str) -> None:
        self._shelf = shelf

    def reschedule(self, id: str, due: int, now: int) -> Answer:  # noqa: A002 - the field's own word
        """Raises Unsupported, as the following do."""
        raise unsupported("rescheduling or releasing a message")

    def find(self, id: str) -> Pending | Answer:  # noqa: A002 - the field's own word
        """See `reschedule`."""
        raise unsupported("looking up an id")

    def list(self, query: Query, limit: int, cursor: str = "") -> Page:
        """See `reschedule`."""
        raise unsupported("listing")

    def dead_letters(self, limit: int, after: int = 0) -> Sequence[DeadLetter]:
        """See `reschedule`."""
        raise self._on_the_broker("listing dead letters")

    def retry_dead_letter(self, number: int, now: int, address: str = "") -> bool:
        """See `reschedule`."""
        raise self._on_the_broker("retrying a dead letter")

    def drop_dead_letter(self, number: int, now: int) -> bool:
        """See `reschedule`."""
        raise self._on_the_broker("dropping a dead letter")

    def _on_the_broker(self, what: str) -> Unsupported:
        return Unsupported(f"{what} needs a time index: with level queues they lie on the broker, in {self._shelf}, and are read there")


def unsupported(what: str) -> Unsupported:
    """Why this cannot be done here."""
    return Unsupported(f"{what} needs a time index: level queues hold messages on the broker, where nobody can look for one")
