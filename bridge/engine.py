"""The engine: one store, an intake per route, a lane per destination broker. Built from a configuration, started and drained as a whole."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from ..adapters.moves import LEAD
from ..core.by_target import ByTarget
from ..core.time_index import TimeIndex
from . import plugins, scheduler_requests
from .answers import Answers
from .apart.frames import Setup
from .apart.sink import ApartSink
from .apart.source import ApartSource
from .config.secrets import secrets
from .delivery.backoff import Backoff
from .delivery.holds import Holds
from .delivery.lane import Lane, LaneSettings
from .delivery.pauses import Pauses
from .delivery.worker import LaneWorker
from .downtimes import AliveWorker, at_the_start
from .intake.intake import Intake
from .intake.planner import PlannedRoute, Planner
from .intake.worker import IntakeWorker
from .ledger.numbering import next_row
from .ledger.worker import LedgerWorker
from .level_queues.build import Assembled, assembled
from .level_queues.moving import DepartureSink
from .level_queues.none import NoQueues
from .workers import SyncWorker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..adapters.base import Sink, Source
    from ..adapters.clock import Clock
    from ..core.store import Store
    from . import config as configuration
    from .metrics import Metrics
    from .workers import Failed, Worker

log = structlog.get_logger()

_Client = TypeVar("_Client", ApartSource, ApartSink)


class Engine:
    """Everything between the brokers and the store. `failed` hears of a thread that died: the daemon must end then.

    Raises StoreLocked, StoreError and plugins.UnusableAdapter.
    """

    def __init__(self, config: configuration.Config, clock: Clock, metrics: Metrics, failed: Failed) -> None:
        self.config = config
        self.started = clock()
        self.metrics = metrics
        self.clock = clock
        self.stopping = False
        self.journal = open_journal(config)
        self.down = at_the_start(config.store.path, self.started, self.journal.unfiled.first())
        self.queues: Assembled | NoQueues = NoQueues()
        self.store: Store = self.journal
        self._apart: list[ApartSource | ApartSink] = []
        if config.store.kind == "level_queues":
            _tell_of_what_stays_behind(self.journal)
            self.queues = assembled(config, self.journal, clock, self.down, metrics, self._wake, failed)
            self.store = self.queues.store
        self.sync = SyncWorker(self.store.sync, failed)
        self.pauses = Pauses(config.store.path / "paused.json", self._resumed)
        self._dead_letters = dead_letters(config)
        self.lanes = {name: self._lane(name, failed) for name in self._destinations()}
        self.intakes = {route.name: self._intake(route, failed) for route in config.routes}
        self.ledger = LedgerWorker(self.journal, config, clock, failed)
        self.alive = AliveWorker(self.down, self.journal.unfiled.first, clock, failed)
        self.answers = Answers(self.store, clock, lambda: self.stopping)
        self.managements = self._managements(failed)

    def _managements(self, failed: Failed) -> list[scheduler_requests.ManagementWorker]:
        """Empty if the store cannot be searched: then there is nothing to browse or to remove from."""
        if not self.store.indexed:
            return []
        return scheduler_requests.workers(
            self.config, self.store, self.answers.cancel, self.clock, self.metrics, failed, lambda: self.stopping
        )

    def _destinations(self) -> list[str]:
        """The brokers that a route names, and those for which messages of earlier routes still wait. In level queues any bridge may find any message."""
        if self.config.store.kind == "level_queues":
            return list(self.config.brokers)
        brokers = list(dict.fromkeys(route.to.broker for route in self.config.routes))
        for name in self.store.lanes():
            if name not in self.config.brokers:
                log.error(
                    "messages_without_broker", broker=name, action=f"they wait until the configuration has a broker named {name} again"
                )
            elif name not in brokers:
                brokers.append(name)
        return brokers

    def _lane(self, name: str, failed: Failed) -> LaneWorker:
        config = self.config
        sink, drain_for = self._sink(name), drain_seconds(config)
        moves = isinstance(sink, DepartureSink)
        lane = Lane(
            name,
            self.store,
            Holds(backoff(config), ByTarget(config.partition_of)),
            self._dead_letters,
            self.pauses.routes,
            self.started,
            self.down,
            replace(lane_settings(config), lead=LEAD if moves else 0),
            self.metrics,
            self.sync.ask,
        )
        return LaneWorker(lane, sink, self.clock, self.metrics, failed, drain_for=drain_for, in_turns=moves)

    def _sink(self, broker: str) -> Sink:
        if broker in self.queues.sinks:
            return self.queues.sinks[broker]
        section = self.config.brokers[broker]
        if section.own_processes:
            return self._in_a_process(ApartSink(self._setup(section), broker))
        return plugins.adapter(section.type).sink(section.options)

    def _intake(self, route: configuration.Route, failed: Failed) -> IntakeWorker:
        source, planner = self._source(route), self._planner(route)
        intake = Intake(
            planner,
            source,
            self.store,
            self.clock,
            self._wake,
            self.metrics,
            self.config.intake.batch,
            exact=plugins.traits(self.config.brokers[route.source.broker].type).exact,
        )
        return IntakeWorker(intake, source.close, self.store.room, self.metrics, failed, self.queues.opened)

    def _source(self, route: configuration.Route) -> Source:
        """What a level store joins with its own consumer stays in this process."""
        section = self.config.brokers[route.source.broker]
        joins = route.source.broker == self.config.store.broker
        source: Source
        if section.own_processes and not joins:
            source = self._in_a_process(ApartSource(self._setup(section, route.source.endpoint), route.name))
        else:
            source = plugins.adapter(section.type).source(section.options, route.source.endpoint)
        return self.queues.source(route.name, source) if joins else self.queues.held(route.name, source)

    def _in_a_process(self, client: _Client) -> _Client:
        self._apart.append(client)
        return client

    def _setup(self, section: configuration.Broker, endpoint: Any = None) -> Setup:
        return Setup(section.type, section.options, endpoint, self.config.logs, secrets(self.config))

    def _planner(self, route: configuration.Route) -> Planner:
        return Planner(planned(route, self.config), self.config.limits.core(), cancels=self.store.cancels)

    def _wake(self, lane: str, due: int) -> None:
        self.lanes[lane].wake(due)

    def _resumed(self) -> None:
        for worker in self.lanes.values():
            worker.lane.holds.resume()
            worker.poke()

    @property
    def workers(self) -> list[Worker]:
        """All threads, in the order in which they are stopped."""
        return [*chain(*self._groups)]

    @property
    def _groups(self) -> list[list[Worker]]:
        """Those that are stopped together, once those before them have ended, or had their time."""
        return [
            [*self.intakes.values(), *self.managements],
            [*self.lanes.values()],
            *self.queues.workers,
            [self.sync, self.ledger],
            [self.alive],  # its last word tells how much of the ledger is in files
        ]

    def start(self) -> None:
        """Start all threads; connecting goes on in them."""
        for worker in reversed(self.workers):
            worker.start()

    def reload(self, config: configuration.Config) -> None:
        """Take over what can change while running (`config.changes.RELOADABLE`)."""
        self.config = config
        self._dead_letters |= dead_letters(config)  # the lanes have this very dict
        for route in config.routes:
            self.intakes[route.name].intake.planner = self._planner(route)
        for worker in self.lanes.values():
            worker.lane.settings = replace(worker.lane.settings, give_up_after=config.retry.give_up_after)
            worker.drain_for = drain_seconds(config)
            worker.lane.holds.backoff = backoff(config)

    def drain(self, timeout: float) -> bool:
        """Stop intake, let what is in flight be answered, write the ledger, close the store; False where a thread did not end in time.

        An intake that does not end, because its broker hangs while it connects, leaves the others three quarters of the time.
        """
        self.stopping = True
        self.queues.shut()
        began = time.monotonic()
        groups = self._groups
        for index, group in enumerate(groups):
            for worker in group:
                worker.stop()
            _joined(group, began + (timeout if index else timeout / 4))
        ended = _joined(chain(*groups), began + timeout)
        if ended:
            for client in self._apart:
                client.end()
            self.store.close()
        return ended


def _joined(workers: Iterable[Worker], deadline: float) -> bool:
    """Wait until they have ended; False where some have not by then."""
    ended = [worker.join(max(0.0, deadline - time.monotonic())) for worker in workers]
    return all(ended)


def planned(route: configuration.Route, config: configuration.Config) -> PlannedRoute:
    """A configured route as the planner sees it."""
    return PlannedRoute(
        name=route.name,
        source_broker=route.source.broker,
        source=route.source.endpoint.address,
        lane=route.to.broker,
        address=route.to.address or "",
        allow_to=route.allow_to,
        dead_letter=route.dead_letter or "",
        probes=plugins.traits(config.brokers[route.to.broker].type).probes,
    )


def lane_settings(config: configuration.Config) -> LaneSettings:
    """The bounds of every lane."""
    return LaneSettings(window=config.lane.window, share=max(1, config.lane.window // 2), give_up_after=config.retry.give_up_after)


def backoff(config: configuration.Config) -> Backoff:
    """For how long a destination that refuses is left alone."""
    return Backoff(config.retry.first / 1000, config.retry.cap / 1000)


def dead_letters(config: configuration.Config) -> dict[str, str]:
    """The dead-letter address of each route, empty for the shelf."""
    return {route.name: route.dead_letter or "" for route in config.routes}


def drain_seconds(config: configuration.Config) -> float:
    """For how long a lane waits for its last answers: the threads that end after the lanes need time as well."""
    return config.shutdown_timeout / 1000 / 2


def open_journal(config: configuration.Config) -> TimeIndex:
    """Open the time index of a configuration; with level queues it holds nothing but ledger rows. Raises StoreLocked and StoreError.

    Both kinds of store use the same one: so the numbering of rows goes on, and `migrate-store` cannot run beside a bridge.
    It also goes on if the index is new and the ledger is not, or if the index is an older copy: else files would be overwritten, and audits find numbers twice.
    """
    return TimeIndex(
        config.store.path,
        bridge=config.bridge,
        memory_ms=config.store.memory,
        min_free_disk=config.store.min_free_disk,
        max_bytes=config.store.max_size,
        next_row=partial(next_row, config),
        partition_of=config.partition_of,
    )


def _tell_of_what_stays_behind(journal: TimeIndex) -> None:
    """A bridge on level queues delivers nothing from a time index."""
    counts, carriers = journal.counts(), journal.carriers()
    if counts.pending or counts.shelved or carriers:
        log.error(
            "messages_left_in_time_index",
            path=str(journal.path),
            pending=counts.pending,
            dead_letters=counts.shelved + carriers,
            action="stop the bridge and move them: delaybridge migrate-store --to level_queues",
        )
