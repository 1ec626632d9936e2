"""The optional ability to answer in place of a broker's own scheduler: its clients ask what is scheduled, and withdraw it.

ActiveMQ's are the model: messages to `ActiveMQ.Scheduler.Management`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from ..core.store import Record


class Browse(msgspec.Struct, frozen=True):
    """Show what is scheduled to `reply_to`; with a window, what is due from (inclusive) to (inclusive), epoch ms."""

    reply_to: str
    due_from: int | None = None
    due_to: int | None = None


class Remove(msgspec.Struct, frozen=True):
    """Withdraw one scheduled message."""

    id: str


class RemoveAll(msgspec.Struct, frozen=True):
    """Withdraw all; with a window, what is due from (inclusive) to (inclusive), epoch ms."""

    due_from: int | None = None
    due_to: int | None = None


class Unclear(msgspec.Struct, frozen=True):
    """A management message that asks for nothing that can be done; `detail` is a sentence for people."""

    detail: str


class ManagementMessage(msgspec.Struct, frozen=True):
    """One management message, and the call that lets the broker forget it (as `Batch.ack`)."""

    request: Browse | Remove | RemoveAll | Unclear
    ack: Callable[[], None]


class SchedulerRequests(Protocol):
    """Where a broker's own clients ask its scheduler what is scheduled, and withdraw it. One thread drives it."""

    def connect(self) -> None:
        """Open the connection and subscribe; blocks for at most the configured connection time-out. Raises NotConnected."""
        ...

    def receive(self, timeout: float) -> ManagementMessage | None:
        """The next request, waiting up to `timeout` seconds; None where there was none. Raises NotConnected."""
        ...

    def answer(self, to: str, pages: Iterable[Sequence[Record]]) -> None:
        """Send a message for each record to where a Browse wants them, page by page; returns when the broker has taken all.

        Blocks while the broker takes none, for at most the configured time-out. Raises NotConnected, and Rejected where there is nobody to answer.
        """
        ...

    def close(self) -> None:
        """Disconnect. What was not acknowledged goes back to the broker, where that keeps it. Idempotent."""
        ...


@runtime_checkable
class Manageable(Protocol):
    """An adapter of a broker with a scheduler of its own, whose management messages the bridge answers in its place."""

    def management(self, options: Any) -> Sequence[SchedulerRequests]:
        """One for each destination at which such messages come in; not connected yet. Empty where it is switched off."""
        ...
