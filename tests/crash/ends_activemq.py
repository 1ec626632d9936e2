"""Producers and consumers of ActiveMQ, on stomp.py."""

from __future__ import annotations

import itertools
import queue
import threading
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

import stomp
from stomp.exception import StompException

from crash.traffic import BURST, Consumer, Ends, Producer, now_ms

if TYPE_CHECKING:
    import random

_PATIENCE = 5.0


class Lost(Exception):
    """The connection is gone."""


class Client(stomp.ConnectionListener):  # type: ignore[misc]  # stomp.py has no types
    """One connection, and what came on it. Raises StompException or Lost where there is no broker."""

    def __init__(self, url: str) -> None:
        self.frames: queue.SimpleQueue[tuple[Any, int]] = queue.SimpleQueue()
        self.receipts: set[str] = set()
        self.gone = False
        self._connected = threading.Event()
        where = urlsplit(url)
        self.connection = stomp.Connection12(
            [(where.hostname, where.port)], auto_decode=False, auto_content_length=False, reconnect_attempts_max=1, heartbeats=(0, 0)
        )
        self.connection.set_listener("", self)
        self.connection.connect()
        if not self._connected.wait(_PATIENCE):
            self.close()
            raise Lost

    def on_connected(self, _: Any) -> None:
        self._connected.set()

    def on_disconnected(self) -> None:
        self.gone = True

    def on_receipt(self, frame: Any) -> None:
        self.receipts.add(frame.headers["receipt-id"])

    def on_message(self, frame: Any) -> None:
        self.frames.put((frame, now_ms()))

    def take(self, timeout: float) -> tuple[Any, int] | None:
        """The next message and when it came, if one comes in time. Raises Lost."""
        try:
            return self.frames.get(timeout=timeout)
        except queue.Empty:
            self.check()
            return None

    def check(self) -> None:
        """Raises Lost where the connection is gone."""
        if self.gone:
            raise Lost

    def close(self) -> None:
        self.connection.remove_listener("")
        self.connection.disconnect()


class ActiveProducer(Producer):
    """Sends to a queue, each burst in a transaction, and waits for the receipt of its COMMIT."""

    GONE: ClassVar = (StompException, Lost, OSError)

    def __init__(self, url: str, destination: str, rng: random.Random, rate: int) -> None:
        super().__init__(rng, rate)
        self._url, self._destination = url, destination
        self._names = (f"burst-{number}" for number in itertools.count())

    def work(self) -> None:
        client = Client(self._url)
        while not self.stopping.wait(BURST):
            name = next(self._names)
            numbers = self._send(client.connection, name)
            while name not in client.receipts:
                client.check()
                self.stopping.wait(0.002)
            self.confirmed.update(numbers)
        client.close()

    def _send(self, connection: Any, name: str) -> list[int]:
        connection.begin(name)
        numbers = []
        for _ in range(self.burst):
            number, headers = self.ask()
            connection.send(self._destination, str(number), headers=headers, transaction=name, persistent="true")
            numbers.append(number)
        connection.commit(name, receipt=name)
        return numbers


class ActiveConsumer(Consumer):
    """Consumes a queue. A message that ActiveMQ gives it twice has the same message id."""

    GONE: ClassVar = (StompException, Lost, OSError)

    def __init__(self, url: str, destination: str) -> None:
        super().__init__(destination)
        self._url, self._destination = url, destination
        self._seen: set[str] = set()

    def work(self) -> None:
        client = Client(self._url)
        client.connection.subscribe(self._destination, "1", "client-individual", headers={"activemq.prefetchSize": "1000"})
        while (taken := client.take(0.1)) or not self.stopping.is_set():
            if taken is not None:
                frame, at = taken
                identity = frame.headers["message-id"]
                self.note(frame.body, frame.headers, at, again=identity in self._seen)
                self._seen.add(identity)
                client.connection.ack(frame.headers["ack"])
        client.close()


class ActiveEnds(Ends):
    def options(self) -> dict[str, Any]:
        return {"type": "activemq", "url": self.broker.url}

    def route(self, kind: str) -> tuple[dict[str, Any], str]:
        return {"queue": self._queue(kind, "in")}, self._address(kind, "out")

    def _queue(self, kind: str, end: str) -> str:
        return f"{self.prefix}.{kind}.{end}"

    def _address(self, kind: str, end: str) -> str:
        return f"/queue/{self._queue(kind, end)}"

    def producer(self, kind: str, rng: random.Random, rate: int) -> ActiveProducer:
        return ActiveProducer(self.broker.url, self._address(kind, "in"), rng, rate)

    def consumer(self, kind: str) -> ActiveConsumer:
        return ActiveConsumer(self.broker.url, self._address(kind, "out"))

    def waiting(self, kind: str) -> int:
        """What a queue browser sees, which includes what is under way to the bridge."""
        client = Client(self.broker.url)
        client.connection.subscribe(self._address(kind, "in"), "1", "auto", headers={"browser": "true"})
        count = 0
        while (taken := client.take(_PATIENCE)) and "browser" not in taken[0].headers:
            count += 1
        client.close()
        return count
