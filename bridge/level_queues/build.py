"""Puts level queues together as a configuration wants them: the store, and the threads that keep it moving."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import structlog

from ...adapters.base import AdapterError, Holding, NotConnected
from ...adapters.id_log import IdLogging
from ...adapters.levelled import Level, Levelled
from ...adapters.moves import Transactional
from ...core.durations import duration
from ...core.levels import Levels
from .. import plugins
from ..views import Check, LevelStatus
from ..workers import Reasons
from .depths import DepthWorker
from .doors import Doors
from .exits import Exits
from .hops import Hops
from .ids.claims import Claims
from .ids.worker import ReplicaWorker
from .late_rows import LateRows
from .level import LevelWorker
from .moving import Departures, DepartureSink, MovePublisher
from .passage import Passage
from .places import Places
from .publisher import Publisher
from .store import LevelQueues
from .waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...adapters.base import Sink, Source
    from ...adapters.clock import Clock
    from ...adapters.levelled import LevelDeclaration
    from ...adapters.moves import TransactionalLevels
    from ...core.time_index import TimeIndex
    from ..config import Config
    from ..downtimes import DowntimeFile
    from ..metrics import Metrics
    from ..workers import ClientWorker, Failed, Wake, Worker
    from .places import Addressed


log = structlog.get_logger()


class Assembled(NamedTuple):
    """A store and its threads."""

    store: LevelQueues
    levels: list[LevelWorker]
    addresses: Sequence[str]
    """Where these are written to."""

    publisher: Publisher
    mover: MovePublisher | None
    depths: DepthWorker
    replica: ReplicaWorker | None
    sinks: Mapping[str, Sink]
    """For the lanes that deliver in another way than through their adapter's sink."""

    transactional: TransactionalLevels | None

    def source(self, route: str, source: Source) -> Source:
        """A source for a route that reads from the broker of the level queues: where possible, one whose messages enter them exactly once."""
        joined = self.transactional.joined(source, route) if self.transactional else None
        if joined is None:
            return self.held(route, source)
        self.store.doors.join(route, joined)
        return joined

    def held(self, route: str, source: Source) -> Source:
        """The same source. Where it can tell, it is asked whether it still has what it gave."""
        if isinstance(source, Holding):
            self.store.doors.hold(route, source)
        return source

    def shut(self) -> None:
        """The bridge is stopping: messages that still wait to enter wait only moments longer. Any thread."""
        self.store.doors.shut()

    @property
    def opened(self) -> threading.Event | None:
        """Set once routes may take messages; None where they always may. See `ReplicaWorker`."""
        return self.replica.opened if self.replica else None

    @property
    def workers(self) -> list[list[Worker]]:
        """In the order in which they are stopped: the levels hand back through the publishers, and after these the endings are written to the log of ids."""
        return [[*self.levels], [*self._publishers, self.depths], [self.replica] if self.replica else []]

    def status(self) -> list[LevelStatus]:
        """Each level, level 0 first."""
        depths: Sequence[int | None] = self.depths.depths or [None] * len(self.levels)
        refused = self._refused()
        return [
            self._status(worker, depth, self._why_not(worker) or refused.get(address, "") or self._unopened())
            for worker, address, depth in zip(self.levels, self.addresses, depths, strict=True)
        ]

    @staticmethod
    def _status(worker: LevelWorker, depth: int | None, error: str) -> LevelStatus:
        passage = worker.passage
        return LevelStatus(passage.level.name, passage.level.wait, worker.connected, depth, passage.first_leaves, error)

    def _why_not(self, worker: ClientWorker) -> str:
        """Why a worker is not connected.

        Before the queues are declared it has not tried to connect: it waits for the publisher, which declares them.
        """
        return "" if worker.connected else worker.error or self.publisher.error

    def checks(self) -> list[Check]:
        """What readiness depends on besides the levels: that they take messages, and that what is known of ids is known."""
        return [*(self._takes(publisher) for publisher in self._publishers), *self._ids()]

    @property
    def _publishers(self) -> list[Publisher]:
        return [self.publisher, *([self.mover] if self.mover else [])]

    @property
    def refusing(self) -> int:
        """How many queues refuse messages."""
        return len(self._refused())

    def _refused(self) -> dict[str, str]:
        return {address: error for publisher in self._publishers for address, error in publisher.refused.items()}

    @staticmethod
    def _takes(publisher: Publisher) -> Check:
        """Whether a publisher's queues take messages.

        If one refuses, messages for it wait, and so do the routes that they came from, although all connections are up.
        """
        refused = [f"{address}: {error}" for address, error in publisher.refused.items()]
        detail = publisher.error or publisher.blocked or ", ".join(refused)
        return Check(publisher.name, publisher.connected and not detail, detail)

    def _ids(self) -> list[Check]:
        if self.replica is None:
            return []
        ready = self.replica.connected and self.replica.caught_up
        return [Check("level ids", ready, self._why_not(self.replica) or self._read(self.replica))]

    def _unopened(self) -> str:
        reading = self.replica if self.replica and self.replica.connected and not self.replica.opened.is_set() else None
        return f"waits for the log of ids: {self._read(reading)}" if reading else ""

    @staticmethod
    def _read(worker: ReplicaWorker) -> str:
        read, end = worker.replica.known
        return f"{read} of {end} lines are read"


def queues(levels: Levels, prefix: str) -> list[Level]:
    """The level queues of a table, level 0 first."""
    return [Level(f"{prefix}.{duration(wait)}", wait) for wait in levels.waits]


def dead_letters(prefix: str) -> Level:
    """Where dead letters go that have no destination of their own."""
    return Level(f"{prefix}.dead-letters", 0, "dead_letters")


