"""On each broker a destination that takes nothing until it is told to, beside those that take everything (`crash.traffic.Ends`)."""

from __future__ import annotations

import abc
import contextlib
from typing import TYPE_CHECKING, Any

from brokers import activemq
from brokers.kafka import create_topic
from brokers.private import running
from crash.ends_activemq import ActiveEnds, Client
from crash.ends_kafka import PARTITIONS, KafkaEnds
from crash.ends_rabbitmq import RabbitEnds
from crash.traffic import Ends

from delaybridge.adapters.activemq.statistics import PLUGIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FULL = "full"
"""The kind whose destination refuses; `Ends.consumer` consumes it."""

IN_THE_WAY = -1
"""The number of the message that fills the destination, where one does; its consumer takes it away."""

HEADERS = {"x-delay-id": "in the way", "x-delay-occurrence": "1", "x-delay-due": "0"}


class Refusing(Ends):
    """Both ends of a route, and one destination more."""

    @abc.abstractmethod
    def shut(self) -> str:
        """See that it takes nothing; its address."""

    def open(self) -> None:
        """Let it take what comes once it has a consumer."""

    def levels(self, names: Iterable[str]) -> str:
        """The prefix of level queues of these names."""
        del names
        return f"{self.prefix}.level"


class RabbitRefusing(RabbitEnds, Refusing):
    """A queue of one message at most."""

    def shut(self) -> str:
        name = self._place.queue(f"{FULL}.out", x_max_length=1, x_overflow="reject-publish")
        self._place.publish("", name, b"%d" % IN_THE_WAY, HEADERS)
        return self._place.address(f"{FULL}.out")

    def levels(self, names: Iterable[str]) -> str:
        """They go with what else is ours: an idle quorum queue has its price."""
        for name in ("0", "dead-letters", *(f"{level}{end}" for level in names for end in ("", ".out"))):
            self._place.expected(f"level.{name}")
        return self._place.name("level")


class KafkaRefusing(KafkaEnds, Refusing):
    """A topic that is not there."""

    def options(self) -> dict[str, Any]:
        return super().options() | {"level_partitions": 1}  # a small world

    def shut(self) -> str:
        return self._topic(FULL, "out")

    def open(self) -> None:
        create_topic(self.broker.url, self._topic(FULL, "out"), PARTITIONS)


POLICY = """
    <destinationPolicy><policyMap><policyEntries>
      <policyEntry queue="*.full.out" memoryLimit="2mb" producerFlowControl="true"><pendingQueuePolicy><vmQueueCursor/></pendingQueuePolicy></policyEntry>
    </policyEntries></policyMap></destinationPolicy>"""


class ActiveRefusing(ActiveEnds, Refusing):
    """A queue over its memory limit: ActiveMQ does not answer. On a `limited` broker, whose limit is above all that is refused, so that it is over it once."""

    def options(self) -> dict[str, Any]:
        return super().options() | {"blocked_timeout": 2}

    def shut(self) -> str:
        client = Client(self.broker.url)
        client.connection.send(self._address(FULL, "out"), f"{IN_THE_WAY:3000000}", headers=HEADERS | {"receipt": "sent"})
        while "sent" not in client.receipts:
            client.take(0.01)
        client.close()
        return self._address(FULL, "out")


@contextlib.contextmanager
def limited() -> Iterator[activemq.Native]:
    """A private ActiveMQ that limits that queue. Raises brokers.common.Unavailable."""
    with running(activemq.Native(activemq.libraries(), xml=POLICY + PLUGIN)) as broker:
        yield broker
