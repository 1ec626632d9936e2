"""An ordinary producer and consumer on ActiveMQ: plain stomp.py, with ActiveMQ's own header. The producer says when each message is due."""

from __future__ import annotations

import gc
import queue
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import stomp

from .traffic import Arrival, Ends, Traffic, paced

DUE = "bench-due"


@contextmanager
def connected(url: str, listener: stomp.ConnectionListener) -> Iterator[Any]:
    """A connection that leaves bodies alone, for the length of the `with` block."""
    parts = urlsplit(url)
    connection = stomp.Connection12([(parts.hostname, parts.port)], auto_decode=False)
    connection.set_listener("bench", listener)
    connection.connect(wait=True)
    connection.transport.socket.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
    )  # else some wait 40 ms for the others' acknowledgement
    try:
        yield connection
    finally:
        connection.disconnect()


def delayed(delay: int) -> dict[str, Any]:
    """The headers of a persistent message."""
    return {"AMQ_SCHEDULED_DELAY": delay, DUE: time.time_ns() // 1_000_000 + delay, "persistent": "true"}


def produce(url: str, address: str, traffic: Traffic, stop: Path) -> tuple[int, float]:
    with connected(url, stomp.ConnectionListener()) as connection:
        return paced(traffic, stop, lambda body, delay: connection.send(address, body, headers=delayed(delay)))


class Arrivals(stomp.ConnectionListener):  # type: ignore[misc]  # as above
    """Notes when each message came."""

    def __init__(self) -> None:
        self.seen: queue.SimpleQueue[Arrival] = queue.SimpleQueue()

    def on_message(self, frame: Any) -> None:
        now = time.time_ns() / 1_000_000
        due = int(frame.headers[DUE])
        self.seen.put((due, now - due))


def consume(url: str, address: str, traffic: Traffic) -> list[Arrival]:
    gc.disable()  # see `paced`
    arrivals: list[Arrival] = []
    listener = Arrivals()
    with connected(url, listener) as connection:
        connection.subscribe(address, id="1", ack="auto")
        while len(arrivals) < traffic.count:
            try:
                arrivals.append(listener.seen.get(timeout=traffic.patience))
            except queue.Empty:
                break
    return arrivals


ENDS = Ends(produce, consume)
