"""ActiveMQ's queues under measurement."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from delaybridge.adapters.activemq import ActiveMQ, adapter
from delaybridge.adapters.base import Sink

from .active_ends import ENDS
from .places import Places

_READ = 1 << 20


class Counter:
    """Takes all messages of a queue and counts them; it looks at no more than that, so that it costs next to nothing."""

    def __init__(self, url: str, queue: str) -> None:
        self.count = 0
        parts, mark = urlsplit(url), secrets.token_hex(16)
        self._mark = f"subscription:{mark}\n".encode()
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 0))
        self._socket.sendall(
            b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0"
            + f"SUBSCRIBE\nid:{mark}\ndestination:{queue}\nack:auto\nactivemq.prefetchSize:2000\n\n\0".encode()
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        rest = b""
        with contextlib.suppress(ConnectionResetError):  # what ActiveMQ does to a client that leaves
            while data := self._socket.recv(_READ):
                seen = rest + data
                self.count += seen.count(self._mark)
                rest = seen[-len(self._mark) + 1 :]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()


class ActiveQueues(Places):
    """Queues; each time that one is to be empty it is a new one, because nobody can delete one over STOMP."""

    name = "ActiveMQ"
    relay = "active_relay.py"
    ends = ENDS
    takes_to_count = True

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.broker = {"type": "activemq", "url": url}
        self._addresses: dict[str, str] = {}
        self._counters: dict[str, Counter] = {}

    def close(self) -> None:
        for counter in self._counters.values():
            counter.close()

    def empty(self, *names: str) -> None:
        for name in names:
            if counter := self._counters.pop(name, None):
                counter.close()
            self._addresses[name] = f"/queue/{name}.{secrets.token_hex(4)}"

    def at(self, name: str) -> str:
        return self._addresses[name]

    def depth(self, name: str) -> int:
        """How many came since this was asked for the first time; they are taken away."""
        if name not in self._counters:
            self._counters[name] = Counter(self.url, self.at(name))
        return self._counters[name].count

    def sink(self) -> Sink:
        return adapter.sink(ActiveMQ(url=SecretStr(self.url)))

    def route(self, source: str, destination: str) -> dict[str, Any]:
        start = {"broker": "bench", "queue": self.at(source).removeprefix("/queue/")}
        return {"name": "bench", "from": start, "to": {"broker": "bench", "address": self.at(destination)}}
