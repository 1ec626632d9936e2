"""Who may use a time index at this moment, and whether it still works."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ..store import StoreClosed, StoreError, StoreFull
from .database import translated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .state import State


class Access:
    """Gives any thread its turn at the state.

    After a failure all calls raise StoreError, because nobody knows what of it is on disk; after `close`, StoreClosed.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._failure: StoreError | None = None
        self._closed = False

    @property
    def failed(self) -> bool:
        """Whether nothing works any more; so it is when the store is closed."""
        return self._closed or self._failure is not None

    @contextlib.contextmanager
    def writing(self, now: int = 0) -> Iterator[State]:
        """A writer's turn, one at a time; readers look in between its steps. What is written is on disk after `sync`."""
        with self._state.write_lock, self.reading(now) as state:
            yield state

    @contextlib.contextmanager
    def reading(self, now: int = 0) -> Iterator[State]:
        """A reader's turn. StoreFull, unlike other errors, leaves everything as it was."""
        with self._state.memory_lock:
            if self._closed:
                raise StoreClosed("the store is closed")
            if self._failure is not None:
                raise StoreError(f"the store failed before: {self._failure}") from self._failure
            self._state.ids.told(now)
            try:
                with translated():
                    yield self._state
            except StoreFull:
                raise
            except StoreError as error:
                self._failure = error
                raise

    def sync(self) -> None:
        """Wait until what was written is on disk; outside of any turn, so that others go on meanwhile."""
        try:
            self._state.sync()
        except StoreError as error:
            self._failure = error
            raise StoreError(f"the disk did not take what was written: {error}") from error

    def close(self) -> None:
        """Release the files after the turns that are under way. Idempotent."""
        with self._state.write_lock, self._state.memory_lock:
            if not self._closed:
                self._closed = True
                with contextlib.suppress(*([StoreError] if self._failure else [])):  # it was told already
                    self._state.close()
