"""What a transactional producer must know of the consumers whose records its transactions finish."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafka import OffsetAndMetadata, TopicPartition

    from ...base import NotConnected


class Session(Protocol):
    """One connection of such a consumer. Any thread; does not block."""

    def member(self) -> Any:
        """The group's member in whose name a transaction finishes records, None where there is none: ask before records are looked up."""
        ...

    def out(self, token: bytes) -> Any:
        """The record that was given out with this token; None where it comes again, or belongs to another bridge."""
        ...

    def positions(self, found: Iterable[Any]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """What the group commits when these are finished. Raises KeyError where a partition has gone."""
        ...

    def finished(self, found: Iterable[Any]) -> None:
        """A committed transaction has finished these."""
        ...

    def fail(self, reason: NotConnected) -> None:
        """Nobody knows what is committed: this connection is of no use, and is made anew."""
        ...


class Readers(Protocol):
    """A consumer group whose records are finished, and its connection while there is one."""

    group: str

    @property
    def poller(self) -> Session | None:
        """The connection."""
        ...
