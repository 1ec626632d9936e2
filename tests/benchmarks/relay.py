"""The raw relay: plain pika, queue to queue, no store. What any bridge on this client is measured against.

One SelectConnection, prefetch 2,000, persistent messages passed on as they came, publisher confirms without waiting, and an acknowledgement for
all that is confirmed without a gap, at most one for 64 messages. It keeps the bridge's promise not to lose, in the fewest calls that pika offers.

`python -m benchmarks.relay URL [COUNT]` in tests/ fills a queue, relays it, and prints the rate as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pika

PREFETCH = 2000
ACK_EVERY = 64
ACK_AFTER = 0.002  # seconds, where fewer are confirmed


class Relay:
    """Runs until it is killed."""

    def __init__(self, url: str, source: str, destination: str) -> None:
        self._source = source
        self._destination = destination
        self._published = 0
        self._tags: dict[int, int] = {}  # number of an unconfirmed publication -> tag of its delivery
        self._early: set[int] = set()  # confirmed, but not all before them
        self._complete = 0  # all up to this number are confirmed
        self._acked = 0
        self._timer = False
        self._connection = pika.SelectConnection(pika.URLParameters(url), on_open_callback=self._opened)
        self._connection.ioloop.start()

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._ready)

    def _ready(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._confirmed)
        channel.basic_qos(prefetch_count=PREFETCH)
        channel.basic_consume(self._source, self._received)

    def _received(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        channel.basic_publish("", self._destination, body, properties, mandatory=True)
        self._published += 1
        self._tags[self._published] = method.delivery_tag

    def _confirmed(self, frame: Any) -> None:
        number = frame.method.delivery_tag
        if frame.method.multiple:
            self._complete = max(self._complete, number)
        else:
            self._early.add(number)
        while self._complete + 1 in self._early:
            self._complete += 1
            self._early.remove(self._complete)
        if self._complete - self._acked >= ACK_EVERY:
            self._ack()
        elif not self._timer:
            self._timer = True
            self._connection.ioloop.call_later(ACK_AFTER, self._ack_rest)

    def _ack_rest(self) -> None:
        self._timer = False
        self._ack()

    def _ack(self) -> None:
        if self._complete == self._acked:
            return
        tag = self._tags[self._complete]
        for number in range(self._acked + 1, self._complete + 1):
            del self._tags[number]
        self._early = {number for number in self._early if number > self._complete}
        self._acked = self._complete
        self._channel.basic_ack(tag, multiple=True)


def measure(url: str, count: int) -> dict[str, Any]:
    """Relay `count` messages; the rate in messages per second."""
    from benchmarks.messages import messages  # noqa: PLC0415  the relay's own process has no such path
    from benchmarks.queues import Queues  # noqa: PLC0415

    source, destination = "bench.raw.in", "bench.raw.out"
    with Queues(url) as queues:
        queues.empty(source, destination)
        queues.load(source, messages(count, None))
        with queues.relaying(source, destination):
            rate = queues.speed(lambda: queues.depth(destination), count)
        queues.empty(source, destination)
    return {"benchmark": "raw relay", "client": f"pika {pika.__version__}", "messages": count, "messages_per_second": round(rate)}


if __name__ == "__main__":
    if len(sys.argv) == 4:
        Relay(*sys.argv[1:])
    else:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 50_000)))
