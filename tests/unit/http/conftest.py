"""A server on loopback whose control remembers what it was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from fake_control import NOW, FakeControl

from delaybridge.bridge.config import Http
from delaybridge.bridge.http import HttpServer
from delaybridge.bridge.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[FakeControl, str]]:
    control = FakeControl()
    server = HttpServer(control, Metrics("0.1.0"), Http(port=0), lambda: NOW)
    server.start()
    yield control, server.url
    server.stop()


@pytest.fixture
def control(served: tuple[FakeControl, str]) -> FakeControl:
    served[0].reset()
    return served[0]


@pytest.fixture
def client(served: tuple[FakeControl, str], control: FakeControl) -> Iterator[httpx.Client]:  # noqa: ARG001 - a client means a fresh control
    with httpx.Client(base_url=served[1], trust_env=False) as client:
        yield client
