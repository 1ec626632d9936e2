"""The raw relay on ActiveMQ: plain stomp.py, queue to queue, no store. See relay.py.

One connection to consume, with cumulative acknowledgements and a prefetch of 2,000; one to publish, in transactions of up to 500 persistent messages with a
receipt on COMMIT. A transaction is written while the one before it is still being committed; what was committed is acknowledged.

`python active_relay.py URL SOURCE DESTINATION` runs until it is killed.
"""

from __future__ import annotations

import queue
import sys
import threading
from typing import Any
from urllib.parse import urlsplit

import stomp

PREFETCH = 2000
TRANSACTION = 500
UNDER_WAY = 2
OWN = frozenset(("destination", "message-id", "ack", "subscription", "redelivered", "expires", "timestamp"))
"""Headers that ActiveMQ sets itself."""


class Relay(stomp.ConnectionListener):  # type: ignore[misc]  # stomp.py has no annotations
    """Hears both connections; runs until it is killed."""

    def __init__(self, url: str, source: str, destination: str) -> None:
        self._destination = destination
        self._arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._room = threading.Semaphore(UNDER_WAY)
        self._last: dict[str, str] = {}  # a transaction's receipt -> ack id of its last message
        self._outgoing, self._incoming = self._connected(url), self._connected(url)
        self._incoming.subscribe(source, id="1", ack="client", headers={"activemq.prefetchSize": PREFETCH})

    def _connected(self, url: str) -> Any:
        parts = urlsplit(url)
        connection = stomp.Connection12([(parts.hostname, parts.port)], auto_decode=False, auto_content_length=False)
        connection.set_listener("relay", self)
        connection.connect(wait=True)
        return connection

    def on_message(self, frame: Any) -> None:
        self._arrived.put(frame)

    def on_receipt(self, frame: Any) -> None:
        """A transaction was committed."""
        self._incoming.ack(self._last.pop(frame.headers["receipt-id"]))
        self._room.release()

    def on_error(self, frame: Any) -> None:
        sys.exit(f"ActiveMQ: {frame.headers} {frame.body}")

    def run(self) -> None:
        while True:
            frames = [self._arrived.get()]
            self._room.acquire()
            while len(frames) < TRANSACTION and not self._arrived.empty():
                frames.append(self._arrived.get())
            self._pass_on(frames)

    def _pass_on(self, frames: list[Any]) -> None:
        transaction = self._outgoing.begin()
        self._last[transaction] = frames[-1].headers["ack"]
        for frame in frames:
            headers = {name: value for name, value in frame.headers.items() if name not in OWN}
            self._outgoing.send(self._destination, frame.body, headers=headers, transaction=transaction)
        self._outgoing.commit(transaction, receipt=transaction)


if __name__ == "__main__":
    Relay(*sys.argv[1:]).run()
