"""What level queues keep on this bridge's disk, for messages that are the broker's: the ledger's rows, and what a source gave last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.store import Counts, LedgerEvent, SourceProgress


class Rows(Protocol):
    """Takes rows of the ledger."""

    def tell(self, told: Sequence[LedgerEvent], now: int, came: SourceProgress | None = None) -> None:
        """Write these rows, and remember what came in, in one write.

        On return it survives a killed process; it survives the machine after `Journal.sync`. Raises StoreFull. Any thread.
        """
        ...


class Journal(Rows, Protocol):
    """Of a store this much: `TimeIndex` is one, in which then no message waits. All else is as `core.store.Store` says."""

    def came(self, source: str) -> SourceProgress:
        """See `core.store.Store.came`."""
        ...

    def forget(self, source: str) -> None:
        """See `core.store.Store.forget`."""
        ...

    def counts(self) -> Counts:
        """See `core.store.Store.counts`. Only `events` is asked for."""
        ...

    def sync(self) -> None:
        """See `core.store.Store.sync`."""
        ...

    def room(self) -> bool:
        """See `core.store.Store.room`."""
        ...

    def free_bytes(self) -> int:
        """See `core.store.Store.free_bytes`."""
        ...

    def size_bytes(self) -> int:
        """See `core.store.Store.size_bytes`."""
        ...

    def close(self) -> None:
        """See `core.store.Store.close`."""
        ...
