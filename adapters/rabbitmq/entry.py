"""The entry point `rabbitmq`: what the bridge can ask of RabbitMQ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.reasons import Reason
from ..base import Rejected, Traits
from ..probes import NAME
from .address import canonical, parse, queue_address, real_of
from .level_queues import RabbitLevelQueues, queues
from .level_source import LevelSource
from .link import NOT_FOUND
from .options import Endpoint, RabbitMQ
from .sink import RabbitSink
from .source import UNGATED, Ingress, RabbitSource, Tap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..levelled import Level
    from ..preparing import Finding
    from .interception import RabbitInterception
    from .source import Subscription

_ANY = frozenset({b"*", b"#"})
"""Words of a routing key that stand for any others where a queue is bound to a topic exchange."""


class RabbitAdapter:
    """The entry point `rabbitmq`."""

    options = RabbitMQ
    endpoint = Endpoint
    traits = Traits(copied="/exchanges/", probes=(queue_address(NAME),))

    def source(self, options: RabbitMQ, route: Endpoint) -> RabbitSource:
        """See base.Adapter."""
        return self._source(options, Ingress(route.queue, route.declare and not route.gate), route.gate)

    def sink(self, options: RabbitMQ) -> RabbitSink:
        """See base.Adapter."""
        return RabbitSink(lambda: options.parameters("sink"), timeout=options.connection_timeout, impersonates=options.impersonate)

    def check_address(self, address: str) -> None:
        """See base.Addressing."""
        parse(address)

    def canonical(self, address: str) -> str:
        """See base.Spelling."""
        return canonical(address)

    def gated(self, route: Endpoint, address: str) -> bool:
        """See base.Spelling."""
        return parse(address).exchange in {real_of(gate).encode() for gate in route.gate}

    def several(self, address: str) -> bool:
        """See base.Spelling. What kind of exchange it is nobody knows here: only to a topic exchange such a key is a pattern."""
        target = parse(address)
        return bool(target.exchange) and not _ANY.isdisjoint(target.routing_key.split(b"."))

    def tap(self, options: RabbitMQ, address: str) -> RabbitSource:
        """At an exchange: copies of what arrives there with this key. At a queue: its messages themselves, taken away from its consumers.

        Raises Rejected(bad_destination).
        """
        target = parse(address)
        try:
            exchange, key = target.exchange.decode(), target.routing_key.decode()
        except UnicodeDecodeError as error:
            raise Rejected(Reason.BAD_DESTINATION, "RabbitMQ's client for Python takes no names that are not UTF-8") from error
        return self._source(options, Tap(exchange, key) if exchange else Ingress(key, create=False))

    def interception(self, options: RabbitMQ, routes: Sequence[Endpoint]) -> RabbitInterception:
        """See preparing.Intercepting. Raises AdapterError where two routes gate one exchange."""
        from .interception import RabbitInterception  # noqa: PLC0415 - the daemon's hot path needs no HTTP client

        return RabbitInterception(options, routes)

    def standstills(
        self, options: RabbitMQ, routes: Sequence[Endpoint], addresses: Sequence[str], levels: Sequence[Level]
    ) -> list[Finding]:
        """See examining.Examinable: of levels, where there is a `management_url`. What routes read `interception` looks at."""
        del routes
        from .destinations import missing  # noqa: PLC0415 - only `doctor` needs it

        found = missing(options.parameters("doctor"), addresses) if addresses else []
        if not levels or options.management_url is None:
            return found
        from .interception import management  # noqa: PLC0415 - the daemon's hot path needs no HTTP client
        from .level_doctor import findings  # noqa: PLC0415 - as above

        with management(options) as api:
            return [*found, *findings(api.queues(), levels)]

    timed = True

    def level_address(self, options: RabbitMQ, level: Level) -> str:
        """See levelled.Levelled."""
        del options
        return queue_address(level.name)

    def level_source(self, options: RabbitMQ, level: Level) -> LevelSource:
        """See levelled.Levelled."""
        purpose = f"level {level.name}"
        return LevelSource(lambda: options.parameters(purpose), level, prefetch=options.prefetch, timeout=options.connection_timeout)

    def level_contents(self, options: RabbitMQ, level: Level) -> list[RabbitSource]:
        """See levelled.Levelled. First what waits, then what has waited, to which RabbitMQ adds meanwhile."""
        return [self._source(options, Ingress(queue.name, create=False)) for queue in queues(level)]

    def level_queues(self, options: RabbitMQ, levels: Sequence[Level]) -> RabbitLevelQueues:
        """See levelled.Levelled."""
        return RabbitLevelQueues(lambda: options.parameters("level queues"), levels)

    def _source(self, options: RabbitMQ, subscription: Subscription, gated: Sequence[str] = ()) -> RabbitSource:
        purpose = f"source {subscription[0]}"
        return RabbitSource(
            lambda: options.parameters(purpose),
            subscription,
            prefetch=options.prefetch,
            timeout=options.connection_timeout,
            gated=gated,
            stamped=options.stamped,
            hints={NOT_FOUND: UNGATED} if gated else {},
        )


adapter = RabbitAdapter()
