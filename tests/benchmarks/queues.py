"""RabbitMQ's queues under measurement."""

from __future__ import annotations

from typing import Any

import pika
from pydantic import SecretStr

from delaybridge.adapters.base import Sink
from delaybridge.adapters.rabbitmq import RabbitMQ, adapter

from .daemon import route
from .places import Places
from .rabbit_ends import ENDS


class Queues(Places):
    """Durable classic queues, over one connection that nobody has to attend to."""

    name = "RabbitMQ"
    relay = "relay.py"
    ends = ENDS

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.broker = {"type": "rabbitmq", "url": url}
        parameters = pika.URLParameters(url)
        parameters.heartbeat = 0
        self._connection = pika.BlockingConnection(parameters)
        self._channel = self._connection.channel()

    def close(self) -> None:
        self._connection.close()

    def empty(self, *names: str) -> None:
        for name in names:
            self._channel.queue_delete(name)
            self._channel.queue_declare(name, durable=True)

    def depth(self, name: str) -> int:
        count: int = self._channel.queue_declare(name, passive=True).method.message_count
        return count

    def sink(self) -> Sink:
        return adapter.sink(RabbitMQ(url=SecretStr(self.url)))

    def route(self, source: str, destination: str) -> dict[str, Any]:
        return route("bench", "bench", "bench", source, destination)
