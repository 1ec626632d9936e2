"""The in-process broker: the embedded default, the double in tests, and the shortest correct adapter to read before writing one.

Queues live in this process and die with it. An address is a queue's name.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from ..core.reasons import Reason
from .base import BackOff, Batch, Confirm, NotConnected, Outcome, Outgoing, Received, Traits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.message import Message
    from .id_log import Line
    from .levelled import Level
    from .preparing import Step


class Memory(BaseModel):
    """Options: brokers of one name are one broker. `capacity` bounds each queue, in messages."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = "default"
    create_queues: bool = True
    capacity: int | None = Field(default=None, ge=1)


class Endpoint(BaseModel):
    """Where a route reads: `queue`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    queue: str = Field(min_length=1)

    @property
    def address(self) -> str:
        """The queue, as an address."""
        return self.queue


class _Entry(NamedTuple):
    token: bytes
    message: Message
    redelivered: bool = False


class MemoryBroker:
    """Named queues. Safe to use from any thread."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[_Entry]] = {}
        self._taps: dict[str, list[deque[_Entry]]] = {}
        self._logs: dict[str, list[Line]] = {}
        self._changed = threading.Condition()
        self._identity = os.urandom(8)
        self._numbers = itertools.count()

    def queue(self, name: str) -> deque[_Entry]:
        """The queue of that name, created where it is missing."""
        with self._changed:
            return self._queues.setdefault(name, deque())

    def tap(self, name: str) -> deque[_Entry]:
        """A queue that gets a copy of all that arrives at `name` from now on."""
        copies: deque[_Entry] = deque()
        with self._changed:
            self._taps.setdefault(name, []).append(copies)
        return copies

    def untap(self, name: str, copies: deque[_Entry]) -> None:
        """Forget a tap."""
        with self._changed:
            self._taps[name] = [tap for tap in self._taps.get(name, []) if tap is not copies]

    def put(self, name: str, message: Message, options: Memory) -> None:
        """Append to a queue. Raises BackOff where the queue is missing or full."""
        with self._changed:
            if name not in self._queues and not options.create_queues:
                raise BackOff(Reason.UNROUTABLE, f"there is no queue {name!r}")
            queue = self._queues.setdefault(name, deque())
            if options.capacity is not None and len(queue) >= options.capacity:
                raise BackOff(Reason.REFUSED_BY_BROKER, f"queue {name!r} holds its {options.capacity} messages")
            entry = _Entry(self._identity + next(self._numbers).to_bytes(8, "big"), message)
            for target in (queue, *self._taps.get(name, ())):
                target.append(entry)
            self._changed.notify_all()

    def take(self, queue: deque[_Entry], limit: int, timeout: float) -> list[_Entry]:
        """At most `limit` entries, waiting up to `timeout` seconds for the first."""
        with self._changed:
            self._changed.wait_for(lambda: queue, timeout)
            return [queue.popleft() for _ in range(min(limit, len(queue)))]

    def append(self, log: str, lines: Sequence[Line]) -> list[int]:
        """The places of these lines in a log."""
        with self._changed:
            kept = self._logs.setdefault(log, [])
            kept += lines
            self._changed.notify_all()
            return list(range(len(kept) - len(lines), len(kept)))

    def lines(self, log: str, place: int, timeout: float = 0) -> list[Line]:
        """What stands in a log from a place on, waiting up to `timeout` seconds for a first line."""
        with self._changed:
            kept = self._logs.setdefault(log, [])
            self._changed.wait_for(lambda: len(kept) > place, timeout)
            return kept[place:]

    def give_back(self, queue: deque[_Entry], entries: Sequence[_Entry]) -> None:
        """Put entries back to the head, in order, marked as redelivered."""
        with self._changed:
            queue.extendleft(entry._replace(redelivered=True) for entry in reversed(entries))
            self._changed.notify_all()


_brokers: dict[str, MemoryBroker] = {}
_registry = threading.Lock()


def broker(name: str = "default") -> MemoryBroker:
    """The broker of that name in this process."""
    with _registry:
        return _brokers.setdefault(name, MemoryBroker())


