"""Level queues on the embedded broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract.level_queues import Stepped

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
