"""The entry point `kafka`: what the bridge can ask of Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..base import Traits
from ..probes import NAME
from .level_queues.id_log import KafkaIdLog
from .level_queues.source import Hub, LevelSource
from .level_queues.transactional import KafkaTransactionalLevels
from .options import Endpoint, Kafka, destination
from .sinks.sink import KafkaSink, check_topic, partition_of
from .sources.source import KafkaSource, Subscription, Tap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.message import Message
    from ..levelled import Level, LevelDeclaration
    from ..preparing import Finding, Interception


class KafkaAdapter:
    """The entry point `kafka`."""

    options = Kafka
    endpoint = Endpoint
    traits = Traits(exact=True, addressed=True, own_processes=True, probes=(NAME,))

    def source(self, options: Kafka, route: Endpoint) -> KafkaSource:
        """See base.Adapter."""
        return KafkaSource(options, Subscription(route.topics, route.pattern, route.group, route.instance))

    def sink(self, options: Kafka) -> KafkaSink:
        """See base.Adapter."""
        return KafkaSink(options)

    def producer(self, options: Kafka, route: Endpoint) -> KafkaSink:
        """See base.Producing. Delayed messages go where `delaybridge-instrument` sends them."""
        from .sinks.ingress_sink import ProducerSink  # noqa: PLC0415 - only `delaybridge send` needs it

        return ProducerSink(options, route)

    def check_address(self, address: str) -> None:
        """See base.Addressing."""
        check_topic(address)

    def partition(self, message: Message, total: int) -> int:
        """See base.Partitioned."""
        return partition_of(message, total)

    def undirected(self, options: Kafka, route: Endpoint) -> str | None:
        """See base.Directing. A pattern may match anything."""
        if route.pattern is not None or any(destination(topic, options.delayed_suffix) for topic in route.topics):
            return None
        return f"no topic that it reads is called `<destination>{options.delayed_suffix}`"

    def tap(self, options: Kafka, address: str) -> KafkaSource:
        """Copies of what arrives at the topic `address`, read without a group; nothing is taken away."""
        return KafkaSource(options, Tap(address))

    def interception(self, options: Kafka, routes: Sequence[Endpoint]) -> Interception:
        """See preparing.Intercepting."""
        from .interception import KafkaInterception  # noqa: PLC0415 - the daemon's hot path needs no administration

        return KafkaInterception(options, routes)

    def standstills(self, options: Kafka, routes: Sequence[Endpoint], addresses: Sequence[str], levels: Sequence[Level]) -> list[Finding]:
        """See examining.Examinable."""
        from .level_queues.hanging import findings  # noqa: PLC0415 - as above

        return findings(options, routes, addresses, levels)

    timed = True

    def level_address(self, options: Kafka, level: Level) -> str:
        """See levelled.Levelled."""
        del options
        return level.name

    def level_source(self, options: Kafka, level: Level) -> LevelSource:
        """See levelled.Levelled."""
        return Hub(options, [level]).source(level)

    def level_contents(self, options: Kafka, level: Level) -> list[LevelSource]:
        """See levelled.Levelled. Of a level at which nothing waits, everything may leave."""
        return [self.level_source(options, replace(level, wait=0))]

    def transactional_levels(self, options: Kafka, levels: Sequence[Level], bridge: str = "") -> KafkaTransactionalLevels:
        """See moves.Transactional."""
        return KafkaTransactionalLevels(options, levels, bridge)

    def id_log(self, options: Kafka, level: Level) -> KafkaIdLog:
        """See id_log.IdLogging."""
        return KafkaIdLog(options, level.name)

    def level_queues(self, options: Kafka, levels: Sequence[Level]) -> LevelDeclaration:
        """See levelled.Levelled."""
        from .level_queues.queues import KafkaLevelQueues  # noqa: PLC0415 - as above

        return KafkaLevelQueues(options, levels)


adapter = KafkaAdapter()
