"""A sink of ActiveMQ against a scripted broker, by a clock that the test sets."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from brokers.common import wait_until

from delaybridge.adapters.activemq import sink as module
from delaybridge.adapters.activemq.frames import ERROR, RECEIPT, Frame
from delaybridge.adapters.activemq.sink import ActiveSink, Settings
from delaybridge.adapters.activemq.transport import Times
from delaybridge.adapters.base import NotConnected, Outcome, Outgoing
from delaybridge.core.message import message

if TYPE_CHECKING:
    pass

BLOCKED = 2.0


class FakeLink:
    """A connection that takes everything and answers what the script says. Once `broken` it takes nothing more, and nobody was told yet."""

    def __init__(self, _: object, session: Any, *__: object) -> None:
        self.session = session
        self.written: list[bytes] = []
        self.broken = False
        self.dropped: NotConnected | None = None
        links.append(self)

    def start(self) -> None: ...

    def write(self, data: bytes) -> None:
        if self.broken:
            raise NotConnected("the broker is gone")
        self.written.append(data)

    def drop(self, reason: NotConnected) -> None:
        if self.dropped is None:
            self.dropped = reason
            self.session.lost(reason)

    def close(self) -> None:
        self.drop(NotConnected("closed"))


links: list[FakeLink] = []


class Stage:
    """A sink that is connected; its clock stands still unless it is set."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        links.clear()
        self.now = 1000.0
        patch.setattr(module, "Link", FakeLink)
        patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.heard: list[Outcome] = []
        self.sink = ActiveSink(list, times=Times(1, 0, BLOCKED), settings=Settings(persistent=True, largest=1000))
        self.sink.connect(self.heard.extend)
        self.link = links[-1]

    def publish(self, *tags: str, to: str = "orders") -> None:
        self.sink.publish([Outgoing(tag.encode(), to, message(tag.encode())) for tag in tags])

    def sent(self, data: bytes) -> None:
        """Return when this stands in what was written."""
        wait_until(lambda: any(data in each for each in self.link.written), f"{data!r} on the wire")

    def answer(self, *receipts: int) -> None:
        """What one read from the socket brings."""
        self.link.session.heard([Frame(RECEIPT, {b"receipt-id": b"%d" % number}, b"", False) for number in receipts])

    def refuse(self, receipt: int, why: bytes, body: bytes = b"") -> None:
        self.link.session.heard([Frame(ERROR, {b"receipt-id": b"%d" % receipt, b"message": why}, body, False)])

    def outcomes(self, count: int) -> Counter[str]:
        wait_until(lambda: len(self.heard) >= count, f"{count} outcomes")
        return Counter(tag.decode() for tag, _ in self.heard)

    def roll_back(self) -> None:
        """Let a transaction of `a` and `b` fail; they go alone then, as 3 and 4."""
        self.trust()
        self.publish("a", "b")
        self.sent(b"COMMIT")
        self.refuse(2, b"rollback only")
        self.sent(b"receipt:4\n")

    def connect_again(self) -> None:
        """Over a new connection; numbers begin at 1."""
        self.heard.clear()
        self.sink.connect(self.heard.extend)
        self.link = links[-1]

    def trust(self) -> None:
        """Let `orders` into transactions; the next number is 2."""
        self.publish("first")
        self.sent(b"receipt:1\n")
        self.answer(1)
        self.outcomes(1)
        self.heard.clear()
