"""Queues or topics of the broker under measurement: made, filled and watched from outside the bridge."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

from brokers.common import wait_until

from delaybridge.adapters.base import Outcome, Outgoing, Sink
from delaybridge.core.message import Message

from .traffic import Ends

WATCH_EVERY = 0.02
STALLED_AFTER = 60.0
WINDOW = 4000
"""Messages that `load` lets be unconfirmed."""


class Places(ABC):
    """What the measurements need of a broker. `broker` is its section in the bridge's configuration; `relay` the raw relay's file,
    `ends` an ordinary client."""

    name: ClassVar[str]
    relay: ClassVar[str]
    ends: ClassVar[Ends]
    broker: dict[str, Any]
    takes_to_count: ClassVar[bool] = False
    """Whether `depth` takes messages away, because nobody can count otherwise."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Disconnect."""

    @abstractmethod
    def empty(self, *names: str) -> None:
        """Have these, durable, with nothing in them."""

    def at(self, name: str) -> str:
        """Its address, for the bridge's sink and the raw relay."""
        return name

    @abstractmethod
    def depth(self, name: str) -> int:
        """How many messages are in one from which nobody takes any."""

    @abstractmethod
    def sink(self) -> Sink:
        """The bridge's own, which is the fastest way to fill the broker."""

    @abstractmethod
    def route(self, source: str, destination: str) -> dict[str, Any]:
        """A route of the bridge from one to the other; the broker's name in the configuration is `bench`."""

    def config(self, source: str, destination: str) -> dict[str, Any]:
        """A bridge between the two."""
        return {"brokers": {"bench": self.broker}, "routes": [self.route(source, destination)]}

    @contextmanager
    def relaying(self, source: str, destination: str) -> Iterator[None]:
        """The raw relay between the two, in a process of its own, for the length of the `with` block."""
        relay = Path(__file__).with_name(self.relay)
        process = subprocess.Popen([sys.executable, relay, self.url, self.at(source), self.at(destination)])
        try:
            yield
        finally:
            process.kill()
            process.wait()

    def load(self, name: str, messages: Sequence[Message]) -> None:
        """Publish with confirms, as fast as it goes."""
        self.publish(self.at(name), messages)

    def publish(self, address: str, messages: Sequence[Message]) -> None:
        """The same, at an address."""
        window = threading.Semaphore(WINDOW)

        def confirmed(outcomes: Sequence[Outcome]) -> None:
            for _, error in outcomes:
                assert error is None, error
                window.release()

        sink = self.sink()
        sink.connect(confirmed)
        try:
            for start in range(0, len(messages), 500):
                batch = messages[start : start + 500]
                for _ in batch:
                    window.acquire()
                sink.publish([Outgoing(b"", address, message) for message in batch])
            for _ in range(WINDOW):
                window.acquire()
        finally:
            sink.close()

    def speed(self, passed: Callable[[], int], count: int) -> float:
        """Messages per second while `passed` rises from a tenth of `count`, or less, to nineteen twentieths, so that start and end do not tell."""
        low, high = count // 10, count * 19 // 20
        begun: tuple[float, int] | None = None
        last, moved_at = -1, time.monotonic()
        while True:
            number, now = passed(), time.monotonic()
            if begun is None and number >= low:
                begun = (now, number) if number < high else (moved_at, last)  # a busy broker takes its time to count
            if begun is not None and number >= high:
                assert begun[1] >= 0, f"{number} of {count} messages had passed before anybody looked"
                return (number - begun[1]) / (now - begun[0])
            if number != last:
                last, moved_at = number, now
            elif now - moved_at > STALLED_AFTER:
                raise RuntimeError(f"nothing moved for {STALLED_AFTER} s at {number} of {count} messages")
            time.sleep(WATCH_EVERY)

    def wait_for(self, name: str, count: int) -> None:
        """Wait until so many messages are in one."""
        wait_until(lambda: self.depth(name) >= count, f"{count} messages in {name}", STALLED_AFTER)
