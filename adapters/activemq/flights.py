"""What is under way to ActiveMQ: messages alone, and messages in transactions."""

from __future__ import annotations

from functools import lru_cache

from .frames import escaped


class Prepared:
    """One message, ready for the wire: its destination, its header lines, its body."""

    __slots__ = ("body", "destination", "lines", "tag")

    def __init__(self, tag: bytes, destination: str, lines: bytes, body: bytes) -> None:
        self.tag = tag
        self.destination = destination
        self.lines = lines
        self.body = body

    @property
    def size(self) -> int:
        """Its bytes in a frame, but for the few by which it is answered."""
        return len(self.destination) + len(self.lines) + len(self.body)


class Transaction:
    """Messages that ActiveMQ takes together, or not at all."""

    def __init__(self, number: int, messages: list[Prepared], now: float) -> None:
        self.name = b"%d" % number
        self._line = b"\ntransaction:%d\n" % number
        self.messages = messages
        self.since = now

    @property
    def destinations(self) -> set[str]:
        """Where its messages go."""
        return {each.destination for each in self.messages}

    def sends(self) -> bytes:
        """All but its end, ready to send."""
        pieces = [b"BEGIN", self._line, b"\n\0"]
        for each in self.messages:
            pieces += (b"SEND\ndestination:", _destination(each.destination), self._line, each.lines, b"\n", each.body, b"\0")
        return b"".join(pieces)

    def commit(self) -> bytes:
        """Its end, which asks for a receipt of its name."""
        return b"".join((b"COMMIT", self._line, b"receipt:", self.name, b"\n\n\0"))

    def abort(self) -> bytes:
        """Its end, if it is not to be."""
        return b"".join((b"ABORT", self._line, b"\n\0"))


def alone(message: Prepared, receipt: bytes) -> bytes:
    """One message outside of any transaction, ready to send."""
    return b"".join((
        b"SEND\ndestination:", _destination(message.destination), b"\nreceipt:", receipt, b"\n", message.lines, b"\n", message.body, b"\0",
    ))  # fmt: skip


@lru_cache(maxsize=4096)
def _destination(name: str) -> bytes:
    return escaped(name.encode())
