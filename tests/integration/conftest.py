"""Fixtures of the integration tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


from integration.gate import Stage


@pytest.fixture
def stage(rabbitmq: Any) -> Iterator[Stage]:
    if not rabbitmq.management_url:
        pytest.skip("a gate needs RabbitMQ's management API")
    made = Stage(rabbitmq.url, rabbitmq.management_url)
    yield made
    made.clear()
