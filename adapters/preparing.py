"""Optional ability of an adapter: to prepare its broker so that a header is enough, and to prove that it works. For `plan`, `apply` and `doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence


class Step(msgspec.Struct, frozen=True):
    """One thing that interception needs on the broker.

    what      the wanted state, in a sentence
    command   how to get there by pasting; empty where neither pasting nor `apply` can
    done      whether it is so already
    reads     the environment variables that the command reads
    by_hand   only a person can do it, by pasting the command; `apply` cannot
    """

    what: str
    command: str
    done: bool
    reads: tuple[str, ...] = ()
    by_hand: bool = False


class Finding(msgspec.Struct, frozen=True):
    """One thing that `doctor` looked at; `fix` says what to do where it is not `ok`."""

    ok: bool
    what: str
    fix: str = ""


class Interception(Protocol):
    """Optional ability of an adapter: what the broker needs so that a header is enough (queues, exchanges, policies)."""

    def plan(self) -> list[Step]:
        """What would be declared; changes nothing."""
        ...

    def apply(self) -> list[Step]:
        """Declare what is missing, losing and doubling no undelayed message meanwhile. Idempotent."""
        ...

    def undo(self) -> list[Step]:
        """Take away what `apply` declared, losing and doubling nothing meanwhile; what waits in the bridge is still delivered. Idempotent."""
        ...

    def check(self) -> list[Finding]:
        """Find what is missing and what goes past the bridge; changes nothing."""
        ...

    def probe(self) -> list[Finding]:
        """Send a delayed message of its own through each way into the running bridge and wait for it; no consumer sees it."""
        ...


@runtime_checkable
class Intercepting(Protocol):
    """An adapter that can prepare its broker."""

    def interception(self, options: Any, routes: Sequence[Any]) -> Interception:
        """For all routes that read from this broker (their validated `from` sections)."""
        ...


@runtime_checkable
class Crowded(Protocol):
    """Optional ability of an Interception: to tell where other bridges take in messages as well."""

    def crowds(self) -> dict[str, int]:
        """The ingress queues that have more consumers than one bridge of this configuration, and how many they have; changes nothing."""
        ...
