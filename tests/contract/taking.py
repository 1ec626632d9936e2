"""Receiving until a condition holds, however slow the broker is today."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from brokers.common import wait_until

from delaybridge.adapters.base import NotConnected

if TYPE_CHECKING:
    from collections.abc import Callable

    from delaybridge.adapters.base import Batch, Received, Source


def taken(source: Source, enough: Callable[[list[Received]], bool], timeout: float = 60) -> list[Received]:
    """What comes until it is enough, and what else is there right behind it; each batch acknowledged. AssertionError when enough does not come in time."""
    found: list[Received] = []
    deadline = time.monotonic() + timeout
    while not enough(found):
        assert time.monotonic() < deadline, f"waited {timeout} s, {len(found)} messages came"
        _more(source, found, 1)
    while _more(source, found, 0.5):
        pass
    return found


def _more(source: Source, found: list[Received], wait: float) -> bool:
    batch = source.receive(500, wait)
    if batch is None:
        return False
    found += batch.messages
    batch.ack()
    return True


def until_lost(step: Callable[[], object], match: str | None = None, timeout: float = 60) -> None:
    """Take this step until it raises NotConnected: one connection may hear later than another that the broker has gone, and still hand out what it has."""

    def never() -> bool:
        step()
        return False

    with pytest.raises(NotConnected, match=match):
        wait_until(never, "the loss of the connection", timeout)


def tag_of(one: Received) -> str:
    """What a test named the message by: its body, but for what only makes it larger."""
    return (one.message.body or b"").decode().strip()


def batches(source: Source, count: int, limit: int) -> list[Batch]:
    """Batches of at most `limit` that hold `count` messages together, or more; none is acknowledged."""
    found: list[Batch] = []
    while sum(len(batch.messages) for batch in found) < count:
        batch = source.receive(limit, 15)
        assert batch is not None
        found.append(batch)
    return found
