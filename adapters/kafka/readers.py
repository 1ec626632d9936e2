"""Whose records transactions finish: what a transactional producer must know of the consumers of its bridge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafka import OffsetAndMetadata, TopicPartition

    from ..base import NotConnected


class Session(Protocol):
    """One connection of those whose records are finished. Any thread; does not block."""

    def member(self) -> Any:
        """In whose name a transaction finishes records, None where there is nobody: ask before they are looked up."""
        ...

    def out(self, token: bytes) -> Any:
        """What was given out as this, None where it comes again or belongs to somebody else."""
        ...

    def positions(self, found: Iterable[Any]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """What the group commits when these are finished. Raises KeyError where a partition has gone."""
        ...

    def finished(self, found: Iterable[Any]) -> None:
        """A committed transaction has finished these."""
        ...

    def fail(self, reason: NotConnected) -> None:
        """Nobody knows what is committed: whoever reads here connects anew."""
        ...


class Readers(Protocol):
    """The consumer group whose records are finished, and its connection while there is one."""

    group: str

    @property
    def poller(self) -> Session | None:
        """The connection."""
        ...
