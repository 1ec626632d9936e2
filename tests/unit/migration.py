"""Moving between a time index and level queues of the in-process broker."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
from contract.stores import T0

from delaybridge.adapters import memory
from delaybridge.bridge.config import Config
from delaybridge.bridge.level_queues.envelope import unpack
from delaybridge.bridge.migration import into, to_level_queues, to_time_index

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from delaybridge.bridge.migration import MovedIn, MovedOut, Place
    from delaybridge.core.message import Message
    from delaybridge.core.store import Record
    from delaybridge.core.time_index import TimeIndex


def configured(path: Path) -> Config:
    """A bridge on the in-process broker, whose levels are these."""
    brokers = {"here": {"type": "memory", "name": secrets.token_hex(4)}}
    routes = [{"name": "jobs", "from": {"broker": "here", "queue": "in"}, "to": {"broker": "here"}}]
    return Config.model_validate({"store": {"path": path}, "brokers": brokers, "routes": routes, "limits": {"levels": "1s 1m 1h"}})


def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for what may still come out of a level."""
    for name in ("WAKING", "UNKNOWN", "QUIET"):
        monkeypatch.setattr(into, name, 0.0)


def out(index: TimeIndex, there: Place, now: int = T0) -> MovedOut:
    return to_level_queues(index, there, lambda: now, lambda _: None)


def killed_out(index: TimeIndex, there: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is not forgotten here."""

    def killed(_: Sequence[bytes]) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(index.migration, "out", killed)
        with pytest.raises(KeyboardInterrupt):
            out(index, there)


def back(index: TimeIndex, there: Place, now: int = T0) -> MovedIn:
    return to_time_index(index, there, lambda: now, lambda _: None)


def messages(there: Place, queue: str) -> list[Message]:
    options = there.options
    assert isinstance(options, memory.Memory)
    return [entry.message for entry in memory.broker(options.name).queue(f"levels.{queue}")]


def levels(there: Place) -> dict[str, list[Record]]:
    """What is at each level."""
    return {name: [unpack(each).record for each in messages(there, name)] for name in ("0", "1s", "1m", "1h")}


def texts(records: Sequence[Record]) -> list[str]:
    return [(each.message.body or b"").decode() for each in records]
