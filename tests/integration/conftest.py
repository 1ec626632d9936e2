"""Fixtures of the integration tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


from integration.gate import Stage
from integration.stores import STORES, Waiting


@pytest.fixture
def stage(rabbitmq: Any) -> Iterator[Stage]:
    if not rabbitmq.management_url:
        pytest.skip("a gate needs RabbitMQ's management API")
    made = Stage(rabbitmq.url, rabbitmq.management_url)
    yield made
    made.clear()


@pytest.fixture(scope="module", params=STORES)
def waiting(request: pytest.FixtureRequest) -> Iterator[Waiting]:
    """Where the messages of the module's daemons wait."""
    kind = request.param
    broker = {}
    if kind != "time_index":  # now, and not when a daemon asks: so it is still there for the close
        broker = {"type": kind, "bootstrap_servers" if kind == "kafka" else "url": request.getfixturevalue(kind).url}
    made = Waiting(kind, broker)
    yield made
    made.close()
