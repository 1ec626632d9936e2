"""How a running bridge is: what `status` shows, whether it is alive, and whether it is ready. Every method may be called from any thread."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from ..core.durations import HOUR_MS
from ..core.targets import Partition, address_of
from .config.in_force import InForce
from .delivery.holds import NEVER
from .text import instant
from .views import AddressStatus, Check, HeldStatus, HourStatus, LaneStatus, RouteStatus, Status, StoreStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.store import Record
    from .config import Route
    from .delivery.holds import Hold
    from .delivery.worker import LaneWorker
    from .engine import Engine


class Overview:
    """Looks at an engine: see `views.ControlPort`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._in_force = InForce()

    def status(self) -> Status:
        """See `views.ControlPort`."""
        engine, config, store = self._engine, self._engine.config, self._engine.store
        counts, now, since = store.counts(), engine.clock(), self._in_force.since(config)
        return Status(
            bridge=config.bridge,
            version=version("delaybridge"),
            ready=all(check.ok for check in self.checks()),
            started=engine.started,
            now=now,
            pending=counts.pending,
            held=counts.held,
            shelved=counts.shelved,
            events=counts.events,
            oldest_overdue_ms=self.oldest_overdue_ms(now),
            routes=[self._route_status(route) for route in config.routes],
            lanes=[_lane_status(worker) for worker in engine.lanes.values()],
            by_address=[AddressStatus(lane, address, pending) for (lane, address), pending in counts.by_address.items()],
            by_hour=[HourStatus(hour * HOUR_MS, pending) for hour, pending in sorted(counts.by_hour.items())],
            store=StoreStatus(store.free_bytes(), store.room(), str(config.store.path.absolute())),
            ledger=engine.ledger.status(),
            levels=engine.queues.status(),
            config=str(config.file.absolute()) if config.file else None,
            without_broker=sorted(set(store.lanes()) - set(config.brokers)),
            needs_restart=list(since.needs_restart) if since else [],
            needs_reload=list(since.reloadable) if since else [],
            config_usable=since is not None,
        )

    def oldest_overdue_ms(self, now: int) -> int:
        """How late the record is that has waited longest beyond its due time, 0 where none is late."""
        first = self._engine.store.first_due()
        return 0 if first is None else max(0, now - first)

    def _route_status(self, route: Route) -> RouteStatus:
        worker = self._engine.intakes[route.name]
        return RouteStatus(
            name=route.name,
            paused=route.name in self._engine.pauses.routes,
            connected=worker.connected,
            received=worker.intake.received,
            source=f"{route.source.broker} {worker.intake.planner.route.source}",
            to=f"{route.to.broker} {route.to.address or ''}".rstrip(),
            error=worker.error,
        )

    def alive(self) -> bool:
        """See `views.ControlPort`. A thread that dies ends the daemon, so this is false only for a moment."""
        return self._engine.stopping or all(worker.alive for worker in self._engine.workers)

    def checks(self) -> Sequence[Check]:
        """See `views.ControlPort`."""
        store, queues = self._engine.store, self._engine.queues
        disk = Check("disk", store.room(), f"{store.free_bytes()} bytes free")
        sources = [Check(f"source {name}", worker.connected, worker.error) for name, worker in self._engine.intakes.items()]
        lanes = [
            Check(f"destination {name}", worker.connected and not worker.blocked, worker.error or worker.blocked)
            for name, worker in self._engine.lanes.items()
        ]
        levels = [Check(f"level {level.name}", level.connected, level.error) for level in queues.status()]
        return [disk, *sources, *lanes, *levels, *queues.checks()]

    def waits_for(self, record: Record) -> str:
        """See `views.ControlPort`."""
        if record.schedule.due > self._engine.clock():
            return ""
        if record.route in self._engine.pauses.routes:
            return f"route {record.route} is paused"
        worker = self._engine.lanes.get(record.lane)
        if worker is None:
            return f"no broker {record.lane} is configured"
        if not worker.connected or worker.blocked:
            return f"broker {record.lane}: {worker.error or worker.blocked or 'not connected'}"
        hold = next((hold for _, hold in worker.lane.holds.targets.of(record)), None)
        return "" if hold is None else _held_for(hold)


def _held_for(hold: Hold) -> str:
    again = "" if hold.retry_at == NEVER else f", tried again at {instant(hold.retry_at)}"
    return f"its destination is held back{again}: {hold.error}"


def _lane_status(worker: LaneWorker) -> LaneStatus:
    lane = worker.lane
    held = [
        HeldStatus(
            address_of(target),
            hold.attempts,
            hold.error,
            None if hold.retry_at == NEVER else hold.retry_at,
            target.number if isinstance(target, Partition) else None,
        )
        for target, hold in list(lane.holds.targets.items())
    ]
    return LaneStatus(lane.name, worker.connected, lane.in_flight, lane.published, held, worker.error or worker.blocked)
