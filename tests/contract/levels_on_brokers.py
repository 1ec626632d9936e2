"""The store on level queues of a real broker: as `delaybridge run` assembles it, with its threads, and with the broker's own waiting.

The tests' times are mapped to this machine's clock, a millisecond of theirs to PACE of its: so what is due later does wait at a level. A question is
answered when what the answer depends on has happened: all that is due has come; where nothing is to come, what was put in behind everything has come.
"""

from __future__ import annotations

import contextlib
import secrets
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from brokers.common import wait_until
from brokers.level_queues import remove
from msgspec.structs import replace

from contract.stores import T0
from delaybridge.adapters.base import AdapterError, NotConnected, Outgoing
from delaybridge.adapters.clock import wall_clock
from delaybridge.bridge.config import Config
from delaybridge.bridge.downtimes import DowntimeFile
from delaybridge.bridge.level_queues.build import assembled, levelled, prepared, queues
from delaybridge.bridge.level_queues.envelope import Envelope, pack
from delaybridge.bridge.level_queues.level import LevelWorker
from delaybridge.bridge.level_queues.publisher import Item
from delaybridge.bridge.metrics import Metrics
from delaybridge.bridge.workers import ClientWorker
from delaybridge.core.downtimes import NONE
from delaybridge.core.levels import Levels
from delaybridge.core.message import Message
from delaybridge.core.schedule import Schedule
from delaybridge.core.store import Put, Record, Settled
from delaybridge.core.time_index import TimeIndex

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from delaybridge.core.store import Answer, Change, Counts, DeadLetter, Due, Held, Page, Pending, Query, SourceProgress
    from delaybridge.core.targets import Target

PACE = 50
LEVELS = "50ms 200ms"

OURS, MARKS = "rabbit", "marks"
"""The lane whose destinations are on the broker that holds the level queues, whichever it is; and that of marks, which are put in behind all else."""

KEYS = [b"%d" % number for number in range(12)]
"""Marks of all these keys reach every partition."""

Place = tuple[str, int]
"""Lane and due time."""


