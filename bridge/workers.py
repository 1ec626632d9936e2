"""The threads of the daemon: each drives one intake or one lane, connects it, and connects it again when the broker went away."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import structlog
from tenacity import RetryCallState, Retrying, retry_if_exception_type, sleep_using_event, stop_when_event_set, wait_random_exponential

from ..adapters.base import NotConnected, Outcome, Outgoing, Sink, blocked
from ..core.store import StoreFull
from .clock import into_millisecond
from .delivery.backoff import Backoff
from .delivery.holds import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .clock import Clock
    from .delivery.lane import Lane
    from .intake.intake import Intake
    from .metrics import Metrics

log = structlog.get_logger()

LONGEST_WAIT = 10.0
"""Seconds. The wall clock may be set while a thread waits for an instant of it: a longer wait is taken in pieces."""

LASTING = 10.0
"""Seconds. After two connections in a row that lasted less, the next one waits: a broker that takes connections and drops them is not stormed."""

RECEIVE_TIMEOUT = 0.5
"""Seconds that a receive waits for a first message before it looks whether the daemon is stopping."""

LOOK = 0.1
"""Seconds after which a thread that waits for another one looks whether the daemon is stopping."""

SMALL_BATCH, PACE = 100, 0.005
"""After a batch of fewer messages the intake waits for so many seconds: what comes meanwhile shares one durable write. A first message never waits."""

SYNC_PACE = 0.02
"""Seconds for which settled deliveries gather for one sync; often an intake's write has synced them by then."""

TURN = 20
"""Milliseconds, at most, that due messages wait for the previous answer of a sink that works in turns: they would wait there."""


class Worker(ABC):
    """A thread with a name that stops when asked, and reports what it dies of to `failed`."""

    def __init__(self, name: str, failed: Callable[[str, BaseException], None]) -> None:
        self.name = name
        self.stopping = threading.Event()
        self.connected = False
        self.error = ""
        """Why there is no connection, while there is none."""
        self.backoff = Backoff(first=0.2, cap=5.0)
        self._connected_at = float("-inf")
        self._short_lived = 0
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

    def _connect(self, connect: Callable[[], None], broker: str, metrics: Metrics) -> bool:
        """Connect, again and again, until it works (True) or the worker is stopping (False)."""

        def tell(state: RetryCallState) -> None:
            assert state.outcome is not None
            self.error = str(state.outcome.exception())
            log.warning("broker_unreachable", worker=self.name, broker=broker, error=self.error, attempt=state.attempt_number)

        def connect_unless_stopping() -> bool:
            if self.stopping.is_set():
                return False
            connect()
            return True

        retrying = Retrying(
            retry=retry_if_exception_type(NotConnected),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            stop=stop_when_event_set(self.stopping),
            sleep=sleep_using_event(self.stopping),
            before_sleep=tell,
            retry_error_callback=lambda _: False,
        )
        metrics.connected(broker, False, self.name)  # also before the first time: an alert can only see what is there
        self._rest()
        self.connected = bool(retrying(connect_unless_stopping))
        self._connected_at = time.monotonic()
        metrics.connected(broker, self.connected, self.name)
        if self.connected:
            self.error = ""
            log.info("connected", worker=self.name, broker=broker)
        return self.connected

    def _rest(self) -> None:
        """Wait before connecting again where connections do not last, whatever ends them."""
        lasted = time.monotonic() - self._connected_at
        self._short_lived = self._short_lived + 1 if lasted < LASTING else 0
        if self._short_lived > 1:
            self.stopping.wait(self.backoff.seconds(self._short_lived))

    def _serve(
        self, connect: Callable[[], None], serve: Callable[[], None], close: Callable[[], None], broker: str, metrics: Metrics
    ) -> None:
        """Connect and serve, again and again, until stopped. What interrupts it was not acknowledged: connecting brings it again."""
        try:
            while self._connect(connect, broker, metrics):
                try:
                    serve()
                except NotConnected as error:
                    self._lost(error, broker, metrics)
                except StoreFull as error:
                    log.error("store_full", worker=self.name, error=str(error))  # noqa: TRY400 - a full disk needs no traceback
                close()
                if self.stopping.is_set():
                    break
        finally:
            close()
            self.connected = False

    def _lost(self, error: NotConnected, broker: str, metrics: Metrics) -> None:
        self.connected = False
        self.error = str(error)
        metrics.connected(broker, False, self.name)
        if not self.stopping.is_set():
            metrics.reconnect(broker)
            log.warning("connection_lost", worker=self.name, broker=broker, error=str(error))


