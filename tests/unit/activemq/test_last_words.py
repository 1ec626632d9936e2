"""Why ActiveMQ closed a connection is told by whoever lost it, though the connection took nothing more before that was read."""

from __future__ import annotations

import socket
import struct
import threading
from typing import TYPE_CHECKING

import pytest

from delaybridge.adapters.activemq.link import Link
from delaybridge.adapters.activemq.transport import Target, Times
from delaybridge.adapters.base import NotConnected

if TYPE_CHECKING:
    from delaybridge.adapters.activemq.frames import Frame

AT_ONCE = struct.pack("ii", 1, 0)  # to close with a reset, as where not all was read


class Busy:
    """A session that hears the first frames for as long as it is held."""

    def __init__(self) -> None:
        self.hears, self.held, self.told = threading.Event(), threading.Event(), threading.Event()
        self.reason: NotConnected | None = None

    def heard(self, _: list[Frame]) -> None:
        self.hears.set()
        self.held.wait(10)

    def lost(self, reason: NotConnected) -> None:
        self.reason = reason
        self.told.set()


def test_why_the_broker_closed_the_connection_is_read_behind_a_write_that_failed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        session = Busy()
        link = Link([Target("127.0.0.1", server.getsockname()[1], None, None, None)], session, Times(5, 0, 5), "test")
        starts = threading.Thread(target=link.start)
        starts.start()
        broker, _ = server.accept()
        broker.recv(1000)
        broker.sendall(b"CONNECTED\nversion:1.2\n\n\0\n")
        starts.join()
        broker.sendall(b"RECEIPT\nreceipt-id:1\n\n\0\n")
        assert session.hears.wait(10)
        broker.sendall(b"ERROR\nmessage:too large\n\n\0\n")
        broker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        broker.close()
        with pytest.raises(NotConnected):
            link.write(b"x" * 1_000_000)
        session.held.set()
        assert session.told.wait(10)
    link.close()
    assert str(session.reason) == "ActiveMQ: too large"
