"""Brokers in containers, as far as they can be looked at without Docker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from brokers.private import publish


def test_a_container_listens_on_loopback_only() -> None:
    container: Any = SimpleNamespace(ports={})  # the real one asks for Docker

    publish(container, {5672: 20001, 15672: 20002})

    assert container.ports == {"5672/tcp": ("127.0.0.1", 20001), "15672/tcp": ("127.0.0.1", 20002)}
