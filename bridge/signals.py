"""The signals that the bridge acts on. An early one is held back: else it would end the bridge undrained, or be lost where that is a container's process 1."""

from __future__ import annotations

import signal
import socket
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextmanager
def held_back() -> Iterator[None]:
    """Hold back signals: `handled` takes them up, or else they take effect at the end. Main thread; what is started before `handled` inherits this."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Bell:
    """What the main thread waits at. A signal rings it, and so may any thread.

    Python runs handlers of signals on the main thread. The kernel may deliver a signal to another thread, and then a main thread that waits for a lock, or an
    Event, does not notice it; nor does it notice one that comes just before it begins to wait.
    """

    def __init__(self) -> None:
        self._near, self._far = socket.socketpair()
        self._far.setblocking(False)

    def ring(self) -> None:
        """Any thread; does not block."""
        with suppress(OSError):  # it has been rung very often, and is heard; or nobody listens any more
            self._far.send(b"\0")

    def wait(self) -> None:
        """Wait until it has been rung since the last wait."""
        self._near.recv(4096)

    def fileno(self) -> int:
        """Where a signal rings it."""
        return self._far.fileno()

    def close(self) -> None:
        """Leave nothing behind."""
        self._near.close()
        self._far.close()


@contextmanager
def handled(by: Callable[[int, FrameType | None], None]) -> Iterator[Bell]:
    """Call `by` for each signal, also for one that was held back, on the main thread; and ring the bell."""
    with closing(Bell()) as bell:
        before = {number: signal.signal(number, by) for number in SIGNALS}
        ringing = signal.set_wakeup_fd(bell.fileno(), warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        try:
            yield bell
        finally:
            signal.set_wakeup_fd(ringing)
            for number, handler in before.items():
                signal.signal(number, handler)
