"""stomp.py's connection, with three of its parts replaced: opening the socket, reading frames (see `frames`), dropping the connection.

Each of them can wait for ever, or hides what went wrong. stomp.py still shakes hands, keeps heartbeats, and owns the threads: one that reads, and over TLS
writes, and one for heartbeats. tests/unit/activemq/test_transport.py fails when stomp.py changes a member that is used here.
"""

from __future__ import annotations

import contextlib
import logging
import math
import selectors
import socket
import ssl
import struct
import threading
from typing import TYPE_CHECKING, NamedTuple

from stomp.connect import BaseConnection
from stomp.exception import ConnectionClosedException, StompException
from stomp.protocol import Protocol12
from stomp.transport import Transport
from stomp.utils import Frame as StompFrame
from stomp.utils import PollableQueue

from ..base import NotConnected
from ..clock import uptime
from .frames import CONNECTED, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from .frames import Frame, Reader

# stomp.py writes each failure to the log, with tracebacks; we raise it once.
logging.getLogger("stomp.py").setLevel(logging.CRITICAL)

FOREIGN = (StompException, OSError, ProtocolError, AttributeError, UnicodeError)
"""All that stomp.py and the socket raise: AttributeError where stomp.py has just taken its socket away, UnicodeError for a host that can have no such name.
The connection is of no more use.
"""

_RECEIVE = 262_144
_BEATS = 2  # in the time of each that was promised
_SILENCE = 2.5  # of the broker's intervals, until it counts as gone
_PIECE = 1 << 20  # over TLS, what is handed to the reading thread at once


class Target(NamedTuple):
    """Where to connect, and as whom. With `context`, over TLS."""

    host: str
    port: int
    login: str | None
    passcode: str | None
    context: ssl.SSLContext | None


class Times(NamedTuple):
    """In seconds: to connect or to say goodbye; between heartbeats (0: none); until a broker that takes no bytes is given up."""

    connect: float
    heartbeat: float
    blocked: float


def not_connected(error: BaseException) -> NotConnected:
    """NotConnected for any of `FOREIGN`."""
    if isinstance(error, NotConnected):
        return error
    ours = NotConnected(f"ActiveMQ: {error}" if str(error) else f"ActiveMQ: {error!r}")
    ours.__cause__ = error
    return ours


