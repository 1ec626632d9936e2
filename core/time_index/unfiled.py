"""Ledger rows that are in no ledger file yet, for whoever writes the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .. import ledger
    from .access import Access
    from .state import State


class Unfiled:
    """The rows, in the order of their sequence numbers and without holes. Any thread; raises StoreError.

    `named` says which bridge writes the next row.
    """

    def __init__(self, access: Access, state: State) -> None:
        self._access = access
        self._state = state
        self.named: ledger.BridgeNames = state.outbox.named

    def rows(self, limit: int, start: int = 0) -> list[ledger.Row]:
        """The oldest from sequence number `start` on, at most `limit`. They are on disk."""
        with self._access.reading() as state:
            page = state.outbox.page(limit, start)
        rows = page.rows()
        if rows and self._state.unsynced_row(rows[-1].sequence):  # a ledger file must not tell what the machine may still lose
            self._access.sync()
        return rows

    def count(self) -> int:
        """How many there are."""
        with self._access.reading() as state:
            return state.numbers.row - state.outbox.first

    def first(self) -> int:
        """The sequence number of the oldest, or of the next row."""
        with self._access.reading() as state:
            return state.outbox.first

    def intent(self) -> tuple[int, int] | None:
        """The first and the last row that were about to be written to a file and are not forgotten yet: write the same file again."""
        with self._access.reading() as state:
            return state.outbox.intent()

    def intend(self, first: int, last: int) -> None:
        """Say durably which rows will be in the next ledger file, before it is written."""
        with self._access.writing() as state:
            change = state.change()
            state.outbox.intend(change, first, last)
            state.commit(change)
        self._access.sync()

    def forget(self, up_to: int) -> None:
        """Drop the rows up to a sequence number, and the intent, in one durable write: they are in a ledger file now."""
        with self._access.writing() as state:
            change = state.change()
            state.outbox.forget(change, up_to)
            state.commit(change)
        self._access.sync()
