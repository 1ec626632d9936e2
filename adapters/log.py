"""The contract of a log beside level queues: the optional ability of an adapter to let all bridges tell each other what became of an id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .levelled import Level


class Line(msgspec.Struct, frozen=True):
    """One line of a log. Without a value its key is to be forgotten; what stands in `note` is read with it, and need not be kept for longer."""

    key: bytes
    value: bytes | None
    note: bytes = b""


class Log(Protocol):
    """Lines in one order, of which the broker keeps at least the last of each key. All bridges append to it, and each reads it from its beginning.

    One thread connects, reads, asks for the end and closes; any thread appends.
    """

    def connect(self, place: int) -> int:
        """Read from that place on; returns the place from which it is read, 0 where the given one is not a place of this log. Raises NotConnected."""
        ...

    def read(self, timeout: float) -> tuple[int, Sequence[tuple[int, Line]]]:
        """Lines with their places, waiting up to `timeout` seconds for a first one, and the place up to which all is read now. Raises NotConnected."""
        ...

    def end(self) -> int:
        """The place after all lines whose `append` had returned when this was asked. Raises NotConnected."""
        ...

    def append(self, lines: Sequence[Line]) -> list[int]:
        """The place of each line. When this returns they are as durable as a message that is confirmed, and `end` of every bridge knows of them.

        Blocks for at most the configured time-outs. Raises NotConnected, BackOff and Rejected: then some of them may be there.
        """
        ...

    def close(self) -> None:
        """Disconnect. Idempotent."""
        ...


@runtime_checkable
class Logging(Protocol):
    """Optional ability of a Levelled adapter: a log beside the level queues, in which bridges tell each other what became of an id."""

    def level_log(self, options: Any, level: Level) -> Log:
        """The log of that name, which `level_queues` declares as it does levels; not connected yet."""
        ...
