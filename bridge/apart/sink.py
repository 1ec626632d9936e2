"""A sink in a process of its own."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from ...adapters.base import NotConnected
from . import frames
from .frames import Kind, failures, frame
from .process import PATIENCE, Process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...adapters.base import Confirm, Outcome, Outgoing
    from .frames import Setup


class _Session:
    """One connection: what is not confirmed, and the thread that hears of it."""

    def __init__(self, process: Process, confirm: Confirm) -> None:
        self._process = process
        self._confirm = confirm
        self._open: set[bytes] = set()
        self._lock = threading.Lock()
        self._reason: Exception | None = None
        self._thread = threading.Thread(target=self._hear, name="answers", daemon=True)
        self._thread.start()

    def publish(self, messages: Sequence[Outgoing]) -> None:
        if self._reason is not None:
            raise self._reason
        tags = [outgoing.tag for outgoing in messages]
        with self._lock:
            self._open.update(tags)
        try:
            self._process.send(frame(Kind.PUBLISH, messages))
        except NotConnected:
            with self._lock:
                self._open.difference_update(tags)
            raise

    def _hear(self) -> None:
        try:
            while True:
                kind, content = self._process.read()
                if kind == Kind.CONFIRMED:
                    self._tell([(tag, None) for tag in frames.tags(content)])
                elif kind == Kind.FAILED:
                    self._tell(failures(content))
                else:
                    self._reason = NotConnected(frames.text(content))
        except (NotConnected, RuntimeError) as reason:
            self._reason = self._reason or reason

    def _tell(self, outcomes: Sequence[Outcome]) -> None:
        with self._lock:
            self._open.difference_update([tag for tag, _ in outcomes])
        self._confirm(outcomes)

    def close(self) -> None:
        """Once its process has been told to end: hear its last words, and tell what it has not told."""
        self._thread.join(PATIENCE)
        if self._open:
            self._tell([(tag, NotConnected("the sink was closed")) for tag in list(self._open)])


class ApartSink:
    """See base.Sink. Tags that are under way at once differ.

    The process lives for as long as a connection, and longer only where a broker is away: no try to connect costs another one.
    """

    def __init__(self, setup: Setup, name: str) -> None:
        self._setup = setup
        self._name = name
        self._process: Process | None = None
        self._session: _Session | None = None

    def connect(self, confirm: Confirm) -> None:
        """See base.Sink. Starting a process takes half a second more."""
        if self._session is not None or (self._process is not None and not self._process.alive):
            self.close()
        if self._process is None:
            self._process = Process(self._setup, f"{self._name} sink")
        self._process.connect()
        self._session = _Session(self._process, confirm)

    def publish(self, messages: Sequence[Outgoing]) -> None:
        """See base.Sink. Blocks while the process is behind."""
        if self._session is None:
            raise NotConnected("the sink is closed")
        self._session.publish(messages)

    def close(self) -> None:
        """See base.Sink."""
        process, session = self._process, self._session
        self._process = self._session = None
        if process is None:
            return
        with contextlib.suppress(NotConnected, RuntimeError):
            process.send(frame(Kind.CLOSE))
        if session is not None:
            session.close()
        process.end()
