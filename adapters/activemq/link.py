"""One connection to ActiveMQ: the first of several hosts that lets us in, questions with their answers, and a farewell, each within its time."""

from __future__ import annotations

import contextlib
import secrets
import threading
from typing import TYPE_CHECKING, Protocol

from stomp.listener import ConnectionListener
from stomp.protocol import Protocol12

from ..base import LoginRefused, NotConnected, telling
from .frames import ERROR, RECEIPT, Frame, Reader, frame
from .transport import FOREIGN, Connection, QuietTransport, Target, Times, not_connected

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Session(Protocol):
    """What a link carries. Both methods are called by the connection's reading thread and must not block, send or raise."""

    def heard(self, frames: list[Frame]) -> None:
        """Frames arrived: all that one read from the socket brought, less what the link itself waits for."""
        ...

    def lost(self, reason: NotConnected) -> None:
        """The connection is gone. Called exactly once, and last."""
        ...


def _refusal(text: str) -> NotConnected:
    """What an ERROR for the login means. ActiveMQ and Artemis tell it by these words only."""
    return (LoginRefused if "password is invalid" in text else NotConnected)(f"ActiveMQ: {text}")


class Link(ConnectionListener):  # type: ignore[misc]
    """A connection for `session`. `mark` is the id to subscribe with, or the beginning of such ids; its thread is called `name`."""

    def __init__(self, targets: Sequence[Target], session: Session, times: Times, name: str) -> None:
        self.mark = secrets.token_hex(8)
        self._targets = targets
        self._session = session
        self._times = times
        self._name = name
        self.artemis = False
        self._transport: QuietTransport
        self._answers: dict[str, threading.Event] = {}
        self._answer: Frame | None = None
        self._last_words = ""
        self._lock = threading.Lock()  # of the next two: is the session told of a loss, or `start`?
        self._open = False
        self._dead: NotConnected | None = None

    def start(self) -> None:
        """Connect to the first target that lets us in. Raises NotConnected, after at most the connect time-out for each: see base.telling."""
        failures: list[NotConnected] = []
        for target in self._targets:
            try:
                self._connect(target)
            except NotConnected as error:
                failures.append(type(error)(f"{error} (at {target.host}:{target.port})"))
            else:
                return
        raise telling(failures)

    def _connect(self, target: Target) -> None:
        self._transport = transport = QuietTransport(target, self._times, Reader(self.mark.encode()), self._heard)
        transport.override_threading(self._thread)
        self._answer = self._dead = None
        beat = int(self._times.heartbeat * 1000)
        connection = Connection(transport, (beat, beat))
        connection.set_listener("delaybridge", self)
        connected = self._answers["connected"] = threading.Event()
        try:
            transport.start()
            # The command STOMP would escape a password as no broker expects it.
            Protocol12.connect(connection, target.login, target.passcode, with_connect_command=True)
        except FOREIGN as error:
            transport.drop(not_connected(error))
            self._join()
            raise not_connected(error) from error
        self._await(connected, "connected")
        assert self._answer is not None
        if self._answer.command == ERROR or self._answer.headers.get(b"version") != b"1.2":
            self._give_up(_refusal(self._answer.text(b"message") or "it does not speak STOMP 1.2"))
        self.artemis = "Artemis" in self._answer.text(b"server")
        with self._lock:
            self._open = self._dead is None
        if self._dead is not None:
            self._give_up(self._dead)

    def _thread(self, run: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=run, name=self._name, daemon=True)
        thread.start()
        return thread

    def _await(self, answer: threading.Event, what: str) -> None:
        """Raises NotConnected."""
        if not answer.wait(self._times.connect):
            self._give_up(NotConnected(f"ActiveMQ did not answer within {self._times.connect:g} s"))
        del self._answers[what]
        if self._answer is None:
            self._give_up(self._reason())

    def _give_up(self, reason: NotConnected) -> None:
        self._transport.drop(reason)
        self._join()
        raise reason

    def _reason(self) -> NotConnected:
        return self._transport.reason or NotConnected("ActiveMQ closed the connection")

    def ask(self, command: bytes, *headers: tuple[bytes, bytes], body: bytes = b"") -> Frame:
        """Send a frame and wait for its receipt, or for the error that comes instead. Raises NotConnected."""
        receipt = f"ask-{secrets.token_hex(4)}"
        answer = self._answers[receipt] = threading.Event()
        self._answer = None
        self.write(frame(command, *headers, (b"receipt", receipt.encode()), body=body))
        self._await(answer, receipt)
        assert self._answer is not None
        return self._answer

    def write(self, data: bytes) -> None:
        """Send frames. Raises NotConnected: then nobody knows how much of it was sent."""
        try:
            self._transport.write(data)
        except FOREIGN as error:
            reason = not_connected(error)
            self._transport.cut(reason)
            raise self._transport.reason or reason from error

    @property
    def unsure(self) -> bool:
        """Whether a message may be here whose end the next frame will show. Any thread."""
        return self._transport.unsure

    def mind_the_heartbeats(self) -> None:
        """Raises NotConnected where what has come may belong to others by now: see QuietTransport."""
        self._transport.mind_the_heartbeats()

    def drop(self, reason: NotConnected) -> None:
        """Give the connection up, for this reason unless there is one already."""
        self._transport.drop(reason)

    def close(self, *subscriptions: bytes) -> None:
        """Say goodbye and disconnect; after the connect time-out without an answer the connection is dropped. Idempotent.

        `subscriptions` are ended before: of one that a DISCONNECT ends, Artemis counts its last message as delivered, and drops what it has counted ten times.
        """
        with contextlib.suppress(NotConnected):
            if self._transport.running:
                for each in subscriptions:
                    self.write(frame(b"UNSUBSCRIBE", (b"id", each)))
                self.ask(b"DISCONNECT")
        self.drop(NotConnected("the connection was closed"))
        self._join()

    def _join(self) -> None:
        thread = self._transport.io_thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._times.connect)

    def _heard(self, frames: list[Frame]) -> None:
        if self._answers:
            frames = [each for each in frames if not self._answered(each)]
        if frames:
            self._last_words = f"ActiveMQ: {frames[-1].text(b'message')}" if frames[-1].command == ERROR else ""
            if self._open:
                self._session.heard(frames)

    def _answered(self, received: Frame) -> bool:
        what = received.text(b"receipt-id") if received.command in {RECEIPT, ERROR} else "connected"
        if received.command == ERROR and not self._open:
            what = "connected"
        answer = self._answers.get(what)
        if answer is None or answer.is_set():
            return False
        self._answer = received
        answer.set()
        return True

    def on_disconnected(self) -> None:
        """Called by stomp.py's reading thread, as its last act."""
        reason = NotConnected(self._last_words) if self._last_words else self._reason()
        with self._lock:
            told, self._open, self._dead = self._open, False, reason
        if told:
            self._session.lost(reason)
        for answer in list(self._answers.values()):
            answer.set()
