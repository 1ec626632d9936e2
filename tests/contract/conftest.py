"""The stores that every sentence about stores is tried on. A new kind of store is one more entry in STORES."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delaybridge.core.time_index import TimeIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from delaybridge.core.store import Store


def _time_index(path: Path) -> Store:
    return TimeIndex(path, bridge="test", memory_ms=3_600_000, recent_tokens=10, min_free_disk=0, reserve_bytes=0)


STORES = {"time_index": _time_index}


@pytest.fixture(params=STORES)
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Opens the test's store; opening it again closes it first, as a restart does."""
    opened: list[Store] = []

    def open_it() -> Store:
        if opened:
            opened.pop().close()
        opened.append(STORES[request.param](tmp_path / "store"))
        return opened[0]

    yield open_it
    opened.pop().close()


@pytest.fixture
def store(open_store: Callable[[], Store]) -> Store:
    """An empty store."""
    return open_store()