class Setting:
    """What the stores of one test share: their queues, the destination `door` on the same broker, when T0 is, and which records are not settled."""

    def __init__(self, broker: dict[str, Any], door: str, path: Path) -> None:
        memory = {"type": "memory", "name": str(path)}
        prefix = f"contract-{secrets.token_hex(6)}"
        self.config = Config.model_validate({
            "bridge": prefix,
            "store": {"kind": "level_queues", "broker": OURS, "prefix": prefix, "path": path, "min_free_disk": 0},
            "brokers": {OURS: broker, "kafka": memory, MARKS: memory},
            "routes": [{"name": "orders", "from": {"broker": "kafka", "queue": "in"}, "to": {"broker": OURS}, "allow_to": ["*"]}],
            "limits": {"levels": LEVELS},
        })  # fmt: skip
        self._broker = broker
        self.door = door
        self.open: Counter[Place] = Counter()
        self._began = wall_clock()
        prepared(self.config).apply()
        adapter, options = levelled(self.config, OURS)
        levels = queues(Levels(self.config.limits.levels), prefix)
        self.queues = adapter.level_queues(options, levels)
        self.addresses = [adapter.level_address(options, level) for level in levels]

    def real(self, at: int) -> int:
        """A test's time by this machine's clock."""
        return self._began + (at - T0) * PACE

    def told(self, at: int) -> int:
        """The same the other way."""
        return T0 + (at - self._began) // PACE

    def into(self, record: Record) -> Record:
        schedule, again = record.schedule, record.schedule.recurrence
        if again is not None:
            again = replace(again, start=self.real(again.start), period=again.period * PACE)
        return replace(record, schedule=replace(schedule, due=self.real(schedule.due), recurrence=again))

    def out(self, record: Record) -> Record:
        schedule, again = record.schedule, record.schedule.recurrence
        if again is not None:
            again = replace(again, start=self.told(again.start), period=again.period // PACE)
        return replace(record, schedule=replace(schedule, due=self.told(schedule.due), recurrence=again))

    def clear(self) -> None:
        """Take the queues away."""
        remove(self._broker, self.config.store.prefix, LEVELS)


class OnBroker:
    """`core.store.Store`; see the module."""

    def __init__(self, setting: Setting) -> None:
        config = setting.config
        self._setting = setting
        self._failures: list[str] = []
        self._came: Counter[Place] = Counter()
        self._expected = +setting.open
        self._handed: dict[bytes, Record] = {}
        self._delivered: dict[bytes, object] = {}
        journal = TimeIndex(config.store.path, bridge=config.bridge, min_free_disk=0, reserve_bytes=0)
        self._parts = assembled(
            config, journal, wall_clock, DowntimeFile(config.store.path / "downtimes.json", NONE), Metrics("test"), self._wake, self._failed
        )
        self._store = self._parts.store
        self._start()

    def _start(self) -> None:
        workers = [worker for group in self._parts.workers for worker in group]
        for worker in reversed(workers):
            worker.start()
        served = [worker for worker in workers if isinstance(worker, ClientWorker)]
        wait_until(lambda: all(worker.connected for worker in served), "all levels to be served", 30)
        for sink in self._parts.sinks.values():
            sink.connect(self._delivered.update)

    def lose_connections(self) -> None:
        """Each level loses its connection, and has another one when this returns."""
        levels = [worker for group in self._parts.workers for worker in group if isinstance(worker, LevelWorker)]
        lost: set[str] = set()
        for worker in levels:
            worker.passage._source.receive = partial(self._lost, worker, worker.passage._source.receive, lost)  # type: ignore[method-assign]
        wait_until(lambda: len(lost) == len(levels) and all(worker.connected for worker in levels), "all levels to be served again", 30)

    @staticmethod
    def _lost(worker: LevelWorker, receive: Callable[..., Any], lost: set[str], *how: Any) -> Any:
        if worker.name in lost:
            return receive(*how)
        worker.connected = False
        lost.add(worker.name)
        raise NotConnected("somebody closed it")

    def _wake(self, lane: str, due: int) -> None:
        self._came[lane, due] += 1

    def _failed(self, worker: str, error: BaseException) -> None:
        self._failures.append(f"{worker}: {error!r}")

    # What comes in.

    def put(self, changes: Sequence[Change], now: int, came: SourceProgress | None = None) -> builtins.list[Answer]:
        records = [self._setting.into(each.record) for each in changes if isinstance(each, Put)]
        assert len(records) == len(changes), "nothing else is said of level queues"
        self._added(*records)
        return self._store.put([Put(each) for each in records], self._setting.real(now), came)

    def _added(self, *records: Record) -> None:
        for each in records:
            self._setting.open[_place(each)] += 1
            self._expected[_place(each)] += 1

    def came(self, source: str) -> SourceProgress:
        return self._store.came(source)

    def forget(self, source: str) -> None:
        self._store.forget(source)

    def wants_again(self, source: str, change: Change) -> bool:
        return self._store.wants_again(source, change)

    # What goes out.

    def due(self, lane: str, now: int, limit: int, max_bytes: int) -> builtins.list[Due]:
        until = self._setting.real(now)
        return self._found(until, lambda: self._store.due(lane, until, limit, max_bytes))

    def due_held(self, lane: str, target: Target, now: int, limit: int, max_bytes: int) -> builtins.list[Due]:
        until = self._setting.real(now)
        return self._found(until, lambda: self._store.due_held(lane, target, until, limit, max_bytes))

    def _found(self, until: int, take: Callable[[], builtins.list[Due]]) -> builtins.list[Due]:
        self._all_came(until)
        found = take()
        if not found:
            self._pass_through()
            found = take()
        self._handed |= {each.key: each.record for each in found}
        return [replace(each, record=self._setting.out(each.record)) for each in found]

    def next_due(self, lane: str) -> int | None:
        """It is known once that record is in memory, some moments before it is due."""
        self._all_came(max((due for _, due in +self._expected), default=0))
        self._pass_through()
        due = self._store.next_due(lane)
        return None if due is None else self._setting.told(due)

    def _all_came(self, until: int) -> None:
        """Wait for that time, and for all that is due by then."""
        wanted = {place: count for place, count in self._expected.items() if place[1] <= until}
        self._wait_for(wanted)
        wait_until(lambda: wall_clock() >= until, "that time")

    def _wait_for(self, wanted: Mapping[Place, int]) -> None:
        wait_until(lambda: all(self._came[place] >= count for place, count in wanted.items()), f"all of {wanted} to come", 30)

    def _pass_through(self) -> None:
        """Put marks behind all that is in the levels, and wait until they have come. No ledger and no counter knows of them."""
        now = wall_clock()
        ways = [(queue, now + wait) for queue, wait in zip(self._setting.addresses, (0, *self._setting.config.limits.levels), strict=True)]
        marks = [(queue, Record(message=Message(b"", key=key), schedule=Schedule(due=due), lane=MARKS, address="", kind="refused"))
                 for queue, due in ways for key in KEYS]  # fmt: skip
        wanted = Counter(_place(mark) for _, mark in marks)
        for place in wanted:
            wanted[place] += self._came[place]
        self._parts.publisher.submit([Item([(queue, pack(Envelope(mark, now)))], lambda: None, lambda: True) for queue, mark in marks])
        self._wait_for(wanted)
        found = self._store.due(MARKS, max(due for _, due in ways), len(marks), 1 << 20)
        self._store.settle([Settled(each.key, "expired", now) for each in found], now)

    # What became of it.

    def settle(self, outcomes: Sequence[Settled], now: int, *, wait: bool = True) -> bool:
        mapped = [self._into(outcome) for outcome in outcomes]
        ended = {each.key: record for each in mapped if (record := self._handed.pop(each.key, None)) is not None}
        self._deliver([each for each in mapped if each.event == "delivered" and each.key in ended], ended)
        done = self._store.settle(mapped, self._setting.real(now), wait=wait)
        self._setting.open.subtract(_place(record) for record in ended.values())
        self._added(*(each.next for each in mapped if each.next is not None and each.key in ended))
        return done

    def _into(self, outcome: Settled) -> Settled:
        upcoming = None if outcome.next is None else self._setting.into(outcome.next)
        return replace(outcome, at=self._setting.real(outcome.at), next=upcoming)

    def _deliver(self, outcomes: Sequence[Settled], records: Mapping[bytes, Record]) -> None:
        """As the lane does: where it has a sink of the store's, that takes what it delivers from its level."""
        for lane, sink in self._parts.sinks.items():
            keys = {each.key for each in outcomes if records[each.key].lane == lane}
            sink.publish([Outgoing(key, self._setting.door, records[key].message) for key in keys])
            wait_until(partial(keys.issubset, self._delivered), "deliveries")
            assert not any(self._delivered[key] for key in keys), self._delivered

    def sync(self) -> None:
        self._store.sync()

    def hold(self, failed: Sequence[Held], now: int) -> None:
        self._store.hold(failed, self._setting.real(now))

    def put_back(self, keys: Sequence[bytes]) -> None:
        self._store.put_back(keys)

    def lanes(self) -> builtins.list[str]:
        return self._store.lanes()

    def first_due(self) -> int | None:
        due = self._store.first_due()
        return None if due is None else self._setting.told(due)

    def held(self, lane: str) -> dict[Target, tuple[int, str]]:
        return self._store.held(lane)

    # What needs an index.

    def cancel(self, id: str, now: int) -> Answer:  # noqa: A002 - the contract's own word
        return self._store.cancel(id, self._setting.real(now))

    def reschedule(self, id: str, due: int, now: int) -> Answer:  # noqa: A002 - likewise
        return self._store.reschedule(id, self._setting.real(due), self._setting.real(now))

    def find(self, id: str) -> Pending | Answer:  # noqa: A002 - likewise
        return self._store.find(id)

    def list(self, query: Query, limit: int, cursor: str = "") -> Page:
        return self._store.list(query, limit, cursor)

    def dead_letters(self, limit: int, after: int = 0) -> Sequence[DeadLetter]:
        return self._store.dead_letters(limit, after)

    def retry_dead_letter(self, number: int, now: int, address: str = "") -> bool:
        return self._store.retry_dead_letter(number, self._setting.real(now), address)

    def drop_dead_letter(self, number: int, now: int) -> bool:
        return self._store.drop_dead_letter(number, self._setting.real(now))

    # What there is of it.

    @property
    def cancels(self) -> bool:
        return self._store.cancels

    @property
    def indexed(self) -> bool:
        return self._store.indexed

    def room(self) -> bool:
        return self._store.room()

    def free_bytes(self) -> int:
        return self._store.free_bytes()

    def size_bytes(self) -> int:
        return self._store.size_bytes()

    def counts(self) -> Counts:
        """As the broker counts now, or soon: it is told of an acknowledgement some moments after the store."""
        open_ = (+self._setting.open).total()
        with contextlib.suppress(AssertionError):  # then whoever asked sees what is wrong
            wait_until(lambda: self._counted().pending == open_, "the broker to count them")
        return self._counted()

    def _counted(self) -> Counts:
        with contextlib.suppress(AdapterError):  # an ActiveMQ without its statistics plug-in does not count
            self._parts.depths.depths = self._setting.queues.depths()
        return self._store.counts()

    def close(self) -> None:
        for sink in self._parts.sinks.values():
            sink.close()
        for group in self._parts.workers:
            for worker in group:
                worker.stop()
            for worker in group:
                assert worker.join(20), f"{worker.name} goes on"
        self._store.close()
        assert not self._failures, self._failures


def _place(record: Record) -> Place:
    return record.lane, record.schedule.due
