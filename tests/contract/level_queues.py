"""The store on level queues, on the in-process broker and without threads: whoever asks moves everything on to the time of the question."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING
from unittest.mock import patch

from contract.stores import partition_of
from delaybridge.adapters.base import Outgoing
from delaybridge.adapters.memory import Memory, adapter
from delaybridge.bridge.level_queues.build import dead_letters, queues
from delaybridge.bridge.level_queues.doors import Doors
from delaybridge.bridge.level_queues.exits import Exits
from delaybridge.bridge.level_queues.hops import Hops
from delaybridge.bridge.level_queues.ids.claims import Claims
from delaybridge.bridge.level_queues.late_rows import LateRows
from delaybridge.bridge.level_queues.passage import Passage
from delaybridge.bridge.level_queues.places import Places
from delaybridge.bridge.level_queues.store import LevelQueues
from delaybridge.bridge.level_queues.waiting import Waiting
from delaybridge.core.durations import DEFAULT_LEVELS, parse_levels
from delaybridge.core.levels import Levels
from delaybridge.core.store import MEMORY_MS, StoreFull
from delaybridge.core.time_index import TimeIndex

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from delaybridge.adapters.base import Outcome
    from delaybridge.adapters.id_log import IdLog
    from delaybridge.bridge.level_queues.publisher import Item
    from delaybridge.core.store import Change, Due, Settled, SourceProgress
    from delaybridge.core.targets import Target

TABLE = Levels(parse_levels(DEFAULT_LEVELS))


def declared() -> threading.Event:
    """What tells a worker that its queues are there."""
    event = threading.Event()
    event.set()
    return event


class Immediate:
    """Publishes on the caller's thread."""

    def __init__(self, options: Memory) -> None:
        self._sink = adapter.sink(options)
        self._landed: list[Item] = []
        self._sink.connect(self._confirmed)

    def _confirmed(self, outcomes: Sequence[Outcome]) -> None:
        for tag, error in outcomes:
            assert error is None, error
            self._landed[int(tag)].landed()

    def seek_missing(self) -> None:
        """None ever is."""

    def submit(self, items: Sequence[Item]) -> None:
        self._landed = list(items)
        self._sink.publish([Outgoing(b"%d" % number, *item.messages[0]) for number, item in enumerate(items)])


class Stepped(LevelQueues):
    """Level queues of a memory broker that bears the path's name, or another one, so that they survive a restart of the store."""

    journal: TimeIndex

    def __init__(self, path: Path, lanes: tuple[str, ...] = ("rabbit", "kafka"), log: IdLog | None = None, name: str = "") -> None:
        self.name = name or str(path)
        options, all_queues = Memory(name=self.name), queues(TABLE, "levels")
        journal = TimeIndex(path, bridge="test", min_free_disk=0, reserve_bytes=0)
        self.now = 0
        self.woken: list[tuple[str, int]] = []
        places = Places(TABLE, [queue.name for queue in all_queues], dead_letters("levels").name)
        waiting, self.publisher = Waiting(partition_of), Immediate(options)
        exits, rows = Exits(self.publisher), LateRows(journal, self.clock)
        claims = Claims(log, waiting, exits, rows, self.wake, self.clock, MEMORY_MS)
        super().__init__(places, claims, waiting, Doors(self.publisher, journal, ("exact",)), exits, journal, rows)
        self.hops = Hops(places, claims, waiting, exits, journal, lanes, self.wake)
        self.passages = [Passage(queue, adapter.level_source(options, queue), self.hops, self.clock, timed=False) for queue in all_queues]
        for passage in self.passages:
            passage.connect()

    def clock(self) -> int:
        return self.now

    def wake(self, lane: str, due: int) -> None:
        self.woken.append((lane, due))

    def move_on(self, now: int) -> None:
        """Time passes until `now`; at each instant at which something leaves its level, all that can move moves."""
        while True:
            for passage in self.passages * 3:  # taken, passed on, taken at the next level
                passage.step(0.0)
            leaving = [first for passage in self.passages if (first := passage.first_leaves) is not None and first <= now]
            if not leaving:
                break
            self.now = max(self.now, min(leaving))
        self.now = now

    def lose_connections(self) -> None:
        """To all levels."""
        for passage in self.passages:
            passage.close()
            passage.connect()

    @contextlib.contextmanager
    def full_disk(self) -> Iterator[None]:
        """Meanwhile the ledger can be told nothing."""
        with patch.object(self.journal, "tell", side_effect=StoreFull("no space left")):
            yield

    def put(self, changes: Sequence[Change], now: int, came: SourceProgress | None = None) -> list:  # type: ignore[type-arg]
        self.now = now
        return super().put(changes, now, came)

    def due(self, lane: str, now: int, limit: int, max_bytes: int) -> list[Due]:
        self.move_on(now)
        return super().due(lane, now, limit, max_bytes)

    def due_held(self, lane: str, target: Target, now: int, limit: int, max_bytes: int) -> list[Due]:
        self.move_on(now)
        return super().due_held(lane, target, now, limit, max_bytes)

    def next_due(self, lane: str) -> int | None:
        self.move_on(self.now)
        return super().next_due(lane)

    def settle(self, outcomes: Sequence[Settled], now: int, *, wait: bool = True) -> bool:
        settled = super().settle(outcomes, now, wait=wait)
        self.move_on(now)
        return settled

    def close(self) -> None:
        for passage in self.passages:
            passage.hand_back(1.0)
            passage.close()
        super().close()

    def die(self) -> None:
        """As a killed process does."""
        for passage in self.passages:
            passage._source.close()
        super().close()
