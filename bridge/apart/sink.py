"""A sink in a process of its own."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from ...adapters.base import NotConnected
from . import frames
from .frames import Kind, failures, frame
from .process import PATIENCE, Place, Process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...adapters.base import Confirm, Outcome, Outgoing
    from .frames import Setup


SILENCE = 60
"""Seconds without a word from a process, which says something every second, after which it is given up. A client may block for some of them."""


class _Session:
    """One connection: what is not confirmed, and the thread that hears of it."""

    def __init__(self, process: Process, confirm: Confirm) -> None:
        self._process = process
        self._confirm = confirm
        self._open: set[bytes] = set()
        self._lock = threading.Lock()
        self._reason: Exception | None = None
        self.blocked = ""
        self._thread = threading.Thread(target=self._hear, name="answers", daemon=True)
        self._thread.start()

    def publish(self, messages: Sequence[Outgoing]) -> None:
        """See base.Sink. If sending fails, the other thread may have noticed first and reported these messages: then they count as taken."""
        tags = [outgoing.tag for outgoing in messages]
        with self._lock:
            if self._reason is not None:
                raise self._reason
            self._open.update(tags)
        try:
            self._process.send(frame(Kind.PUBLISH, messages))
        except (NotConnected, RuntimeError):
            with self._lock:
                ours = self._open.issuperset(tags)
                self._open.difference_update(tags)
            if ours:
                raise

    def _hear(self) -> None:
        reason: Exception = NotConnected("the sink was closed")
        try:
            while (said := self._process.read(None if self._reason else SILENCE))[0] != Kind.CLOSED:
                self._heard(*said)
        except Exception as gone:  # noqa: BLE001 - whatever it is, nobody hears any more: who publishes must know
            reason = gone
        with self._lock:
            self._reason = self._reason or reason
            left = list(self._open)
        self._tell([(tag, NotConnected(str(reason))) for tag in left])

    def _heard(self, kind: int, content: memoryview) -> None:
        if kind == Kind.CONFIRMED:
            self._tell([(tag, None) for tag in frames.tags(content)])
        elif kind == Kind.FAILED:
            self._tell(failures(content))
        elif kind == Kind.BLOCKED:
            self.blocked = frames.text(content)
        elif kind == Kind.LOST:
            self._reason = NotConnected(frames.text(content))

    def _tell(self, outcomes: Sequence[Outcome]) -> None:
        with self._lock:
            told = [outcome for outcome in outcomes if outcome[0] in self._open]
            self._open.difference_update([tag for tag, _ in told])
        if told:
            self._confirm(told)

    def close(self) -> None:
        """All outcomes are told when this returns. A process that takes long to close its client is given up."""
        with contextlib.suppress(NotConnected, RuntimeError):
            self._process.send(frame(Kind.CLOSE))
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            self._process.kill()
            self._thread.join()


class ApartSink:
    """See base.Sink. Tags that are under way at once differ. `end` ends its process, once it is closed for good."""

    def __init__(self, setup: Setup, name: str) -> None:
        self._place = Place(setup, f"{name} sink")
        self._session: _Session | None = None

    def connect(self, confirm: Confirm) -> None:
        """See base.Sink. The first time, starting a process takes half a second more."""
        self.close()
        process = self._place.taken()
        process.connect()
        self._session = _Session(process, confirm)

    def publish(self, messages: Sequence[Outgoing]) -> None:
        """See base.Sink. Blocks while the process is behind."""
        if self._session is None:
            raise NotConnected("the sink is closed")
        self._session.publish(messages)

    @property
    def blocked(self) -> str:
        """See base.Blockable. Some moments behind."""
        session = self._session
        return "" if session is None else session.blocked

    def close(self) -> None:
        """See base.Sink."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def end(self) -> None:
        """Leave no process behind."""
        self.close()
        self._place.leave()
