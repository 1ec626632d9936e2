"""What is known of ActiveMQ's destinations from one connection to the next: which may share transactions, and which may be why one had no answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST = 10_000
"""Of each kind: beyond that all are forgotten, and have to earn their standing again."""

_FORGIVEN = 1000
"""Answers to messages alone, after which a suspect is trusted again."""


class Standing:
    """One thread at a time."""

    def __init__(self) -> None:
        self._trusted: set[str] = set()
        self._suspects: dict[str, int] = {}

    def trusts(self, destination: str) -> bool:
        """Whether messages for it share transactions."""
        return destination in self._trusted

    def trust(self, destination: str) -> None:
        """It has answered to a message alone."""
        if len(self._trusted) >= _MOST:
            self._trusted.clear()
        self._trusted.add(destination)

    def distrust(self, destinations: Iterable[str]) -> None:
        """A transaction with messages for these failed, or was cut short."""
        self._trusted.difference_update(destinations)

    def suspects(self, destination: str) -> bool:
        """Whether it may be why a transaction had no answer, or failed, as a queue that is soon full."""
        return destination in self._suspects

    def suspect(self, destinations: Iterable[str]) -> None:
        """A transaction with messages for these had no answer, or failed, and they refused what went alone then."""
        if len(self._suspects) >= _MOST:
            self._suspects.clear()
        self._suspects.update(dict.fromkeys(destinations, _FORGIVEN))

    def forgive(self, destination: str) -> None:
        """It has taken a message alone: after `_FORGIVEN` of these it is suspected no more."""
        if left := self._suspects.pop(destination, 1) - 1:
            self._suspects[destination] = left
