"""What people and tools ask of the running bridge: look, cancel, reschedule, release, pause. Every method may be called from any thread."""

from __future__ import annotations

import time
from contextlib import contextmanager
from importlib.metadata import version
from itertools import islice
from typing import TYPE_CHECKING

from ..adapters.base import Observable, Producing, Received, Source
from ..core.durations import HOUR_MS
from ..core.recurrence import upcoming
from ..core.store import Answer, Page, Pending, Query, Record, Refuse
from . import plugins
from .config.in_force import InForce
from .delivery.holds import NEVER
from .outlet import Outlet
from .shelf import Shelf
from .text import instant
from .views import (
    AddressStatus,
    Check,
    HeldStatus,
    HourStatus,
    LaneStatus,
    LedgerStatus,
    LevelStatus,
    NotKnownError,
    NotPossibleError,
    RouteStatus,
    Status,
    StoreStatus,
    WouldBeRefusedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..core.downtimes import Downtimes
    from ..core.message import Message
    from ..core.store import DeadLetter, Store
    from .clock import Clock
    from .config import Config, Route
    from .delivery.pauses import Pauses
    from .delivery.worker import LaneWorker
    from .downtimes import DowntimeFile
    from .intake.worker import IntakeWorker
    from .workers import Worker

IN_FLIGHT_PATIENCE = 5.0
"""Seconds that a request waits for a message that is being published, before it answers `in_flight`."""

SEND_TIMEOUT = 10.0
OBSERVE_TIMEOUT = 1.0
PAGE = 1000


class Control:
    """Answers what HTTP asks of the engine: see `views.ControlPort`."""

    def __init__(
        self,
        config: Config,
        store: Store,
        intakes: Mapping[str, IntakeWorker],
        lanes: Mapping[str, LaneWorker],
        pauses: Pauses,
        clock: Clock,
        started: int,
        down: DowntimeFile,
        stopping: Callable[[], bool],
        workers: Callable[[], Sequence[Worker]],
        ledger: Callable[[], LedgerStatus] = LedgerStatus,
        levels: Callable[[], list[LevelStatus]] = list,
        more_checks: Callable[[], list[Check]] = list,
    ) -> None:
        self.config = config
        self._store = store
        self._intakes = intakes
        self._lanes = lanes
        self._pauses = pauses
        self._clock = clock
        self._started = started
        self._down = down
        self._stopping = stopping
        self._workers = workers
        self._ledger = ledger
        self._levels = levels
        self._more_checks = more_checks
        self._shelf = Shelf(store, intakes, lanes, clock)
        self._in_force = InForce()

    @property
    def downtimes(self) -> Downtimes:
        """See `views.ControlPort`."""
        return self._down.known

    def status(self) -> Status:
        """See `views.ControlPort`."""
        counts, now = self._store.counts(), self._clock()
        since = self._in_force.since(self.config)
        return Status(
            bridge=self.config.bridge,
            version=version("delaybridge"),
            ready=all(check.ok for check in self.checks()),
            started=self._started,
            now=now,
            pending=counts.pending,
            held=counts.held,
            shelved=counts.shelved,
            events=counts.events,
            oldest_overdue_ms=self.oldest_overdue_ms(now),
            routes=[self._route_status(route) for route in self.config.routes],
            lanes=[self._lane_status(worker) for worker in self._lanes.values()],
            by_address=[AddressStatus(lane, address, pending) for (lane, address), pending in counts.by_address.items()],
            by_hour=[HourStatus(hour * HOUR_MS, pending) for hour, pending in sorted(counts.by_hour.items())],
            store=StoreStatus(self._store.free_bytes(), self._store.room(), str(self.config.store.path.absolute())),
            ledger=self._ledger(),
            levels=self._levels(),
            config=str(self.config.file.absolute()) if self.config.file else None,
            without_broker=sorted(set(self._store.lanes()) - set(self.config.brokers)),
            needs_restart=list(since.needs_restart),
            needs_reload=list(since.reloadable),
        )

    def oldest_overdue_ms(self, now: int) -> int:
        """How late the record is that has waited longest beyond its due time, 0 where none is late."""
        first = self._store.first_due()
        return 0 if first is None else max(0, now - first)

    def _route_status(self, route: Route) -> RouteStatus:
        worker = self._intakes[route.name]
        return RouteStatus(
            name=route.name,
            paused=route.name in self._pauses.routes,
            connected=worker.connected,
            received=worker.intake.received,
            source=f"{route.source.broker} {worker.intake.planner.route.source}",
            to=f"{route.to.broker} {route.to.address or ''}".rstrip(),
            error=worker.error,
        )

    def _lane_status(self, worker: LaneWorker) -> LaneStatus:
        lane = worker.lane
        held = [
            HeldStatus(address, hold.attempts, hold.error, None if hold.retry_at == NEVER else hold.retry_at)
            for address, hold in list(lane.holds.addresses.items())
        ]
        return LaneStatus(lane.name, worker.connected, lane.in_flight, lane.published, held, worker.error or worker.blocked)

    def alive(self) -> bool:
        """See `views.ControlPort`. A thread that dies ends the daemon, so this is false only for a moment."""
        return self._stopping() or all(worker.alive for worker in self._workers())

    def checks(self) -> Sequence[Check]:
        """See `views.ControlPort`."""
        disk = Check("disk", self._store.room(), f"{self._store.free_bytes()} bytes free")
        sources = [Check(f"source {name}", worker.connected, worker.error) for name, worker in self._intakes.items()]
        lanes = [
            Check(f"destination {name}", worker.connected and not worker.blocked, worker.error or worker.blocked)
            for name, worker in self._lanes.items()
        ]
        levels = [Check(f"level {level.name}", level.connected, level.error) for level in self._levels()]
        return [disk, *sources, *lanes, *levels, *self._more_checks()]

    def messages(self, query: Query, limit: int, cursor: str) -> Page:
        """See `views.ControlPort`."""
        if query.lane and query.lane not in self.config.brokers and query.lane not in self._store.lanes():
            raise NotKnownError(f"there is no broker {query.lane!r}; the brokers are: {', '.join(self.config.brokers)}")
        return self._store.list(query, limit, cursor)

    def find(self, id: str) -> Pending | Answer:  # noqa: A002 - the field's own word
        """See `views.ControlPort`."""
        return self._store.find(id)

    def next_dues(self, record: Record, count: int) -> list[int]:
        """See `views.ControlPort`."""
        return [each.due for each in islice(upcoming(record.schedule), count)]

    def pending(self) -> Iterator[Pending]:
        """See `views.ControlPort`."""
        page = self._store.list(Query(), PAGE)
        yield from page.items
        while page.cursor:
            page = self._store.list(Query(), PAGE, page.cursor)
            yield from page.items

    def cancel(self, id: str) -> Answer:  # noqa: A002 - the field's own word
        """See `views.ControlPort`."""
        return self._patiently(lambda: self._store.cancel(id, self._clock()))

    def reschedule(self, id: str, due_ms: int) -> Answer:  # noqa: A002 - the field's own word
        """See `views.ControlPort`."""
        answer = self._patiently(lambda: self._move(id, due_ms, self._clock()))
        for worker in self._lanes.values():
            worker.poke()
        return answer

    def _move(self, id_: str, due_ms: int, now: int) -> Answer:
        """Reschedule, to now at the earliest.

        What is due at an instant at which the bridge was down counts as missed, which the misfire rule `skip` lets expire.
        """
        due, found = max(due_ms, now), self._store.find(id_) if self._store.indexed else None
        ends = found.record.schedule.ends if isinstance(found, Pending) and found.state != "in_flight" else None
        if ends is not None and due > ends:
            raise NotPossibleError(f"{instant(due)} is after its x-delay-ends ({instant(ends)}): it would expire, not be delivered")
        return self._store.reschedule(id_, due, now)

    def release(self, id: str) -> Answer:  # noqa: A002 - the field's own word
        """See `views.ControlPort`."""
        return self.reschedule(id, self._clock())

    def _patiently(self, ask: Callable[[], Answer]) -> Answer:
        """Ask again while the message is in flight: its confirmation makes the answer definite. Polled: a notification would slow every delivery."""
        deadline = time.monotonic() + IN_FLIGHT_PATIENCE
        while (answer := ask()).outcome == "in_flight" and time.monotonic() < deadline and not self._stopping():
            time.sleep(0.02)
        return answer

    def dead_letters(self, limit: int, after: int) -> Sequence[DeadLetter]:
        """See `views.ControlPort`."""
        return self._store.dead_letters(limit, after)

    def retry_dead_letter(self, number: int) -> bool:
        """See `views.ControlPort`."""
        return self._shelf.retry(number)

    def drop_dead_letter(self, number: int) -> bool:
        """See `views.ControlPort`."""
        return self._shelf.drop(number)

    def pause(self, route: str) -> bool:
        """See `views.ControlPort`."""
        if known := self._known(route):
            self._pauses.pause(route)
        return known

    def resume(self, route: str) -> bool:
        """See `views.ControlPort`."""
        if known := self._known(route):
            self._pauses.resume(route)
        return known

    def _known(self, route: str) -> bool:
        return route in self._pauses.routes or any(known.name == route for known in self.config.routes)

    def send(self, route: str | None, message: Message, address: str, *, force: bool = False) -> None:
        """See `views.ControlPort`."""
        chosen = self._route(route)
        broker = self.config.brokers[chosen.source.broker]
        if not force:
            self._would_be_taken(chosen, broker.type, message, address)
        adapter, endpoint = plugins.adapter(broker.type), chosen.source.endpoint
        sink = adapter.producer(broker.options, endpoint) if isinstance(adapter, Producing) else adapter.sink(broker.options)
        with Outlet(sink, SEND_TIMEOUT, "the broker") as outlet:
            for error in outlet.publish([(address or endpoint.address, message)]).values():
                raise error

    def _would_be_taken(self, route: Route, kind: str, message: Message, address: str) -> None:
        """Raises WouldBeRefusedError where it is known that the bridge would dead-letter it, NotPossibleError where it would never see it."""
        source = route.source.endpoint.address
        if plugins.traits(kind).embedded and address not in ("", source):
            raise NotPossibleError(
                f"the in-process broker intercepts nothing: what is sent to {address!r} never comes to the bridge; name it in x-delay-to instead"
            )
        came_to = address or source if plugins.traits(kind).addressed or address not in ("", source) else ""
        change = self._intakes[route.name].intake.planner.plan(Received(message, came_to, b"send"), self._clock())
        if isinstance(change, Refuse):
            raise WouldBeRefusedError(change.reason, change.detail)

    def _route(self, name: str | None) -> Route:
        if name is None:
            if len(self.config.routes) > 1:
                raise NotPossibleError(f"name a route: {', '.join(route.name for route in self.config.routes)}")
            return self.config.routes[0]
        for route in self.config.routes:
            if route.name == name:
                return route
        raise NotKnownError(f"there is no route {name!r}; the routes are: {', '.join(route.name for route in self.config.routes)}")

    @contextmanager
    def observe(self, broker: str, address: str, *, take: bool) -> Iterator[Iterator[Sequence[Received]]]:
        """See `views.ControlPort`."""
        if broker not in self.config.brokers:
            raise NotKnownError(f"there is no broker {broker!r}; the brokers are: {', '.join(self.config.brokers)}")
        section = self.config.brokers[broker]
        adapter = plugins.adapter(section.type)
        if not isinstance(adapter, Observable):
            raise NotPossibleError(f"a {section.type} broker cannot be observed")
        if not take and not adapter.traits.copies(address):
            raise NotPossibleError(
                f"{address!r} is a queue: its messages would be taken away for good, before their consumers. "
                f"Say take=true if that is meant, or observe {adapter.traits.copied}..., which gives copies"
            )
        tap = adapter.tap(section.options, address)
        tap.connect()
        try:
            yield self._arrivals(tap)
        finally:
            tap.close()

    def _arrivals(self, tap: Source) -> Iterator[Sequence[Received]]:
        while not self._stopping():
            batch = tap.receive(PAGE, OBSERVE_TIMEOUT)
            if batch is None:
                yield ()
            else:
                yield batch.messages
                batch.ack()
