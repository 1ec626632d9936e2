"""The thread that sends to Kafka, as its network client makes it, with a broker that nobody reaches: what it does with answers is for the test to say."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from kafka.protocol.producer import ProduceResponse

from delaybridge.adapters.kafka import Kafka
from delaybridge.adapters.kafka.link import Caught
from delaybridge.adapters.kafka.sinks.sender import Accumulator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka import TopicPartition

    from delaybridge.adapters.base import AdapterError
    from delaybridge.adapters.kafka.sinks.sender import Delivery, Flight, Numbers

ANSWER = ProduceResponse.TopicProduceResponse.PartitionProduceResponse()
"""Of a broker, beside its error."""


class Sending:
    """A sender and its only batch, which was taken out to be sent; `told` are the outcomes, `cluster` is what the client knows."""

    def __init__(self, sender: Any, accumulator: Accumulator, partition: TopicPartition, told: list[AdapterError | None]) -> None:
        accumulator.enqueue(partition, [(b"tag", b"\x01\x01\0", 0)])
        self.batch: Flight = accumulator._batches[partition].popleft()
        self.told = told
        self.cluster = accumulator._cluster
        self._accumulator = accumulator
        self._partition = partition
        self._sender = sender

    def followed_by(self, messages: int) -> None:
        """So many wait behind it."""
        self._accumulator.enqueue(self._partition, [(b"behind", b"\x01\x01\0", 0)] * messages)

    def answered(self, error: Exception) -> None:
        """This is what the broker says."""
        self._sender._dispatch_error(self.batch, error, ANSWER)


@contextlib.contextmanager
def sending(delivery: type[Delivery], numbers: Numbers, partition: TopicPartition, timeout_ms: int) -> Iterator[Sending]:
    """For the length of the `with` block. A batch has so long."""
    told: list[AdapterError | None] = []
    caught = Caught()
    client = caught(**Kafka(bootstrap_servers="127.0.0.1:1").client("test"))
    try:
        accumulator = Accumulator(
            lambda outcomes: told.extend(error for _, error in outcomes),
            client.cluster,
            transaction_manager=numbers,
            delivery_timeout_ms=timeout_ms,
            request_timeout_ms=1,
        )
        sender = delivery(client, client.cluster, accumulator, transaction_manager=numbers)
        yield Sending(sender, accumulator, partition, told)
    finally:
        caught.close()
