"""What a subscriber hears on its connection: messages, until it is lost."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from ..base import NotConnected
from .frames import ERROR, MESSAGE
from .link import Link

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .frames import Frame
    from .transport import Target, Times

_ARTEMIS_BYTES = 1024
"""Of each message of the prefetch: Artemis counts its window in bytes. Without one, it gives a single message where each is acknowledged by itself."""


class Listener:
    """One connection. `heard` and `lost` are called by its reading thread, all else by the bridge's."""

    def __init__(self, targets: Sequence[Target], times: Times, name: str) -> None:
        self.link = Link(targets, self, times, name)
        self.inbox: deque[Frame] = deque()
        self.changed = threading.Event()
        self.reason: NotConnected | None = None

    def heard(self, frames: list[Frame]) -> None:
        """See link.Session. After an error that matters ActiveMQ closes the connection, so it is no more than the reason for that."""
        self.inbox.extend(each for each in frames if each.command == MESSAGE)
        self.changed.set()

    def lost(self, reason: NotConnected) -> None:
        """See link.Session."""
        self.reason = reason
        self.changed.set()

    def check(self) -> None:
        """Raises NotConnected where the connection is gone, or what has come over it may be somebody else's."""
        if self.reason is not None:
            raise self.reason
        self.link.mind_the_heartbeats()

    def ask_for(self, id_: bytes, destination: str, ack: bytes, prefetch: int) -> None:
        """Subscribe to a destination. Raises NotConnected."""
        windows = (b"activemq.prefetchSize", b"%d" % prefetch), (b"consumer-window-size", b"%d" % (prefetch * _ARTEMIS_BYTES))
        self.ask(b"SUBSCRIBE", (b"id", id_), (b"destination", destination.encode()), (b"ack", ack), *windows)

    def ask(self, command: bytes, *headers: tuple[bytes, bytes]) -> None:
        """Send a frame and wait until ActiveMQ has it. Raises NotConnected, also where it is refused."""
        answer = self.link.ask(command, *headers)
        if answer.command == ERROR:
            self.link.close()
            raise NotConnected(f"ActiveMQ: {answer.text(b'message')}")
