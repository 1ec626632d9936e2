"""The entry point `activemq`: what the bridge can ask of ActiveMQ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base import Traits
from ..probes import NAME
from .address import destination, pattern, queue_address
from .incoming import Rules
from .options import ActiveMQ, Endpoint
from .sink import ActiveSink, Settings
from .source import ActiveSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..levelled import Level, LevelDeclaration
    from ..preparing import Finding, Interception
    from ..scheduler_requests import SchedulerRequests
    from .level_source import LevelSource


class ActiveAdapter:
    """The entry point `activemq`."""

    options = ActiveMQ
    endpoint = Endpoint
    traits = Traits(exact=True, copied="/topic/", probes=(f"/queue/{NAME}", f"/topic/{NAME}"))

    def source(self, options: ActiveMQ, route: Endpoint) -> ActiveSource:
        """See base.Adapter."""
        return self._source(options, route.address, route.gate)

    def sink(self, options: ActiveMQ) -> ActiveSink:
        """See base.Adapter."""
        return self._sink(options)

    def producer(self, options: ActiveMQ, route: Endpoint) -> ActiveSink:
        """See base.Producing. Where a selector may stand in the way, delay headers are written so that it can name them."""
        return self._sink(options, route.address)

    def check_address(self, address: str) -> None:
        """See base.Addressing."""
        destination(address)

    def canonical(self, address: str) -> str:
        """See base.Spelling."""
        return destination(address)

    def gated(self, route: Endpoint, address: str) -> bool:
        """See base.Spelling."""
        return any(pattern(one).fullmatch(address) for one in route.gate)

    def several(self, address: str) -> bool:
        """See base.Spelling. No address has a wildcard."""
        del address
        return False

    def undirected(self, options: ActiveMQ, route: Endpoint) -> str | None:
        """See base.Directing. Only behind a gate is the original destination believed."""
        del options
        return None if route.gate else "it has no `gate`"

    def tap(self, options: ActiveMQ, address: str) -> ActiveSource:
        """At a topic: copies of what arrives there. At a queue: its messages themselves, taken away from its consumers.

        Raises Rejected(bad_destination).
        """
        return self._source(options, destination(address))

    def interception(self, options: ActiveMQ, routes: Sequence[Endpoint]) -> Interception:
        """See preparing.Intercepting."""
        from .interception import ActiveInterception  # noqa: PLC0415 - only plan, apply and doctor need it

        return ActiveInterception(options, routes)

    def management(self, options: ActiveMQ) -> Sequence[SchedulerRequests]:
        """See scheduler_requests.Manageable."""
        from .scheduler import DESTINATIONS, Scheduler  # noqa: PLC0415 - imports the other way round for the types

        if not options.management:
            return []
        return [Scheduler(options.targets, each, options.times, options.max_body_bytes) for each in DESTINATIONS]

    def standstills(
        self, options: ActiveMQ, routes: Sequence[Endpoint], addresses: Sequence[str], levels: Sequence[Level]
    ) -> list[Finding]:
        """See examining.Examinable: on Artemis, whether it drops what bridges hold."""
        from .attempts import limited  # noqa: PLC0415 - only doctor needs it

        del addresses
        return limited(options.targets(), options.times, [*(route.queue for route in routes), *(level.name for level in levels)])

    timed = True

    def level_address(self, options: ActiveMQ, level: Level) -> str:
        """See levelled.Levelled."""
        del options
        return destination(queue_address(level.name))

    def level_source(self, options: ActiveMQ, level: Level) -> LevelSource:
        """See levelled.Levelled. Keeps back what does not leave yet, so that it can give that back to ActiveMQ."""
        from .level_source import LevelSource  # noqa: PLC0415 - only level queues need it

        address = self.level_address(options, level)
        return LevelSource(options.targets, address, level, prefetch=options.prefetch, times=options.times)

    def level_contents(self, options: ActiveMQ, level: Level) -> list[ActiveSource]:
        """See levelled.Levelled."""
        return [self._source(options, self.level_address(options, level))]

    def level_queues(self, options: ActiveMQ, levels: Sequence[Level]) -> LevelDeclaration:
        """See levelled.Levelled."""
        from .level_queues import ActiveLevelQueues  # noqa: PLC0415 - only level queues need it

        return ActiveLevelQueues(options.targets, options.times, levels)

    def _sink(self, options: ActiveMQ, ingress: str | None = None) -> ActiveSink:
        settings = Settings(persistent=options.persistent, largest=options.max_body_bytes, ingress=ingress)
        return ActiveSink(options.targets, times=options.times, settings=settings)

    def _source(self, options: ActiveMQ, name: str, gate: Sequence[str] = ()) -> ActiveSource:
        rules = Rules([pattern(one) for one in gate], carry_empty=options.empty_messages == "carry")
        return ActiveSource(options.targets, name, prefetch=options.prefetch, times=options.times, rules=rules)


adapter = ActiveAdapter()
