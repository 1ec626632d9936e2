"""What the adapter uses of stomp.py, so that a release that changes it is noticed here."""

from __future__ import annotations

import hashlib
import inspect
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
import stomp
from stomp import exception, utils
from stomp.listener import HeartbeatListener
from stomp.protocol import Protocol11, Protocol12
from stomp.transport import BaseTransport, Transport

from delaybridge.adapters.activemq import transport as module
from delaybridge.adapters.activemq.frames import ProtocolError, Reader
from delaybridge.adapters.activemq.transport import FOREIGN, Connection, QuietTransport, Target, Times, not_connected
from delaybridge.adapters.base import NotConnected

if TYPE_CHECKING:
    from collections.abc import Callable

USED: dict[str, tuple[Callable[..., Any], str]] = {
    "BaseTransport.start": (BaseTransport.start, "be1b22fb06f9"),
    "BaseTransport.notify": (BaseTransport.notify, "11885f726964"),
    "BaseTransport.process_frame": (BaseTransport.process_frame, "45c8caf504aa"),
    "BaseTransport.transmit": (BaseTransport.transmit, "9c4bd8bcd049"),
    "BaseTransport.__io_loop": (BaseTransport._BaseTransport__io_loop, "b54f8e593ef9"),
    "BaseTransport.__read_frames": (BaseTransport._BaseTransport__read_frames, "1be03d6c74ba"),
    "Transport.__init__": (Transport.__init__, "7b14edfc8ad9"),
    "Transport.send": (Transport.send, "fa576ce5a430"),
    "Transport.cleanup": (Transport.cleanup, "db191ddfc1a3"),
    "Transport.shutdown_queue": (Transport.shutdown_queue, "ecef9b4dc923"),
    "Transport.attempt_connection": (Transport.attempt_connection, "87bc3365f5a4"),
    "Transport.disconnect_socket": (Transport.disconnect_socket, "2cd81b2a0a7c"),
    "Protocol11.__init__": (Protocol11.__init__, "c0c82f91f812"),
    "Protocol11.send_frame": (Protocol11.send_frame, "345dce0ef94f"),
    "Protocol12.connect": (Protocol12.connect, "8120da27f699"),
    "HeartbeatListener": (HeartbeatListener, "450f16b661a0"),
    "PollableQueue": (utils.PollableQueue, "370d12d7f6fb"),
}


@pytest.mark.parametrize("name", USED)
def test_stomp_py_is_as_it_was_when_parts_of_it_were_replaced(name: str) -> None:
    member, digest = USED[name]
    assert hashlib.sha256(inspect.getsource(member).encode()).hexdigest()[:12] == digest, (
        f"stomp.py {stomp.__version__} changed {name}: read it"
    )


def test_each_error_of_stomp_py_is_not_connected() -> None:
    errors = [one for _, one in inspect.getmembers(exception, inspect.isclass) if issubclass(one, Exception)]
    assert errors
    for error in (*errors, OSError, ProtocolError):
        assert issubclass(error, FOREIGN)
        assert isinstance(not_connected(error("why")), NotConnected)
    assert str(not_connected(OSError("why"))) == "ActiveMQ: why"


def test_heartbeats_go_out_twice_as_often_as_promised_and_are_waited_for_as_long_as_a_healthy_broker_may_send_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(utils, "default_create_thread", lambda _: threading.Thread())
    transport = QuietTransport(Target("127.0.0.1", 0, None, None, None), Times(1, 10, 1), Reader(b"mark"), lambda _: None)
    connection = Connection(transport, (10_000, 10_000))
    asked = utils.Frame("CONNECT", {}, None)
    connection.on_send(asked)
    connection.on_connected(utils.Frame("CONNECTED", {"heart-beat": "10000,10000"}, None))
    assert asked.headers["heart-beat"] == "10000,10000"
    assert connection.send_sleep == 5
    assert connection.receive_sleep == 25


