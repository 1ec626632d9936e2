"""How an observer looks at a destination: what came in one short look after the other, each acknowledged when the next one is asked for."""

from __future__ import annotations

import queue
import sys
import threading
from typing import TYPE_CHECKING, Any

import msgspec

from ..adapters.base import Spelling, Trailing
from . import plugins
from .http.convert import delivery
from .ledger.observed import QUIET_MS, Look

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..adapters.base import Batch, Source
    from ..adapters.clock import Clock
    from .config import Config

AT_ONCE = 500
"""Messages that are taken in one go, at most."""

_LOOK = 0.02
"""Seconds from a look's first message to its end."""

_BYTES = 4 << 20
"""Bodies of so many bytes in one look: it is full."""


def recorded(config: Config, broker: str, address: str) -> list[str]:
    """How the ledgers write this destination, as far as the configuration tells; as it was given, where it does not. The first is to be recorded.

    There are several where its routes write it in several ways. Raises Rejected(bad_destination).
    """
    adapter = plugins.adapter(config.brokers[broker].type)
    if not isinstance(adapter, Spelling):
        return [address]
    canonical = adapter.canonical(address)
    found: dict[str, None] = {}
    for route in config.routes:
        if route.to.broker != broker:
            continue
        found |= dict.fromkeys(each for _, each in route.destinations if adapter.canonical(each) == canonical)
        own = route.to.address is None and route.source.broker == broker  # a message goes where it was sent
        if own and adapter.gated(route.source.endpoint, canonical):
            found[canonical] = None
    return sorted(found, key=lambda each: each != address) or [address]


def looks(
    tap: Source,
    address: str,
    room: int,
    clock: Clock,
    elapsed: Callable[[], float],
    count: int | None = None,
    ended: Callable[[], bool] = lambda: False,
) -> Iterator[Look]:
    """One look after the other, until `count` messages have come, or it has `ended`. When the next one is asked for, the last one is acknowledged.

    During a look nothing is acknowledged: a broker that gives no more has no more, for it could give up to `room`, unless it says that it is behind.
    """
    left = count or sys.maxsize
    while left and not ended():
        began = clock()
        taken, full = _look(tap, min(room, left), clock, elapsed, left)
        deliveries = [delivery for batch, at in taken for delivery in told(batch, address, at)]
        yield Look(began, clock(), deliveries, full or (isinstance(tap, Trailing) and tap.behind))
        for batch, _ in taken:
            batch.ack()
        left -= len(deliveries)


def _look(tap: Source, room: int, clock: Clock, elapsed: Callable[[], float], most: int) -> tuple[list[tuple[Batch, int]], bool]:
    """What comes from the first message on, for a short time, or until the look is full, and when; nothing if none comes for `QUIET_MS`.

    It never has more than `most`.
    """
    taken: list[tuple[Batch, int]] = []
    count = size = 0
    end = elapsed() + QUIET_MS / 1000
    while (left := end - elapsed()) > 0:
        batch = tap.receive(limit=min(AT_ONCE, most - count), timeout=left)
        if batch is None:
            continue
        if not taken:
            end = elapsed() + _LOOK
        taken.append((batch, clock()))
        count += len(batch.messages)
        size += sum(len(received.message.body or b"") for received in batch.messages)
        if count >= room or size >= _BYTES:
            return taken, True
    return taken, False


def told(batch: Batch, address: str, at: int) -> list[dict[str, Any]]:
    """Deliveries as the API tells of them."""
    return [msgspec.to_builtins(delivery(received, address, at)) for received in batch.messages]


def with_pauses(lines: Iterator[str]) -> Iterator[str]:
    """The lines, and an empty one whenever none comes for `QUIET_MS`: then what came before may have to be written."""
    came: queue.Queue[str | Exception | None] = queue.Queue(AT_ONCE)

    def read() -> None:
        try:
            for line in lines:
                came.put(line)
            came.put(None)
        except Exception as error:  # noqa: BLE001 - it is raised where the lines are asked for
            came.put(error)

    threading.Thread(target=read, name="lines", daemon=True).start()
    while True:
        try:
            line = came.get(timeout=QUIET_MS / 1000)
        except queue.Empty:
            line = ""
        if line is None:
            return
        if isinstance(line, Exception):
            raise line
        yield line
