"""A client of each kind, which ends with its test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.apart.clients import QUEUE, setup

from delaybridge.bridge.apart.sink import ApartSink
from delaybridge.bridge.apart.source import ApartSource

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def sink() -> Iterator[ApartSink]:
    one = ApartSink(setup(), "test")
    yield one
    one.end()


@pytest.fixture
def source() -> Iterator[ApartSource]:
    one = ApartSource(setup(QUEUE), "test")
    yield one
    one.end()
