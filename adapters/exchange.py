"""Optional ability of a broker with transactions: what leaves a level, or an ingress, and what it becomes, are one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from ..core.message import Message
from .base import NotConnected, Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from .base import Confirm
    from .levelled import Level


class Gone(NotConnected):
    """What a move was to finish belongs to another bridge by now, or comes again: nothing has happened, let it be."""


class Move(msgspec.Struct, frozen=True):
    """What happens together or not at all: `messages`, each with its address, are published, and the broker forgets what `finishes` names.

    That is the token of a message from a level source. `tag` comes back with the outcome.
    """

    tag: bytes
    messages: Sequence[tuple[str, Message]]
    finishes: bytes


class Mover(Protocol):
    """Where moves are made, in order. One thread drives it. Connecting, outcomes, errors and closing are those of a Sink; and Gone.

    But a move of which nobody knows whether it has happened, because the connection was lost, has its outcome when a mover of this exchange has connected
    again, and not before.
    """

    def connect(self, confirm: Confirm) -> None:
        """See Sink."""
        ...

    def move(self, moves: Sequence[Move]) -> None:
        """Begin these, without waiting; raises NotConnected: then none was begun. Without moves it only says whether the connection is there."""
        ...

    def close(self) -> None:
        """See Sink."""
        ...


class Joined(Source, Protocol):
    """A source whose broker forgets a batch in the step that publishes what it becomes. Where a batch becomes nothing, its `ack` blocks as `publish` does."""

    def publish(self, messages: Sequence[tuple[str, Message]], entered: Callable[[], None]) -> None:
        """Publish these, each with its address, and let the broker forget the batch that was received last; both, or neither.

        Returns when that has happened; the batch's `ack` is still to be called, and asks for nothing more. What is refused is tried again meanwhile. Blocks
        for some ten seconds at most. Raises NotConnected: then nobody knows, and connecting anew gives the batch again unless it has happened. Called by
        the thread that receives. `entered` is called on that thread once it is known to have happened: before this returns, or by the next `receive`;
        never where there is none.
        """
        ...


class Exchange(Protocol):
    """All level sources over one connection, and movers that finish what they gave. What was not finished comes again."""

    def source(self, level: Level) -> Source:
        """See Levelled."""
        ...

    def joined(self, source: Source, route: str) -> Joined | None:
        """A source to use in place of this one, not connected yet, whose batches are passed on in one step; None where this one cannot be replaced so.

        `route` is a name that no other source of this exchange has, and the same after a restart.
        """
        ...

    def mover(self) -> Mover | None:
        """Another one; not connected yet. With movers, the acknowledgement of a batch does nothing. None where the options do not want them."""
        ...


@runtime_checkable
class Exchanging(Protocol):
    """Optional ability of a Levelled adapter: exactly once from level to level, and to any address of the same broker."""

    def level_exchange(self, options: Any, levels: Sequence[Level], bridge: str = "") -> Exchange:
        """For these levels, level 0 first; not connected yet. `bridge` is a name that no other bridge of these levels has, and the same after a restart."""
        ...