class _Queue(PollableQueue):  # type: ignore[misc]  # as below
    """What is to be written over TLS. Some hundred writes fill it; who writes then, heartbeats too, would wait for ever but for `QuietTransport._limit`."""

    def __init__(self, writing: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__()
        self._writing = writing

    def put(self, item: bytes | memoryview) -> None:
        """See PollableQueue. Raises BlockingIOError: then the connection is of no more use, because the item is in the queue and was not announced."""
        with self._writing():
            super().put(item)


class QuietTransport(Transport):  # type: ignore[misc]  # stomp.py has no annotations
    """stomp.py's transport on a socket of our own, with our reader."""

    def __init__(self, target: Target, times: Times, reader: Reader, heard: Callable[[list[Frame]], None]) -> None:
        super().__init__([(target.host, target.port)], prefer_localhost=False, try_loopback_connect=False, auto_decode=False)
        self._target = target
        self._times = times
        self._reader = reader
        self._heard = heard
        self.reason: NotConnected | None = None
        self.promised = 0.0
        """Seconds within which we send something, at least a heartbeat: else ActiveMQ may close the connection. 0: it waits for nothing."""
        self._lock = threading.RLock()
        self._sent = uptime()  # when the last write ended; infinity during one, however long it takes: then ActiveMQ hears of us

    def attempt_connection(self) -> None:
        """Open the socket. Raises OSError."""
        target = self._target
        opened = socket.create_connection((target.host, target.port), self._times.connect)
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if target.context is not None:
                opened = target.context.wrap_socket(opened, server_hostname=target.host)
                self._serve_from_reading_thread(opened)
            opened.setblocking(self.blocking)
            self._limit(opened)
        except BaseException:
            opened.close()
            raise
        self.socket = opened
        self._sent = uptime()
        self.current_host_and_port = (target.host, target.port)

    def _serve_from_reading_thread(self, opened: socket.socket) -> None:
        """A TLS socket may be used by one thread only."""
        self.send_queue = _Queue(self._writing)
        self._limit(self.send_queue._putsocket)  # noqa: SLF001 - nothing public sets a time-out
        self.sel = selectors.DefaultSelector()
        self.sel.register(self.send_queue, selectors.EVENT_READ)
        self.sel.register(opened, selectors.EVENT_READ)
        self.blocking = False

    def _limit(self, written: socket.socket) -> None:
        """Let a write raise BlockingIOError where nothing was taken for the blocked time-out."""
        seconds = self._times.blocked
        written.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000)))

    def shutdown_queue(self) -> None:
        """What stomp.py does at the end, over TLS. It leaves the selector, and its file, to the garbage collector."""
        with contextlib.closing(self.sel):
            super().shutdown_queue()

    def _BaseTransport__read_frames(self) -> None:  # noqa: N802 - stomp.py's own name, mangled
        while True:
            try:
                data = self.socket.recv(_RECEIVE)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except (OSError, AttributeError) as error:
                raise self._gone(error) from error
            if not data:
                raise self._gone(ConnectionClosedException("the broker closed the connection"))
            try:
                self.mind_the_heartbeats()
            except NotConnected as reason:
                raise self._gone(reason) from reason
            self.notify("heartbeat")
            try:
                self._hand_over(self._reader.feed(data))
            except ProtocolError as error:
                raise self._gone(error) from error
            if self.blocking:
                return

    def _gone(self, error: Exception) -> ConnectionClosedException:
        self.reason = self.reason or not_connected(error)
        return ConnectionClosedException()

    def _hand_over(self, frames: list[Frame]) -> None:
        if frames and frames[0].command == CONNECTED and not self.connected:
            headers = {name.decode(): value.decode() for name, value in frames[0].headers.items()}
            self.process_frame(StompFrame("CONNECTED", headers, b""), b"")
        if frames:
            self._heard(frames)

    @property
    def unsure(self) -> bool:
        """See `Reader`. Any thread."""
        return self._reader.unsure

    def promise(self, seconds: float) -> None:
        """See `promised`; called when ActiveMQ has let us in. However long that took, it waits for nothing from before."""
        self._sent = uptime()
        self.promised = seconds

    def mind_the_heartbeats(self) -> None:
        """Give the connection up where this process stood still for so long that ActiveMQ may have closed it, and given its messages to others. Any thread.

        What had come before that is here still, and looks as if it were ours. Raises NotConnected.
        """
        gap = uptime() - self._sent
        if 0 < self.promised < gap:
            self.drop(NotConnected(f"this process sent no heartbeat for {gap:.0f} s, and ActiveMQ may have closed the connection"))
            raise self.reason or NotConnected("the connection was closed")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Around each write to the socket, or over TLS to the queue before it. Raises one of FOREIGN, or NotConnected.

        What is sent too late must not make a connection look alive that may be closed.
        """
        self.mind_the_heartbeats()
        with self._lock:
            if self.reason is not None:
                raise self.reason
            self._sent = math.inf
            try:
                yield
            except BlockingIOError:
                self.drop(NotConnected(f"ActiveMQ took nothing for {self._times.blocked:g} s"))
                raise
            finally:
                self._sent = uptime()

    def send(self, encoded_frame: bytes) -> None:
        """How stomp.py writes a frame. Raises one of FOREIGN, or NotConnected."""
        with self._writing():
            super().send(encoded_frame)

    def write(self, data: bytes) -> None:
        """Send; blocks while the broker takes nothing, for at most the blocked time-out. Raises one of FOREIGN, or NotConnected."""
        if self.blocking:
            self.send(data)
            return
        view = memoryview(data)
        with self._writing():  # a heartbeat between two pieces would stand in a body, or end a head
            for start in range(0, len(data), _PIECE):
                self.send_queue.put(view[start : start + _PIECE])

    def disconnect_socket(self) -> None:
        """What stomp.py does when no heartbeat comes. Its own way says goodbye over TLS, and may wait for the answer for ever."""
        self.drop(NotConnected("ActiveMQ sent no heartbeat"))

    def drop(self, reason: NotConnected) -> None:
        """End the connection without a farewell. The reading thread closes the socket. Any thread; never blocks."""
        self.running = False
        self.cut(reason)

    def cut(self, reason: NotConnected) -> None:
        """The same, once what ActiveMQ has said is read: where it takes nothing more, that tells why."""
        self.reason = self.reason or reason
        with contextlib.suppress(OSError, AttributeError):
            self.socket.shutdown(socket.SHUT_RDWR)


class Connection(BaseConnection, Protocol12):  # type: ignore[misc]
    """stomp.py's STOMP 1.2 on our transport, which sends heartbeats before they are due.

    stomp.py sends one at the end of each interval. ActiveMQ looks whether one has come at the end of each of its own, and where none has, as soon as the
    two fall together, it closes the connection, unless its connector has a `transport.hbGracePeriodMultiplier`.

    ActiveMQ sends one at the end of an interval in which it wrote nothing else. After a frame at the beginning of one it is silent for almost two
    intervals; stomp.py would wait for one and a half.
    """

    def __init__(self, transport: QuietTransport, heartbeats: tuple[int, int]) -> None:
        self._send_sleep = 0.0
        BaseConnection.__init__(self, transport)
        Protocol12.__init__(self, transport, heartbeats, auto_content_length=False, heart_beat_receive_scale=_SILENCE)

    @property
    def send_sleep(self) -> float:
        """Seconds between two heartbeats; stomp.py sets what was promised to the broker."""
        return self._send_sleep

    @send_sleep.setter
    def send_sleep(self, promised: float) -> None:
        self._send_sleep = promised / _BEATS
        self.transport.promise(promised)
