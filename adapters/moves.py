"""Optional ability of a broker with transactions: what leaves a level, or an ingress, and what it becomes, are one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from ..core.message import Message
from .base import Holding, NotConnected, Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from .base import Confirm
    from .levelled import Level

LEAD = 6
"""Milliseconds before it is due that a move is handed over: its first steps, which nobody sees, take about so long on Kafka."""


class Gone(NotConnected):
    """The message that a move was to finish belongs to another bridge by now, or comes again: nothing has happened, forget the move."""


class Move(msgspec.Struct, frozen=True):
    """Messages to publish, and a message to finish: both happen, or neither.

    tag        comes back with the outcome
    messages   what to publish, each with its address
    finishes   the token of the message, from a level source, that the broker is to forget
    due        before this (epoch ms) nobody can read the messages, and no timestamp of them is earlier. At most LEAD from now; 0: at once
    """

    tag: bytes
    messages: Sequence[tuple[str, Message]]
    finishes: bytes
    due: int = 0


class Mover(Protocol):
    """Makes moves, in order. One thread drives it. Connecting, outcomes, errors and closing are those of a Sink; and there is the error Gone.

    One thing differs. If the connection was lost, and nobody knows whether a move has happened, its outcome comes only when a mover of these levels has
    connected again: by then it is known.
    """

    def connect(self, confirm: Confirm) -> None:
        """See base.Sink."""
        ...

    def move(self, moves: Sequence[Move]) -> None:
        """Begin these, without waiting; raises NotConnected: then none was begun. Without moves it only raises NotConnected if the connection is gone."""
        ...

    def close(self) -> None:
        """See base.Sink."""
        ...


class Joined(Source, Holding, Protocol):
    """A source whose broker forgets a batch in the same step that publishes what the batch becomes.

    For a batch that becomes nothing, `ack` makes that step, and blocks as `publish` does.
    """

    def publish(self, messages: Sequence[tuple[str, Message]], entered: Callable[[], None]) -> None:
        """Publish these, each with its address, and let the broker forget the batch that was received last: both, or neither.

        Returns when that has happened. The batch's `ack` must be called all the same, and asks nothing of the broker then. What is refused is tried again
        meanwhile. Blocks for some ten seconds at most. Raises NotConnected if nobody knows whether it has happened: after connecting anew the batch comes
        again, unless it has. Called by the thread that receives.

        `entered` is called on that thread once it is known to have happened: before this returns, or by the next `receive`. If it has not happened it is
        never called.
        """
        ...


class TransactionalLevels(Protocol):
    """All level sources over one connection, and movers that finish the messages of these sources. What was not finished comes again."""

    def source(self, level: Level) -> Source:
        """See levelled.Levelled."""
        ...

    def joined(self, source: Source, route: str) -> Joined | None:
        """A source to use in place of this one, whose batches are passed on in one step, not connected yet; None where this one cannot be replaced so.

        `route` is a name that no other joined source of these levels has, and the same after a restart.
        """
        ...

    def mover(self) -> Mover | None:
        """Another mover; not connected yet. None where the options do not want any.

        Where there are movers, they finish what the sources gave: to acknowledge a batch does nothing.
        """
        ...


@runtime_checkable
class Transactional(Protocol):
    """Optional ability of a Levelled adapter: exactly once from level to level, and to any address of the same broker."""

    def transactional_levels(self, options: Any, levels: Sequence[Level], bridge: str = "") -> TransactionalLevels:
        """For these levels, level 0 first; not connected yet. `bridge` is a name that no other bridge of these levels has, and the same after a restart."""
        ...