class MemorySource:
    """Takes from one queue, or from a tap on it."""

    def __init__(self, broker: MemoryBroker, queue: str, *, tap: bool = False) -> None:
        self._broker = broker
        self._name = queue
        self._tap = tap
        self._queue: deque[_Entry] | None = None
        self._unacknowledged: dict[int, dict[int, _Entry]] = {}
        self._batches = itertools.count()

    def connect(self) -> None:
        """Subscribe. What was taken and not acknowledged before comes again."""
        self.close()
        self._queue = self._broker.tap(self._name) if self._tap else self._broker.queue(self._name)

    def receive(self, limit: int, timeout: float) -> Batch | None:
        """See base.Source."""
        if self._queue is None:
            raise NotConnected(f"not subscribed to {self._name!r}")
        entries = self._broker.take(self._queue, limit, timeout)
        if not entries:
            return None
        number = next(self._batches)
        left = self._unacknowledged[number] = dict(enumerate(entries))
        received = [Received(entry.message, "", entry.token, entry.redelivered) for entry in entries]
        return Batch(received, lambda: self._forget(number), lambda places: _forget_some(left, places))

    def _forget(self, number: int) -> None:
        self._unacknowledged.pop(number, None)

    def close(self) -> None:
        """Unsubscribe; the queue gets back what was not acknowledged. Idempotent."""
        if self._queue is None:
            return
        self._broker.give_back(self._queue, [entry for batch in self._unacknowledged.values() for entry in batch.values()])
        self._unacknowledged.clear()
        if self._tap:
            self._broker.untap(self._name, self._queue)
        self._queue = None


def _forget_some(left: dict[int, _Entry], places: Sequence[int]) -> None:
    for place in places:
        del left[place]


class MemorySink:
    """Appends to queues. Confirms before `publish` returns, on the same thread."""

    def __init__(self, broker: MemoryBroker, options: Memory) -> None:
        self._broker = broker
        self._options = options
        self._confirm: Confirm | None = None

    def connect(self, confirm: Confirm) -> None:
        """See base.Sink."""
        self._confirm = confirm

    def publish(self, messages: Sequence[Outgoing]) -> None:
        """See base.Sink."""
        if self._confirm is None:
            raise NotConnected("the sink is closed")
        self._confirm([self._outcome(outgoing) for outgoing in messages])

    def _outcome(self, outgoing: Outgoing) -> Outcome:
        try:
            self._broker.put(outgoing.address, outgoing.message, self._options)
        except BackOff as refused:
            return outgoing.tag, refused
        return outgoing.tag, None

    def close(self) -> None:
        """Disconnect. Idempotent."""
        self._confirm = None


class MemoryLevels:
    """Queues are made by the first who asks for them: there is nothing to declare."""

    counts_taken = False
    held_after_a_kill = 0.0

    def __init__(self, broker: MemoryBroker, levels: Sequence[Level]) -> None:
        self._broker = broker
        self._levels = levels

    def plan(self) -> list[Step]:
        """See levelled.LevelDeclaration."""
        return []

    apply = undo = plan

    def depths(self) -> list[int]:
        """See levelled.LevelDeclaration."""
        return [len(self._broker.queue(level.name)) for level in self._levels]


class MemoryIdLog:
    """Keeps every line. See id_log.IdLog."""

    def __init__(self, broker: MemoryBroker, name: str) -> None:
        self._broker = broker
        self._name = name
        self._place = 0

    def connect(self, place: int) -> int:
        """See id_log.IdLog."""
        self._place = place if place <= self.end() else 0
        return self._place

    def read(self, timeout: float) -> tuple[int, list[tuple[int, Line]]]:
        """See id_log.IdLog."""
        lines = list(enumerate(self._broker.lines(self._name, self._place, timeout), self._place))
        self._place += len(lines)
        return self._place, lines

    def end(self) -> int:
        """See id_log.IdLog."""
        return len(self._broker.lines(self._name, 0))

    def append(self, lines: Sequence[Line]) -> list[int]:
        """See id_log.IdLog."""
        return self._broker.append(self._name, lines)

    def close(self) -> None:
        """See id_log.IdLog."""


class MemoryAdapter:
    """The entry point `memory`."""

    options = Memory
    endpoint = Endpoint
    traits = Traits(exact=True, embedded=True)

    def source(self, options: Memory, route: Endpoint) -> MemorySource:
        """See base.Adapter."""
        return MemorySource(broker(options.name), route.queue)

    def sink(self, options: Memory) -> MemorySink:
        """See base.Adapter."""
        return MemorySink(broker(options.name), options)

    def tap(self, options: Memory, address: str) -> MemorySource:
        """Copies of what arrives at the queue `address`; nothing is taken away."""
        return MemorySource(broker(options.name), address, tap=True)

    timed = False

    def level_address(self, options: Memory, level: Level) -> str:
        """See levelled.Levelled."""
        del options
        return level.name

    def level_source(self, options: Memory, level: Level) -> MemorySource:
        """See levelled.Levelled."""
        return MemorySource(broker(options.name), level.name)

    def level_contents(self, options: Memory, level: Level) -> list[MemorySource]:
        """See levelled.Levelled."""
        return [self.level_source(options, level)]

    def level_queues(self, options: Memory, levels: Sequence[Level]) -> MemoryLevels:
        """See levelled.Levelled."""
        return MemoryLevels(broker(options.name), levels)

    def id_log(self, options: Memory, level: Level) -> MemoryIdLog:
        """See id_log.IdLogging."""
        return MemoryIdLog(broker(options.name), level.name)


adapter = MemoryAdapter()