class IntakeWorker(Worker):
    """Drives one intake. `room` says whether the disk has room for more; without it the source is simply not read."""

    def __init__(
        self,
        intake: Intake,
        close: Callable[[], None],
        room: Callable[[], bool],
        metrics: Metrics,
        failed: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__(f"intake {intake.name}", failed)
        self.intake = intake
        self._close = close
        self._room = room
        self._metrics = metrics

    def run(self) -> None:
        """Receive until stopped."""
        self._serve(self.intake.connect, self._receive, self._close, self.intake.planner.route.source_broker, self._metrics)

    def _receive(self) -> None:
        while not self.stopping.is_set():
            if self._room():
                if 0 < self.intake.step(RECEIVE_TIMEOUT) < SMALL_BATCH:
                    self.stopping.wait(PACE)
            else:
                log.error("disk_low", worker=self.name, action="intake waits until there is room; delivery goes on")
                self._wait_for_room()

    def _wait_for_room(self) -> None:
        while not self.stopping.wait(1.0):
            if self._room():
                log.info("disk_has_room", worker=self.name)
                return


class SyncWorker(Worker):
    """Makes durable what lanes settled, so that no delivery waits for a disk. One fsync serves all that was settled before it."""

    def __init__(self, sync: Callable[[], None], failed: Callable[[str, BaseException], None]) -> None:
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


class LaneWorker(Worker):
    """Drives one lane and its sink: connected, it ticks; what came in late or early wakes it. At its end it drains for up to `drain_for` seconds.

    A sink that takes messages `in_turns` begins with the next ones when it has answered those before: what falls due meanwhile goes to it together, then.
    """

    def __init__(
        self,
        lane: Lane,
        sink: Sink,
        clock: Clock,
        metrics: Metrics,
        failed: Callable[[str, BaseException], None],
        drain_for: float,
        *,
        in_turns: bool = False,
    ) -> None:
        super().__init__(f"lane {lane.name}", failed)
        self.lane = lane
        self._sink = sink
        self._clock = clock
        self._metrics = metrics
        self.drain_for = drain_for
        self._in_turns = in_turns
        self._wake = threading.Event()
        self._until = NEVER
        self._its_turn = True
        self._asked = float("-inf")

    @property
    def blocked(self) -> str:
        """See base.blocked."""
        return blocked(self._sink)

    def stop(self) -> None:
        """Ask the thread to end after what is in flight has been answered."""
        super().stop()
        self._wake.set()

    def wake(self, due: int) -> None:
        """Something is due at that time: do not sleep past it. Any thread, after the store has it."""
        if self._its_turn and due < self._until:
            self._wake.set()

    def poke(self) -> None:
        """Tick now. Any thread."""
        self._wake.set()

    def confirm(self, outcomes: Sequence[Outcome]) -> None:
        """The sink's `Confirm`. Any thread."""
        self.lane.confirm(outcomes)
        if not self._its_turn or self._clock() + self.lane.settings.settle_after < self._until:
            self._wake.set()

    def run(self) -> None:
        """Tick until stopped, then drain."""
        try:
            while self._connect(lambda: self._sink.connect(self.confirm), self.lane.name, self._metrics):
                self.lane.connected(self._clock())
                try:
                    self._tick()
                    self._drain()
                except NotConnected as error:
                    self._lost(error, self.lane.name, self._metrics)
                    self._sink.close()
                    self.lane.drain(self._clock())  # what was confirmed is settled, and the rest can be cancelled, while nobody answers
                if self.stopping.is_set():
                    break
        finally:
            self._sink.close()
            self.connected = False
            self.lane.drain(self._clock())

    def _tick(self) -> None:
        while not self.stopping.is_set():
            self._wake.clear()
            self._until, self._its_turn = NEVER, True  # until the tick has looked at the store, everything new must wake it
            began, now = time.monotonic() - into_millisecond(), self._clock()
            wait = self.lane.tick(now, self._publish)
            if self._in_turns and self.lane.in_flight:
                wait, self._its_turn = TURN, False
            if wait > 0:
                self._until = now + wait
                self._wake.wait(min(max(0.0, wait / 1000 - (time.monotonic() - began)), LONGEST_WAIT))  # the tick itself took some of it
            if time.monotonic() - self._asked >= LONGEST_WAIT:
                self._publish(())  # raises where the connection died while there was nothing to do, or nothing that could go out

    def _publish(self, messages: Sequence[Outgoing]) -> None:
        self._asked = time.monotonic()
        self._sink.publish(messages)

    def _drain(self) -> None:
        """Wait, for a while, for the answers to what is in flight. Raises NotConnected where none will come."""
        deadline = time.monotonic() + self.drain_for
        while not self.lane.drain(self._clock()) and (left := deadline - time.monotonic()) > 0:
            self._wake.clear()
            if not self._wake.wait(min(left, LOOK)):
                self._sink.publish(())
