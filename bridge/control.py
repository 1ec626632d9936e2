"""What people and tools ask of the running bridge: look, cancel, reschedule, release, pause. Every method may be called from any thread."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from ..adapters.base import Observable, Producing, Received, Source
from ..core.recurrence import upcoming
from ..core.store import EndsBefore, Query, Refuse
from . import plugins
from .outlet import Outlet
from .overview import Overview
from .shelf import Shelf
from .text import instant
from .views import NotKnownError, NotPossibleError, WouldBeRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..core.downtimes import Downtimes
    from ..core.message import Message
    from ..core.store import Answer, DeadLetter, Page, Pending, Record
    from .config import Config, Route
    from .engine import Engine
    from .views import Check, Status

SEND_TIMEOUT = 10.0
OBSERVE_TIMEOUT = 1.0
PAGE = 1000


class Control:
    """Answers what HTTP asks of the engine: see `views.ControlPort`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._store = engine.store
        self._answers = engine.answers
        self._intakes = engine.intakes
        self._lanes = engine.lanes
        self._pauses = engine.pauses
        self._clock = engine.clock
        self._shelf = Shelf(engine.store, engine.intakes, engine.lanes, engine.clock)
        self._overview = Overview(engine)

    @property
    def _config(self) -> Config:
        """A reload replaces it."""
        return self._engine.config

    @property
    def downtimes(self) -> Downtimes:
        """See `views.ControlPort`."""
        return self._engine.down.known

    def status(self) -> Status:
        """See `views.ControlPort`."""
        return self._overview.status()

    def oldest_overdue_ms(self, now: int) -> int:
        """See `Overview`."""
        return self._overview.oldest_overdue_ms(now)

    def alive(self) -> bool:
        """See `views.ControlPort`."""
        return self._overview.alive()

    def checks(self) -> Sequence[Check]:
        """See `views.ControlPort`."""
        return self._overview.checks()

    def messages(self, query: Query, limit: int, cursor: str) -> Page:
        """See `views.ControlPort`."""
        if query.lane and query.lane not in self._config.brokers and query.lane not in self._store.lanes():
            raise NotKnownError(f"there is no broker {query.lane!r}; the brokers are: {', '.join(self._config.brokers)}")
        return self._store.list(query, limit, cursor)

    def find(self, id: str) -> Pending | Answer:  # noqa: A002 - the field's own word
        """See `views.ControlPort`."""
        return self._store.find(id)

    def next_dues(self, record: Record, count: int) -> list[int]:
        """See `views.ControlPort`."""
        return [each.due for each in islice(upcoming(record.schedule), count)]

    def waits_for(self, record: Record) -> str:
        """See `views.ControlPort`."""
        return self._overview.waits_for(record)

    def pending(self) -> Iterator[Pending]:
        """See `views.ControlPort`."""
        page = self._store.list(Query(), PAGE)
        yield from page.items
        while page.cursor:
            page = self._store.list(Query(), PAGE, page.cursor)
            yield from page.items

    def cancel(self, id: str) -> Answer:  # noqa: A002 - the field's own word
        """See `views.ControlPort`."""
        return self._answers.cancel(id)

    def reschedule(self, id: str, due_ms: int) -> Answer:  # noqa: A002 - the field's own word
        """See `views.ControlPort`."""
        try:
            answer = self._answers.definite(lambda: self._store.reschedule(id, due_ms, self._clock()))
        except EndsBefore as error:
            late, ends = instant(error.due), instant(error.ends)
            raise NotPossibleError(f"{late} is after its x-delay-ends ({ends}): it would expire, not be delivered") from error
        for worker in self._lanes.values():
            worker.poke()
        return answer

    def release(self, id: str) -> Answer:  # noqa: A002 - the field's own word
        """See `views.ControlPort`."""
        return self.reschedule(id, self._clock())

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
        return route in self._pauses.routes or any(known.name == route for known in self._config.routes)

    def send(self, route: str | None, message: Message, address: str, *, force: bool = False) -> None:
        """See `views.ControlPort`."""
        chosen = self._route(route)
        broker = self._config.brokers[chosen.source.broker]
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
        came_to = address or source if address not in ("", source) or self._names_destinations(route) else ""
        change = self._intakes[route.name].intake.planner.plan(Received(message, came_to, b"send"), self._clock())
        if isinstance(change, Refuse):
            raise WouldBeRefusedError(change.reason, change.detail)

    def _names_destinations(self, route: Route) -> bool:
        """Whether where a route reads says where what comes in there goes: the topic `orders.delayed` does, and `reminders` does not."""
        broker = self._config.brokers[route.source.broker]
        return plugins.traits(broker.type).addressed and plugins.undirected(broker.type, broker.options, route.source.endpoint) is None

    def _route(self, name: str | None) -> Route:
        if name is None:
            if len(self._config.routes) > 1:
                raise NotPossibleError(f"name a route: {', '.join(route.name for route in self._config.routes)}")
            return self._config.routes[0]
        for route in self._config.routes:
            if route.name == name:
                return route
        raise NotKnownError(f"there is no route {name!r}; the routes are: {', '.join(route.name for route in self._config.routes)}")

    @contextmanager
    def observe(self, broker: str, address: str, *, take: bool) -> Iterator[Iterator[Sequence[Received]]]:
        """See `views.ControlPort`."""
        if broker not in self._config.brokers:
            raise NotKnownError(f"there is no broker {broker!r}; the brokers are: {', '.join(self._config.brokers)}")
        section = self._config.brokers[broker]
        adapter = plugins.adapter(section.type)
        if not isinstance(adapter, Observable):
            raise NotPossibleError(f"a {section.type} broker cannot be observed")
        plugins.check_address(section.type, address)  # before it is called a queue
        if not take and not adapter.traits.copies(address):
            raise NotPossibleError(
                f"{address!r} is a queue: its messages would be taken away for good, before their consumers. "
                f"POST to /api/v1/observe if that is meant, or observe {adapter.traits.copied}..., which gives copies"
            )
        tap = adapter.tap(section.options, address)
        tap.connect()
        try:
            yield self._arrivals(tap)
        finally:
            tap.close()

    def _arrivals(self, tap: Source) -> Iterator[Sequence[Received]]:
        while not self._engine.stopping:
            batch = tap.receive(PAGE, OBSERVE_TIMEOUT)
            if batch is None:
                yield ()
            else:
                yield batch.messages
                batch.ack()
