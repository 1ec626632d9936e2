"""The threads of the daemon. Those with a connection connect it, and connect it again when the broker went away."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog
from tenacity import RetryCallState, Retrying, retry_if_exception_type, sleep_using_event, stop_when_event_set

from ..adapters.base import LoginRefused, NotConnected
from ..core.store import StoreFull
from .delivery.backoff import Backoff

if TYPE_CHECKING:
    from .metrics import Metrics

log = structlog.get_logger()

Failed = Callable[[str, BaseException], None]
"""Hears of a thread that died, by its name, and of what: the daemon must end then."""

Wake = Callable[[str, int], None]
"""Tells a lane, by its name, that something for it is due at that time."""

LASTING = 10.0
"""Seconds that a connection should last. After two in a row that lasted less, the next one waits, to spare a broker that takes connections and drops them."""

TOLD_AGAIN = 60.0
"""Seconds after which the same reason is told again: with level queues some twenty threads try every few seconds, for hours if need be."""

RECEIVE_TIMEOUT = 0.5
"""Seconds that a receive waits for a first message before it looks whether the daemon is stopping."""

LOOK = 0.1
"""Seconds after which a thread that waits for another one looks whether the daemon is stopping."""

SYNC_PACE = 0.02
"""Seconds for which settled deliveries gather for one sync; often an intake's write has synced them by then."""


class Reasons:
    """Why something fails again and again, as far as the log was told: each reason at once, and the same one again after a minute. One thread."""

    def __init__(self) -> None:
        self.over()

    def over(self) -> None:
        """It works again: whatever is wrong next is told at once."""
        self._told, self._at = "", float("-inf")

    def untold(self, reason: str, now: float) -> bool:
        """Whether this is to be told now (by a clock that is never set); then it counts as told."""
        if reason == self._told and now - self._at < TOLD_AGAIN:
            return False
        self._told, self._at = reason, now
        return True


class Waits:
    """Seconds until the next try to connect. A broker that went away is found again soon; one that refuses the login may lock the account."""

    def __init__(self) -> None:
        self._away, self._refused = Backoff(first=0.2, cap=5.0), Backoff(first=1.0, cap=60.0)
        self._refusals = 0

    def __call__(self, state: RetryCallState) -> float:
        """What tenacity calls, in seconds."""
        assert state.outcome is not None
        if not isinstance(state.outcome.exception(), LoginRefused):
            return self._away.seconds(state.attempt_number)
        self._refusals += 1
        return self._refused.seconds(self._refusals)


class Worker(ABC):
    """A thread with a name that stops when asked, and reports what it dies of to `failed`."""

    def __init__(self, name: str, failed: Failed) -> None:
        self.name = name
        self.stopping = threading.Event()
        self._failed = failed
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end; returns at once."""
        self.stopping.set()

    def join(self, timeout: float) -> bool:
        """Wait for the end; False where it did not come in time. What was never started has ended."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @abstractmethod
    def run(self) -> None:
        """The thread's work."""

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - whatever ends a thread must end the daemon: it would be silent otherwise
            self._failed(self.name, error)

    def _awaits(self, happened: threading.Event) -> bool:
        """Wait for it; False where the worker is stopping first."""
        while not self.stopping.is_set():
            if happened.wait(LOOK):
                return True
        return False


class ClientWorker(Worker):
    """A thread that drives a client of one broker."""

    def __init__(self, name: str, broker: str, metrics: Metrics, failed: Failed) -> None:
        super().__init__(name, failed)
        self.connected = False
        self.error = ""
        """Why there is no connection, while there is none."""
        self.backoff = Backoff(first=0.2, cap=5.0)
        self._broker = broker
        self._metrics = metrics
        self._connected_at = float("-inf")
        self._short_lived = 0
        self._losses = Reasons()
        self._unsaid = False  # whether the log knows nothing of the last loss: then it need not know that the broker is there again

    def _connect(self, connect: Callable[[], None]) -> bool:
        """Connect, again and again, until it works (True) or the worker is stopping (False)."""
        reasons = Reasons()

        def tell(state: RetryCallState) -> None:
            assert state.outcome is not None
            self.error = str(state.outcome.exception())
            if not reasons.untold(self.error, time.monotonic()):
                return
            self._unsaid = False
            log.warning(
                "broker_unreachable",
                worker=self.name,
                broker=self._broker,
                error=self.error,
                attempt=state.attempt_number,
                action="tried again every few seconds (a refused login: within a minute); told again in a minute, or if the reason is another one",
            )

        def connect_unless_stopping() -> bool:
            if self.stopping.is_set():
                return False
            connect()
            return True

        retrying = Retrying(
            retry=retry_if_exception_type(NotConnected),
            wait=Waits(),
            stop=stop_when_event_set(self.stopping),
            sleep=sleep_using_event(self.stopping),
            before_sleep=tell,
            retry_error_callback=lambda _: False,
        )
        self._metrics.connected(self._broker, False, self.name)  # also before the first time: an alert can only see what is there
        self._rest()
        self.connected = bool(retrying(connect_unless_stopping))
        self._connected_at = time.monotonic()
        self._metrics.connected(self._broker, self.connected, self.name)
        if self.connected:
            self.error = ""
            if not self._unsaid:
                log.info("connected", worker=self.name, broker=self._broker)
        return self.connected

    def _rest(self) -> None:
        """Wait before connecting again where connections do not last, whatever ends them."""
        lasted = time.monotonic() - self._connected_at
        self._short_lived = self._short_lived + 1 if lasted < LASTING else 0
        if self._short_lived > 1:
            self.stopping.wait(self.backoff.seconds(self._short_lived))

    def _serve(self, connect: Callable[[], None], serve: Callable[[], None], close: Callable[[], None]) -> None:
        """Connect and serve, again and again, until stopped. What interrupts it was not acknowledged: connecting brings it again."""
        try:
            while self._connect(connect):
                try:
                    serve()
                except NotConnected as error:
                    self._lost(error)
                except StoreFull as error:
                    log.error("store_full", worker=self.name, error=str(error))  # noqa: TRY400 - a full disk needs no traceback
                close()
                if self.stopping.is_set():
                    break
        finally:
            close()
            self.connected = False

    def _lost(self, error: NotConnected) -> None:
        self.connected = False
        self.error = str(error)
        self._metrics.connected(self._broker, False, self.name)
        if not self.stopping.is_set():
            self._metrics.reconnect(self._broker)
            self._tell_of_loss(str(error))

    def _tell_of_loss(self, error: str) -> None:
        """Unless connections do not last, and the reason was told less than a minute ago: as where the group refuses each one that the broker lets in."""
        now = time.monotonic()
        if now - self._connected_at >= LASTING:
            self._losses.over()
        self._unsaid = not self._losses.untold(error, now)
        if not self._unsaid:
            log.warning("connection_lost", worker=self.name, broker=self._broker, error=error)


class SyncWorker(Worker):
    """Makes durable what lanes settled, so that no delivery waits for a disk. One fsync serves all that was settled before it."""

    def __init__(self, sync: Callable[[], None], failed: Failed) -> None:
        super().__init__("sync", failed)
        self._sync = sync
        self._asked = threading.Event()

    def ask(self) -> None:
        """Something was settled. Any thread."""
        self._asked.set()

    def stop(self) -> None:
        """Ask the thread to end after one more sync."""
        super().stop()
        self._asked.set()

    def run(self) -> None:
        """Sync whenever asked."""
        while not self.stopping.is_set():
            self._asked.wait()
            self.stopping.wait(SYNC_PACE)
            self._asked.clear()
            self._sync()
