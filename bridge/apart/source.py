"""A source in a process of its own."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

from ...adapters.base import Batch, NotConnected
from . import frames
from .frames import Asked, Kind, frame
from .process import Process

if TYPE_CHECKING:
    from .frames import Setup


class ApartSource:
    """See base.Source. It is asked for a batch ahead, with the limit of the call before, while there are many messages.

    The process lives for as long as a connection, and longer only where a broker is away, as that of a sink.
    """

    def __init__(self, setup: Setup, name: str) -> None:
        self._setup = setup
        self._name = name
        self._process: Process | None = None
        self._connected = self._asked = False
        self._number = 0

    def connect(self) -> None:
        """See base.Source. Starting a process takes half a second more."""
        if self._connected or (self._process is not None and not self._process.alive):
            self.close()
        if self._process is None:
            self._process = Process(self._setup, f"{self._name} source")
        self._process.connect()
        self._connected, self._asked, self._number = True, False, 0

    def receive(self, limit: int, timeout: float) -> Batch | None:
        """See base.Source."""
        process = self._process
        if process is None or not self._connected:
            raise NotConnected("the source is closed")
        if not self._asked:
            self._ask(process, limit, timeout)
        kind, content = process.read()
        self._asked = False
        if kind == Kind.NOTHING:
            return None
        if kind == Kind.LOST:
            raise NotConnected(frames.text(content))
        messages = frames.messages(content)
        self._number += 1
        if len(messages) >= limit:
            self._ask(process, limit, timeout)
        return Batch(messages, partial(self._ack, process, self._number))

    def _ask(self, process: Process, limit: int, timeout: float) -> None:
        process.send(frame(Kind.RECEIVE, Asked(limit, timeout)))
        self._asked = True

    def _ack(self, process: Process, number: int) -> None:
        if process is self._process:
            with contextlib.suppress(NotConnected, RuntimeError):  # the next `receive` says so
                process.send(frame(Kind.ACK, number))

    def close(self) -> None:
        """See base.Source."""
        process, self._process, self._connected = self._process, None, False
        if process is None:
            return
        with contextlib.suppress(NotConnected, RuntimeError):
            process.send(frame(Kind.CLOSE))
            while True:  # what it has asked for ahead, and its end
                process.read()
        process.end()