def places(adapter: Levelled, options: object, levels: Levels, prefix: str) -> Places:
    """Where records go in these queues."""
    addresses = [adapter.level_address(options, queue) for queue in queues(levels, prefix)]
    return Places(levels, addresses, adapter.level_address(options, dead_letters(prefix)))


def ids(prefix: str) -> Level:
    """The log of ids, where the broker can keep one."""
    return Level(f"{prefix}.ids", 0, "ids")


def kept(config: Config) -> list[Level]:
    """Where the messages of a configuration wait: its level queues, level 0 first, then the queue of dead letters."""
    prefix = config.store.prefix
    return [*queues(Levels(config.limits.levels), prefix), dead_letters(prefix)]


def levelled(config: Config, broker: str) -> tuple[Levelled, object]:
    """The adapter of a broker that holds level queues, and its options. Raises plugins.UnusableAdapter where it cannot."""
    section = config.brokers[broker]
    adapter = plugins.adapter(section.type)
    if not isinstance(adapter, Levelled):
        raise plugins.UnusableAdapter(f"a {section.type} broker cannot hold level queues: choose another for store.broker")
    return adapter, section.options


def assembled(
    config: Config,
    journal: TimeIndex,
    clock: Clock,
    down: DowntimeFile,
    metrics: Metrics,
    wake: Wake,
    failed: Failed,
) -> Assembled:
    """Nothing is connected or started yet. Raises plugins.UnusableAdapter, and StoreError."""
    known = exact(config)
    for route in config.routes:
        if route.name not in known:  # else what a time index took in here before, a while ago, would go on hiding what looks like it
            journal.forget(route.name)
    name, prefix, levels = str(config.store.broker), config.store.prefix, Levels(config.limits.levels)
    adapter, options = levelled(config, name)
    all_queues = queues(levels, prefix)
    depths = DepthWorker(adapter.level_queues(options, all_queues), failed)
    declaration = Declaration(prepared(config))
    there = places(adapter, options, levels, prefix)

    def anew(place: Addressed) -> Addressed:
        return there.anew(place, clock())

    publisher = Publisher(name, adapter.sink(options), metrics, failed, declaration.make, anew, there.enclosed)
    transactional = adapter.transactional_levels(options, all_queues, config.bridge) if isinstance(adapter, Transactional) else None
    inner, outer = (transactional.mover(), transactional.mover()) if transactional else (None, None)
    mover = MovePublisher(name, inner, metrics, failed, declaration.make, anew, there.enclosed) if inner else None
    id_log = adapter.id_log(options, ids(prefix)) if isinstance(adapter, IdLogging) else None
    if id_log is None:
        log.info(
            "level_queues_without_ids", broker=name, meaning="x-delay-cancel is refused, and an x-delay-id sent again replaces nothing"
        )
    waiting, exits, rows = Waiting(config.partition_of), Exits(publisher, mover), LateRows(journal, clock)
    claims = Claims(id_log, waiting, exits, rows, wake, clock, config.store.memory)
    doors = Doors(publisher, journal, known)
    store = LevelQueues(there, claims, waiting, doors, exits, journal, rows, moving=name if mover else None, pending=depths.pending)
    hops = Hops(there, claims, waiting, exits, journal, config.brokers, wake)
    register, seek = claims.register, publisher.seek_missing
    replica = ReplicaWorker(register.replica, name, metrics, failed, declaration.made, seek) if register else None
    sources = [transactional.source(queue) if transactional else adapter.level_source(options, queue) for queue in all_queues]
    passages = [
        Passage(queue, source, hops, clock, timed=adapter.timed or not queue.wait)
        for queue, source in zip(all_queues, sources, strict=True)
    ]
    opened = replica.opened if replica else declaration.made
    workers = [LevelWorker(passage, name, metrics, failed, opened) for passage in passages]
    sinks = {name: DepartureSink(outer, Departures(waiting, there, clock, lambda: down.known))} if outer else {}
    return Assembled(store, workers, there.addresses, publisher, mover, depths, replica, sinks, transactional)


def exact(config: Config) -> set[str]:
    """The routes whose source gives each message a unique token: then its id can be derived from that."""
    return {route.name for route in config.routes if plugins.traits(config.brokers[route.source.broker].type).exact}


class Declaration:
    """Declares the queues before anything is published, and before anybody looks for them. `made` is set once that was tried.

    It is tried at each attempt to connect: why it cannot be done is told as `Reasons` says.
    """

    def __init__(self, level_queues: LevelDeclaration) -> None:
        self.made = threading.Event()
        self._level_queues = level_queues
        self._lock = threading.Lock()
        self._reasons = Reasons()

    def make(self) -> None:
        """Declare them, one thread at a time: two would make one queue twice. Raises NotConnected.

        If the user may not declare them they may be there all the same; if not, messages are refused later.
        """
        with self._lock:
            try:
                self._level_queues.apply()
                self._reasons.over()
            except NotConnected:
                raise
            except AdapterError as error:
                self._tell(str(error))
        self.made.set()

    def _tell(self, error: str) -> None:
        if self._reasons.untold(error, time.monotonic()):
            log.warning("level_queues_not_declared", error=error, action="they must be there: delaybridge plan tells what is needed")


def prepared(config: Config) -> LevelDeclaration:
    """The level queues as `plan` and `apply` see them. Raises plugins.UnusableAdapter."""
    adapter, options = levelled(config, str(config.store.broker))
    logs = [ids(config.store.prefix)] if isinstance(adapter, IdLogging) else []
    return adapter.level_queues(options, [*kept(config), *logs])
