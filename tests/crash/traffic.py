"""A producer and a consumer that never rest, and the comparison of what one sent with what the other got."""

from __future__ import annotations

import bisect
import os
import secrets
import threading
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pika
import pika.exceptions
from brokers.rabbitmq import wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

BURST = 0.25
"""Seconds between bursts of the producer; delayed messages fall due in bursts as well."""


def seed() -> int:
    """The seed of this run, printed; DELAYBRIDGE_TEST_SEED repeats one."""
    chosen = int(os.environ.get("DELAYBRIDGE_TEST_SEED", secrets.randbits(32)))
    print(f"DELAYBRIDGE_TEST_SEED={chosen}")
    return chosen


class Sent(NamedTuple):
    """What one message asks for: its headers, how many deliveries, and when the first may come at the earliest (epoch ms)."""

    headers: dict[str, Any]
    copies: int
    earliest: int


class Arrival(NamedTuple):
    """One delivery: the message's number, and what the bridge wrote on it. `at` is epoch ms."""

    number: int
    id: str
    occurrence: int
    due: int
    at: int
    redelivered: bool


def request(rng: random.Random, now: int) -> Sent:
    """A message of some kind: immediate, delayed, due with many others at one instant, or repeated."""
    kind = rng.random()
    if kind < 0.2:
        return Sent({}, 1, now)
    if kind < 0.6:
        delay = rng.randrange(200, 2000)
        return Sent({"x-delay": delay}, 1, now + delay)
    if kind < 0.9:
        due = (now // 500 + rng.randrange(2, 5)) * 500
        return Sent({"x-delay-until": due}, 1, due)
    return Sent({"x-delay-period": 300, "x-delay-repeat": 2, "x-delay-misfire": "all"}, 3, now + 300)


class Producer(threading.Thread):
    """Publishes bursts of persistent messages with confirms, and connects again where the broker went away. Bodies are numbers."""

    def __init__(self, url: str, queue: str, rng: random.Random, rate: int) -> None:
        super().__init__(name="producer", daemon=True)
        self.sent: dict[int, Sent] = {}
        self.confirmed: set[int] = set()
        self._url, self._queue, self._rng = url, queue, rng
        self._burst = round(rate * BURST)
        self._stopping = threading.Event()
        self._flying: dict[int, int] = {}
        self._next_tag = 1

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Publish no more, wait for what is not confirmed yet."""
        self._stopping.set()
        self.join(30)
        assert not self.is_alive()

    def run(self) -> None:
        """Publish until told to stop."""
        while not self._stopping.is_set():
            connection = pika.SelectConnection(
                pika.URLParameters(self._url),
                on_open_callback=self._connected,
                on_open_error_callback=lambda connection, _: connection.ioloop.stop(),
                on_close_callback=lambda connection, _: connection.ioloop.stop(),
            )
            connection.ioloop.start()
            connection.ioloop.close()
            self._stopping.wait(0.2)

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
        if not self._stopping.is_set():
            for _ in range(self._burst):
                self._publish(channel)
        elif not self._flying:
            channel.connection.close()
            return
        channel.connection.ioloop.call_later(BURST, lambda: self._tick(channel))

    def _publish(self, channel: Any) -> None:
        number = len(self.sent)
        asked = self.sent[number] = request(self._rng, time.time_ns() // 1_000_000)
        self._flying[self._next_tag] = number
        self._next_tag += 1
        channel.basic_publish("", self._queue, str(number).encode(), pika.BasicProperties(headers=asked.headers, delivery_mode=2))


class Consumer(threading.Thread):
    """Notes what arrives in a queue, then acknowledges it, and connects again where the broker went away."""

    def __init__(self, url: str, queue: str) -> None:
        super().__init__(name=f"consumer {queue}", daemon=True)
        self.arrivals: list[Arrival] = []
        self._url, self._queue = url, queue
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Stop once nothing more comes."""
        self._stopping.set()
        self.join(30)
        assert not self.is_alive()

    def run(self) -> None:
        """Consume until told to stop."""
        while not self._stopping.is_set():
            try:
                self._consume()
            except (pika.exceptions.AMQPError, OSError):
                self._stopping.wait(0.2)

    def _consume(self) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(self._url))
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1000)
        unacknowledged = latest = 0
        for method, properties, body in channel.consume(self._queue, inactivity_timeout=0.1):
            if method is not None:
                self._note(method, properties, body)
                unacknowledged, latest = unacknowledged + 1, method.delivery_tag
            if unacknowledged and (method is None or unacknowledged == 100):
                channel.basic_ack(latest, multiple=True)  # not 0: that acknowledges what pika has read ahead as well
                unacknowledged = 0
            if method is None and self._stopping.is_set():
                break
        connection.close()

    def _note(self, method: Any, properties: Any, body: Any) -> None:
        headers = properties.headers
        at = -(-time.time_ns() // 1_000_000)
        self.arrivals.append(
            Arrival(int(body), headers["x-delay-id"], headers["x-delay-occurrence"], headers["x-delay-due"], at, method.redelivered)
        )


def wait_for_more(consumers: Iterable[Consumer], enough: Sequence[int]) -> None:
    """Wait until each of the consumers has got so many."""
    pairs = list(zip(consumers, enough, strict=True))
    wait_until(lambda: all(len(consumer.arrivals) > least for consumer, least in pairs), "traffic", 30)


def lost(producer: Producer, arrivals: Sequence[Arrival]) -> list[tuple[int, int]]:
    """Confirmed messages, by number and occurrence, that never arrived."""
    seen = {(arrival.number, arrival.occurrence) for arrival in arrivals}
    return [
        (number, occurrence)
        for number in sorted(producer.confirmed)
        for occurrence in range(1, producer.sent[number].copies + 1)
        if (number, occurrence) not in seen
    ]


def early(producer: Producer, arrivals: Sequence[Arrival]) -> list[Arrival]:
    """Deliveries before they were due, or whose due time is before the one that was asked for."""
    return [each for each in arrivals if each.at < each.due or each.due < producer.sent[each.number].earliest]


def renamed(arrivals: Sequence[Arrival]) -> dict[int, set[str]]:
    """Messages that arrived under more than one id: duplicates that a consumer could not recognise."""
    ids: defaultdict[int, set[str]] = defaultdict(set)
    for arrival in arrivals:
        ids[arrival.number].add(arrival.id)
    return {number: names for number, names in ids.items() if len(names) > 1}


def duplicates(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """Second and later deliveries of one id and occurrence, as they arrived."""
    seen: set[tuple[str, int]] = set()
    found = []
    for arrival in sorted(arrivals, key=lambda each: each.at):
        key = (arrival.id, arrival.occurrence)
        if key in seen:
            found.append(arrival)
        seen.add(key)
    return found


def after_each(kills: Sequence[int], times: Sequence[int]) -> Counter[int]:
    """How many of these instants lie between each kill (by index) and the next."""
    return Counter(bisect.bisect_right(kills, at) - 1 for at in times)


def busy_at(moments: Sequence[int], times: Sequence[int], within: int) -> int:
    """At how many moments something happened within so many milliseconds before."""
    ordered = sorted(times)
    return sum(bisect.bisect_right(ordered, moment) > bisect.bisect_left(ordered, moment - within) for moment in moments)


def ledger_problems(rows: Sequence[dict[str, Any]], arrivals: Sequence[Arrival]) -> list[str]:
    """What is wrong with a ledger that should name exactly what arrived, each once, and add up."""
    scheduled, closed = (
        Counter((row["id"], row["occurrence"]) for row in rows if (row["event"] == "scheduled") is wanted) for wanted in (True, False)
    )
    delivered = {(row["id"], row["occurrence"]) for row in rows if row["event"] == "delivered"}
    arrived = {(arrival.id, arrival.occurrence) for arrival in arrivals}
    sequences = [row["sequence"] for row in rows]
    checks = {
        "a row stands twice": len(set(sequences)) == len(rows),
        "a row is missing": not rows or max(sequences) - min(sequences) + 1 == len(rows),
        "an occurrence is scheduled or closed twice": max((*scheduled.values(), *closed.values(), 1)) == 1,
        "scheduled and closed differ": scheduled == closed,
        f"delivered and arrived differ: {len(delivered - arrived)} only delivered, {len(arrived - delivered)} only arrived": delivered
        == arrived,
    }
    return [problem for problem, fine in checks.items() if not fine]