def test_a_broker_may_take_longer_than_a_heartbeat_interval_to_let_us_in(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(module, "uptime", lambda: now)
    monkeypatch.setattr(utils, "default_create_thread", lambda _: threading.Thread())
    transport = QuietTransport(Target("127.0.0.1", 0, None, None, None), Times(60, 10, 1), Reader(b"mark"), lambda _: None)
    now += 30
    Connection(transport, (10_000, 10_000)).on_connected(utils.Frame("CONNECTED", {"heart-beat": "10000,10000"}, None))
    now += 9.9
    transport.mind_the_heartbeats()
    now += 0.2
    with pytest.raises(NotConnected, match="no heartbeat for 10 s"):
        transport.mind_the_heartbeats()


@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "over TLS"])
def test_what_came_before_this_process_stood_still_is_left_to_others(over_tls: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After so long ActiveMQ may have closed the connection, and what it gave then is here still."""
    now, heard = 1_000.0, list[Any]()
    monkeypatch.setattr(module, "uptime", lambda: now)
    transport = QuietTransport(Target("127.0.0.1", 0, None, None, None), Times(1, 10, 1), Reader(b"mark"), heard.append)
    transport.promised = 10
    ours, theirs = socket.socketpair()
    with ours, theirs:
        transport.socket = ours
        if over_tls:
            transport._serve_from_reading_thread(ours)
        now += 9.9
        transport.write(b"\n")
        now += 9.9
        transport.mind_the_heartbeats()
        theirs.sendall(b"RECEIPT\nreceipt-id:1\n\n\0")
        now += 0.2
        with pytest.raises(exception.ConnectionClosedException):
            transport._BaseTransport__read_frames()
        with pytest.raises(NotConnected, match="no heartbeat for 10 s"):
            transport.write(b"\n")
        transport.cleanup()
    assert heard == []
    assert str(transport.reason) == "this process sent no heartbeat for 10 s, and ActiveMQ may have closed the connection"


def test_a_refused_connection_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    transport = QuietTransport(Target("127.0.0.1", port, None, None, None), Times(1, 0, 1), Reader(b"mark"), lambda _: None)
    with pytest.raises(ConnectionRefusedError):
        transport.start()


def test_at_the_end_of_a_connection_over_tls_no_file_stays_open() -> None:
    transport = QuietTransport(Target("127.0.0.1", 0, None, None, None), Times(1, 0, 1), Reader(b"mark"), lambda _: None)
    ours, theirs = socket.socketpair()
    with theirs:
        transport.socket = ours
        transport._serve_from_reading_thread(ours)
        files = [transport.send_queue._putsocket, transport.send_queue._getsocket, ours]
        selector = transport.sel
        transport.cleanup()
    assert selector.get_map() is None, "the selector is open"
    assert [each.fileno() for each in files] == [-1] * 3


def test_over_tls_no_heartbeat_gets_between_the_pieces_of_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would stand in the body of a text, which has no length, or end the head of what follows."""
    monkeypatch.setattr(module, "_PIECE", 10)
    transport = QuietTransport(Target("127.0.0.1", 0, None, None, None), Times(1, 10, 5), Reader(b"mark"), lambda _: None)
    transport.blocking, transport.send_queue = False, module._Queue(transport._writing)
    taken, over = bytearray(), threading.Event()

    def read() -> None:
        while (piece := transport.send_queue.get()) != b"end":
            taken.extend(piece)

    def beat() -> None:
        while not over.is_set():
            transport.transmit(utils.Frame(None, {}, None))

    threads = [threading.Thread(target=run) for run in (read, beat)]
    for thread in threads:
        thread.start()
    text = b"SEND" + b"x" * 95 + b"\0"
    for _ in range(200):
        transport.write(text)
    over.set()
    threads[1].join()
    transport.send_queue.put(b"end")
    threads[0].join()
    transport.send_queue.shutdown()

    assert bytes(taken).count(text) == 200
