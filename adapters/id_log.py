"""The contract of a log of ids: the optional ability of a broker with level queues by which all bridges tell each other what became of an id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .levelled import Level


class Line(msgspec.Struct, frozen=True):
    """One line of a log. `value` None says that its key may be forgotten; `note` is read with such a line, and need not be kept for longer."""

    key: bytes
    value: bytes | None
    note: bytes = b""


class IdLog(Protocol):
    """Lines in one order that all bridges share. The broker keeps at least the last line of each key. Every bridge appends, and reads from the beginning.

    One thread connects, reads, asks for the end and closes; any thread appends.
    """

    def connect(self, place: int) -> int:
        """Read from this place on. Returns the place from which it is read: 0 where this log does not have the given one. Raises NotConnected."""
        ...

    def read(self, timeout: float) -> tuple[int, Sequence[tuple[int, Line]]]:
        """The place up to which the log is read now, and the next lines with their places. Raises NotConnected.

        Waits up to `timeout` seconds for a first line.
        """
        ...

    def end(self) -> int:
        """The place after all lines whose `append` had returned when this was asked. Raises NotConnected."""
        ...

    def append(self, lines: Sequence[Line]) -> list[int]:
        """Append lines, and return their places. On return they are as durable as a confirmed message, and each bridge's `end` includes them.

        Blocks for at most the configured time-outs. Raises NotConnected, BackOff and Rejected: some of the lines may be there then.
        """
        ...

    def close(self) -> None:
        """Disconnect. Idempotent."""
        ...


@runtime_checkable
class IdLogging(Protocol):
    """Optional ability of a Levelled adapter: a log beside the level queues, in which bridges tell each other what became of an id."""

    def id_log(self, options: Any, level: Level) -> IdLog:
        """The log of that name, which `level_queues` declares as it does levels; not connected yet."""
        ...
