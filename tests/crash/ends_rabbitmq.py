"""Producers and consumers of RabbitMQ, on pika. A kind is a type of queue: `classic`, `quorum`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, ClassVar

import pika
import pika.exceptions
from brokers.rabbitmq import kept
from integration.rabbit import Rabbit

from crash.traffic import BURST, Consumer, Ends, Producer, now_ms

if TYPE_CHECKING:
    import random


class RabbitProducer(Producer):
    """Publishes to a queue, with confirms."""

    def __init__(self, url: str, queue: str, rng: random.Random, rate: int) -> None:
        super().__init__(rng, rate)
        self._url, self._queue = url, queue
        self._flying: dict[int, int] = {}
        self._next_tag = 1

    def work(self) -> None:
        connection = pika.SelectConnection(
            pika.URLParameters(self._url),
            on_open_callback=self._connected,
            on_open_error_callback=lambda connection, _: connection.ioloop.stop(),
            on_close_callback=lambda connection, _: connection.ioloop.stop(),
        )
        connection.ioloop.start()
        connection.ioloop.close()

    def _connected(self, connection: Any) -> None:
        connection.channel(on_open_callback=lambda channel: channel.confirm_delivery(self._answered, lambda _: self._begin(channel)))

    def _begin(self, channel: Any) -> None:
        self._flying.clear()
        self._next_tag = 1
        self._tick(channel)

    def _answered(self, frame: Any) -> None:
        method = frame.method
        tags = [tag for tag in self._flying if tag <= method.delivery_tag] if method.multiple else [method.delivery_tag]
        numbers = [self._flying.pop(tag) for tag in tags]
        if isinstance(method, pika.spec.Basic.Ack):
            self.confirmed.update(numbers)

    def _tick(self, channel: Any) -> None:
        if not channel.is_open:
            return
        if not self.stopping.is_set():
            for _ in range(self.burst):
                self._publish(channel)
        elif not self._flying:
            channel.connection.close()
            return
        channel.connection.ioloop.call_later(BURST, lambda: self._tick(channel))

    def _publish(self, channel: Any) -> None:
        number, headers = self.ask()
        self._flying[self._next_tag] = number
        self._next_tag += 1
        channel.basic_publish("", self._queue, str(number).encode(), pika.BasicProperties(headers=headers, delivery_mode=2))


class RabbitConsumer(Consumer):
    """Consumes a queue."""

    GONE: ClassVar = (pika.exceptions.AMQPError, OSError)

    def __init__(self, url: str, queue: str) -> None:
        super().__init__(queue)
        self._url, self._queue = url, queue

    def work(self) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(self._url))
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1000)
        unacknowledged = latest = 0
        for method, properties, body in channel.consume(self._queue, inactivity_timeout=0.1):
            if method is not None:
                assert properties is not None
                assert body is not None
                assert properties.headers is not None
                self.note(body, properties.headers, now_ms(), again=method.redelivered)
                unacknowledged, latest = unacknowledged + 1, method.delivery_tag
            if unacknowledged and (method is None or unacknowledged == 100):
                channel.basic_ack(latest, multiple=True)  # not 0: that acknowledges what pika has read ahead as well
                unacknowledged = 0
            if method is None and self.stopping.is_set():
                break
        connection.close()


class RabbitEnds(Ends):
    def __init__(self, broker: Any) -> None:
        super().__init__(broker)
        self._place = Rabbit(broker.url)

    def options(self) -> dict[str, Any]:
        return {"type": "rabbitmq", "url": self.broker.url}

    def route(self, kind: str) -> tuple[dict[str, Any], str]:
        self._place.queue(f"{kind}.out", x_queue_type=kind)
        return {"queue": self._place.queue(f"{kind}.in", x_queue_type=kind)}, self._place.address(f"{kind}.out")

    def producer(self, kind: str, rng: random.Random, rate: int) -> RabbitProducer:
        return RabbitProducer(self.broker.url, self._place.name(f"{kind}.in"), rng, rate)

    def consumer(self, kind: str) -> RabbitConsumer:
        return RabbitConsumer(self.broker.url, self._place.name(f"{kind}.out"))

    def waiting(self, kind: str) -> int:
        try:
            return self._place.waiting(f"{kind}.in")
        except pika.exceptions.AMQPError:
            self._place.reconnect()
            return self._place.waiting(f"{kind}.in")

    def kept(self, kind: str) -> int:
        return self.waiting(kind) or kept(self.broker, self._place.name(f"{kind}.in"))

    def close(self) -> None:
        with contextlib.suppress(pika.exceptions.AMQPError):
            self._place.close()
