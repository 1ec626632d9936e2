"""Producers and consumers that never rest. What they are on each broker stands in `ends_*.py`."""

from __future__ import annotations

import abc
import contextlib
import os
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from brokers.common import wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping, Sequence

BURST = 0.25
"""Seconds between bursts of the producer; delayed messages fall due in bursts as well."""


def seed() -> int:
    """The seed of this run, printed; DELAYBRIDGE_TEST_SEED repeats one."""
    chosen = int(os.environ.get("DELAYBRIDGE_TEST_SEED", secrets.randbits(32)))
    print(f"DELAYBRIDGE_TEST_SEED={chosen}")
    return chosen


def any_moment(rng: random.Random, least: float, most: float) -> None:
    """Let from `least` to `most` seconds pass: what is killed next is at any point of its work then, and not in step with what was waited for.

    Nothing rests on how long it is.
    """
    time.sleep(rng.uniform(least, most))


class Sent(NamedTuple):
    """What one message asks for: its headers, how many deliveries, and when the first may come at the earliest (epoch ms)."""

    headers: dict[str, Any]
    copies: int
    earliest: int


class Arrival(NamedTuple):
    """One delivery: the message's number, and what the bridge wrote on it. `at` is epoch ms.

    `again` says that the broker gave this consumer the same message before: no doing of the bridge.
    """

    number: int
    id: str
    occurrence: int
    due: int
    at: int
    again: bool


def now_ms() -> int:
    """This machine's clock in epoch milliseconds, rounded up, so that nothing looks earlier than it was."""
    return -(-time.time_ns() // 1_000_000)


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


class Worker(threading.Thread, abc.ABC):
    """An ordinary client at work from `with` on, which connects again where the broker went away."""

    GONE: ClassVar[tuple[type[Exception], ...]] = (OSError,)
    """What the client library raises where the broker is away."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.stopping = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Let it end its work: what is not confirmed yet is waited for, and what still comes is taken."""
        self.stopping.set()
        self.join(30)
        assert not self.is_alive()

    def run(self) -> None:
        """Work until told to stop."""
        while not self.stopping.is_set():
            with contextlib.suppress(*self.GONE):
                self.work()
            self.stopping.wait(0.2)

    @abc.abstractmethod
    def work(self) -> None:
        """Connect and work, until told to stop or the broker goes away."""


class Producer(Worker):
    """Publishes bursts of durable messages and waits for the broker's word. Bodies are numbers; none is ever sent twice."""

    def __init__(self, rng: random.Random, rate: int) -> None:
        super().__init__("producer")
        self.sent: dict[int, Sent] = {}
        self.confirmed: set[int] = set()
        self.burst = round(rate * BURST)
        self._rng = rng

    def ask(self) -> tuple[int, dict[str, Any]]:
        """The next message: its number, which is its body, and its headers."""
        number = len(self.sent)
        self.sent[number] = request(self._rng, time.time_ns() // 1_000_000)
        return number, self.sent[number].headers


class Consumer(Worker):
    """Notes what arrives, then acknowledges it."""

    def __init__(self, where: str) -> None:
        super().__init__(f"consumer {where}")
        self.arrivals: list[Arrival] = []

    def note(self, body: bytes, headers: Mapping[str, Any], at: int, *, again: bool) -> None:
        """One delivery."""
        name = headers["x-delay-id"]
        id_ = name.decode() if isinstance(name, bytes) else name
        self.arrivals.append(Arrival(int(body), id_, int(headers["x-delay-occurrence"]), int(headers["x-delay-due"]), at, again))


class Ends(abc.ABC):
    """What stands at both ends of the bridge on one broker: queues or topics that nobody else uses, and plain clients of them.

    A `kind` names one pair of them, and the route between.
    """

    def __init__(self, broker: Any) -> None:
        self.broker = broker
        self.prefix = f"crash-{secrets.token_hex(4)}"

    @abc.abstractmethod
    def options(self) -> dict[str, Any]:
        """The broker's section in the bridge's configuration."""

    @abc.abstractmethod
    def route(self, kind: str) -> tuple[dict[str, Any], str]:
        """Declare what a route needs; its `from`, less the broker, and its destination's address."""

    @abc.abstractmethod
    def producer(self, kind: str, rng: random.Random, rate: int) -> Producer:
        """Publishes where the route reads."""

    @abc.abstractmethod
    def consumer(self, kind: str) -> Consumer:
        """Consumes where the route delivers."""

    @abc.abstractmethod
    def waiting(self, kind: str) -> int:
        """How many messages the bridge has not taken yet. Connects anew where the broker went away."""

    def kept(self, kind: str) -> int:
        """How many messages the bridge has not taken, or has not acknowledged yet: these it gets again after a kill."""
        return self.waiting(kind)

    def close(self) -> None:  # noqa: B027 - not every broker needs it
        """Delete what is ours, where the broker keeps it."""

    def config(self, *kinds: str, **sections: Any) -> dict[str, Any]:
        """A configuration with one route for each kind."""
        routes = []
        for kind in kinds:
            source, address = self.route(kind)
            routes.append({"name": kind, "from": {"broker": "it"} | source, "to": {"broker": "it", "address": address}})
        return {"brokers": {"it": self.options()}, "routes": routes, "limits": {"min_period": 100}} | sections


def wait_for_more(consumers: Iterable[Consumer], enough: Sequence[int], patience: float = 30) -> None:
    """Wait until each of the consumers has got so many."""
    pairs = list(zip(consumers, enough, strict=True))
    wait_until(lambda: all(len(consumer.arrivals) > least for consumer, least in pairs), "traffic", patience)
