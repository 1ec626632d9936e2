"""A user of ActiveMQ for tests about its failures, private brokers, and a way to a broker that can fall silent."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from brokers import activemq as brokers
from brokers.activemq import Client
from brokers.common import Unavailable
from brokers.private import running
from conftest import unavailable

from contract.outcomes import words
from contract.taking import taken
from delaybridge.adapters.activemq import ActiveMQ, Endpoint, adapter
from delaybridge.adapters.base import Outcome, Outgoing
from delaybridge.core.message import NO_PROPERTIES, Properties, message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delaybridge.adapters.activemq.sink import ActiveSink
    from delaybridge.adapters.activemq.source import ActiveSource

STRICT = """
    <destinationPolicy><policyMap><policyEntries>
      <policyEntry queue="full.&gt;" memoryLimit="100kb" producerFlowControl="true"><pendingQueuePolicy><vmQueueCursor/></pendingQueuePolicy></policyEntry>
    </policyEntries></policyMap></destinationPolicy>
    <plugins>
      <statisticsBrokerPlugin/>
      <simpleAuthenticationPlugin anonymousAccessAllowed="true" anonymousGroup="all"><users>
        <authenticationUser username="bridge" password="se:cret" groups="all"/>
      </users></simpleAuthenticationPlugin>
      <authorizationPlugin><map><authorizationMap>
        <authorizationEntries>
          <authorizationEntry queue="open.&gt;" read="all" write="all" admin="all"/>
          <authorizationEntry queue="full.&gt;" read="all" write="all" admin="all"/>
          <authorizationEntry queue="closed.&gt;" read="root" write="root" admin="root"/>
          <authorizationEntry queue="ActiveMQ.&gt;" read="all" write="all" admin="all"/>
          <authorizationEntry topic="&gt;" read="all" write="all" admin="all"/>
        </authorizationEntries>
      </authorizationMap></map></authorizationPlugin>
    </plugins>"""


class Stage:
    """A user of the broker, and sources and sinks that end with the test."""

    def __init__(self, broker: brokers.Broker) -> None:
        self.broker = broker
        self.outcomes: list[Outcome] = []
        self.queue = named("open")
        self._opened: list[ActiveSource | ActiveSink | Client] = []

    def options(self, **options: Any) -> ActiveMQ:
        return ActiveMQ.model_validate({"url": self.broker.url, "connection_timeout": 15} | options)

    def source(self, **options: Any) -> ActiveSource:
        source = adapter.source(self.options(**options), Endpoint(queue=self.queue))
        self._opened.append(source)
        return source

    def sink(self, **options: Any) -> ActiveSink:
        sink = adapter.sink(self.options(**options))
        sink.connect(self.outcomes.extend)
        self._opened.append(sink)
        return sink

    def user(self) -> Client:
        client = Client(self.broker.url)
        self._opened.append(client)
        return client

    def close(self) -> None:
        for opened in self._opened:
            opened.close()

    def words(self, count: int) -> dict[str, str]:
        """The outcome of each tag, when that many have come."""
        return words(self.outcomes, count, 20)


def named(kind: str) -> str:
    return f"{kind}.{secrets.token_hex(6)}"


def out(tag: str, address: str, body: bytes = b"", properties: Properties = NO_PROPERTIES, **headers: Any) -> Outgoing:
    return Outgoing(tag.encode(), address, message(body, headers, properties))


def native(**settings: Any) -> Iterator[brokers.Native]:
    """A private broker with these settings: see brokers.activemq.Native. Without one the test is skipped, or fails where ActiveMQ is required."""
    try:
        with running(brokers.Native(brokers.libraries(), **settings)) as broker:
            yield broker
    except Unavailable as reason:
        unavailable("activemq", reason)


def drained(source: ActiveSource, count: int) -> list[int]:
    """The numbers that lie in the queue: so many, or more."""
    return [int(one.message.body or b"") for one in taken(source, lambda found: len(found) >= count)]
