"""Clients in processes of their own, whose broker lives in that process."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from delaybridge.adapters import memory
from delaybridge.adapters.base import Outgoing
from delaybridge.bridge.apart.frames import Setup
from delaybridge.bridge.config import Logs
from delaybridge.core.message import Message

if TYPE_CHECKING:
    from delaybridge.bridge.apart.sink import ApartSink
    from delaybridge.bridge.apart.source import ApartSource

QUEUE = memory.Endpoint(queue="in")


def setup(endpoint: Any = None, kind: str = "memory", options: Any = None) -> Setup:
    options = options or memory.Memory(name=secrets.token_hex(4), create_queues=True)
    return Setup(kind, options, endpoint, Logs(level="error"), frozenset())


def pid_of(client: ApartSink | ApartSource) -> int:
    assert client._place._process is not None
    return client._place._process._process.pid


def outgoing(*tags: bytes) -> list[Outgoing]:
    return [Outgoing(tag, "in", Message(b"body")) for tag in tags]
