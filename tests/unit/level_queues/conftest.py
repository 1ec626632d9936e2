"""Level queues on the embedded broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract.level_queues import Stepped
from unit.level_queues.sharing import Sharing

from delaybridge.bridge.level_queues.ids import replica

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(place: Path) -> Iterator[Stepped]:
    opened = Stepped(place)
    yield opened
    opened.close()  # idempotent


@pytest.fixture
def sharing(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sharing]:
    """The same, with a log of ids."""
    monkeypatch.setattr(replica, "LOOK", 0.01)
    opened = Sharing(place).start()
    yield opened
    opened.close()
