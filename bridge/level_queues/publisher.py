"""Publishes all that goes into the level queues: one thread, one sink, and an answer for each message."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, cast

import structlog

from ...adapters.base import AdapterError, BackOff, NotConnected, Outcome, Outgoing, Rejected, Sink, blocked
from ...adapters.moves import Gone, Mover
from ...core.reasons import Reason
from ..delivery.backoff import Backoff
from ..workers import ClientWorker, Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..metrics import Metrics
    from .places import Addressed

log = structlog.get_logger()

WINDOW = 4_000
"""Messages that are published and not confirmed, at most."""

AT_ONCE = 500
IDLE = 10.0
"""Seconds without traffic after which it is asked whether the connection is there."""

LOSSES = 3
"""Connections in a row that may be lost with a queue's messages, as while its broker starts again, before that counts as a refusal."""

ALONE = 2.0
"""Seconds for which others wait, at most, while a message that the broker rejected is tried again without them."""


class Item:
    """One message for a level queue. It is tried again, with growing waits, while it is `wanted`.

    It keeps its place before later ones for its queue; if the broker rejected this very message, it is tried by itself. (A subclass may hold several, or none.)
    `landed` is called once it is confirmed, on any thread, and must not block; `gone` instead, if another bridge has it.
    """

    __slots__ = ("landed", "messages", "number", "wanted")

    def __init__(self, messages: Sequence[Addressed], landed: Callable[[], None], wanted: Callable[[], bool]) -> None:
        self.messages = messages
        self.landed = landed
        self.wanted = wanted
        self.number = 0

    def gone(self) -> None:
        """What it was made of belongs to another bridge."""
        self.landed()

    @property
    def address(self) -> str:
        """Behind which queue it waits."""
        return self.messages[0][0] if self.messages else ""

    @property
    def tag(self) -> bytes:
        """Its number, by which its outcome comes back."""
        return self.number.to_bytes(8, "big")

    def __lt__(self, other: Item) -> bool:
        return self.number < other.number


class _Refusal:
    """What waits because a queue did not take a message, or because no queue takes it: the messages, when they are tried again, and why."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.attempts = 0
        self.error = ""
        self.retry_at = 0.0
        self.told = False


class Publisher(ClientWorker):
    """Publishes in the order of `submit`.

    `prepare` is called before each connection, and raises NotConnected where there can be none; and again where a queue is missing, which it makes. `anew`
    gives the place of a message that could not be published in time, `enclosed` another form of one that the broker rejected, where there is one.
    """

    NAME = "level publisher"

    def __init__(
        self,
        broker: str,
        sink: Sink | Mover,
        metrics: Metrics,
        failed: Failed,
        prepare: Callable[[], None] = lambda: None,
        anew: Callable[[Addressed], Addressed] = lambda place: place,
        enclosed: Callable[[Addressed], Addressed] = lambda place: place,
    ) -> None:
        super().__init__(self.NAME, broker, metrics, failed)
        self._prepare = prepare
        self._anew = anew
        self._enclosed = enclosed
        self._sink = sink
        self._retry = Backoff(first=0.1, cap=60.0)
        self._changed = threading.Condition()
        self._items: deque[Item] = deque()
        self._open: dict[bytes, Item] = {}
        self._refusals: dict[str, _Refusal] = {}
        self._rejections: dict[bytes, _Refusal] = {}
        self._missing = False
        self._numbers = itertools.count(1)

    @property
    def blocked(self) -> str:
        """See base.blocked."""
        return blocked(self._sink)

    @property
    def refused(self) -> dict[str, str]:
        """Which queues refuse messages, and why. Any thread."""
        with self._changed:
            rejected = {item.address: each.error for each in self._rejections.values() for item in each.items if item.wanted()}
            if not self._refusals:
                return rejected
            waiting = {item.address for item in itertools.chain(self._items, self._open.values())}
            return rejected | {
                address: refusal.error
                for address, refusal in self._refusals.items()
                if refusal.error and (address in waiting or any(item.wanted() for item in refusal.items))
            }

    def submit(self, items: Sequence[Item]) -> None:
        """Hand over messages. Any thread; does not block."""
        with self._changed:
            for item in items:
                item.number = next(self._numbers)
            if self.connected:
                self._items.extend(items)
                self._changed.notify()
            else:
                self._keep(items)

    def seek_missing(self) -> None:
        """Somebody found a queue missing: it is made within IDLE. Any thread."""
        self._missing = True

    def stop(self) -> None:
        """Ask the thread to end; what is published already is still answered."""
        super().stop()
        with self._changed:
            self._changed.notify()

    def run(self) -> None:
        """Publish until stopped."""
        self._serve(self._connect_anew, self._publish_all, self._close)

    def _connect_anew(self) -> None:
        self._prepare()
        self._sink.connect(self._confirmed)
        with self._changed:
            for refusal in self._refused_anything():
                refusal.retry_at = 0.0

    def _refused_anything(self) -> Iterable[_Refusal]:
        return itertools.chain(self._refusals.values(), self._rejections.values())

    def _publish_all(self) -> None:
        while (batch := self._next()) is not None:
            self._make_missing()
            try:
                self._send(batch)
            except NotConnected as error:
                self._confirmed([(item.tag, error) for item in batch])
                raise

    def _make_missing(self) -> None:
        """Declare queues that were deleted while we run. A consumer may not notice that: on RabbitMQ it reads another queue than the one that is written."""
        if self._missing:
            self._missing = False
            with contextlib.suppress(NotConnected):  # then at the next try
                self._prepare()

    def _send(self, batch: Sequence[Item]) -> None:
        cast("Sink", self._sink).publish([Outgoing(item.tag, *item.messages[0]) for item in batch])

    def _next(self) -> list[Item] | None:
        """What is to be published now, empty where nothing was for long; None when stopping and nothing is left."""
        with self._changed:
            self._let_alone()
            idle = time.monotonic() + IDLE
            while not self._ready() and (left := min(idle - time.monotonic(), self._until_retry())) > 0:
                self._changed.wait(left)  # what is refused meanwhile is tried again sooner
            if self.stopping.is_set() and not self._items and not self._open:
                return None
            if (lone := self._lone()) is not None:
                return [lone]
            self._release()
            batch: list[Item] = []
            while self._items and len(batch) < AT_ONCE and len(self._open) < WINDOW:
                item = self._items.popleft()
                if not item.wanted():
                    continue
                refusal = self._refusals.get(item.address)
                if refusal is not None and refusal.retry_at > time.monotonic():
                    heapq.heappush(refusal.items, item)
                    continue
                self._open[item.tag] = item
                batch.append(item)
            return batch

    def _lone(self) -> Item | None:
        """A rejected message that is tried again now, while nothing else is under way.

        RabbitMQ answers such a message by closing the channel, and does not say which one it was: all that is under way beside it is then published twice.
        """
        now = time.monotonic()
        for tag in [tag for tag, rejection in self._rejections.items() if rejection.items and rejection.retry_at <= now]:
            rejection = self._rejections[tag]
            if not rejection.items[0].wanted():
                del self._rejections[tag]
            elif self._changed.wait_for(lambda: not self._open, ALONE):
                self._open[tag] = item = rejection.items.pop()
                item.messages = [self._anew(each) for each in item.messages]
                return item
            else:
                rejection.retry_at = time.monotonic() + self._retry.seconds(rejection.attempts)
        return None

    def _let_alone(self) -> None:
        """Wait for the answer to a message that is tried by itself, if one is."""
        if self._rejections:
            self._changed.wait_for(lambda: self._open.keys().isdisjoint(self._rejections), ALONE)

    def _ready(self) -> bool:
        return (bool(self._items) and len(self._open) < WINDOW) or (self.stopping.is_set() and not self._open)

    def _until_retry(self) -> float:
        times = [refusal.retry_at for refusal in self._refused_anything() if refusal.items]
        return max(0.0, min(times) - time.monotonic()) if times else IDLE

    def _release(self) -> None:
        """Put what a queue refused before all that came for it later, once it is to be tried again."""
        now = time.monotonic()
        for refusal in self._refusals.values():
            if refusal.items and refusal.retry_at <= now:
                waiting, refusal.items = sorted(refusal.items), []
                for item in waiting:
                    item.messages = [self._anew(place) for place in item.messages]
                self._items.extendleft(reversed(waiting))

    def _confirmed(self, outcomes: Sequence[Outcome]) -> None:
        """The sink's `Confirm`. What is Gone belongs to another bridge, and has landed there."""
        landed: list[Callable[[], None]] = []
        with self._changed:
            for tag, error in outcomes:
                item = self._open.pop(tag, None)
                if item is None:
                    continue
                if error is not None and not isinstance(error, Gone):
                    self._keep([item], error)
                    continue
                rejection = self._rejections.pop(tag, None)
                if error is None:
                    self._works(item.address, rejection)
                landed.append(item.landed if error is None else item.gone)
            self._changed.notify()
        for tell in landed:
            try:
                tell()
            except Exception as error:  # noqa: BLE001 - the sink's thread has no use for it, and the others are to be told
                self._failed(self.name, error)

    def _works(self, address: str, rejection: _Refusal | None) -> None:
        refusal = self._refusals.get(address)
        over = None if refusal is None or refusal.items else self._refusals.pop(address)
        if any(each.told for each in (over, rejection) if each is not None):
            log.info("level_takes_again", queue=address)

    def _keep(self, items: Sequence[Item], error: AdapterError | None = None) -> None:
        """For another try; with an error, after a wait."""
        now = time.monotonic()
        for item in items:
            changed = isinstance(error, Rejected) and self._encloses(item)
            refusal = self._refusal(item, error)
            heapq.heappush(refusal.items, item)
            if error is None or changed:
                continue
            refusal.error = str(error)
            self._missing |= isinstance(error, BackOff) and error.reason == Reason.UNROUTABLE
            if refusal.retry_at <= now:
                refusal.attempts += 1
                refusal.retry_at = now + self._retry.seconds(refusal.attempts)
                self._tell(refusal, item.address, error)

    def _encloses(self, item: Item) -> bool:
        """Give a message that is rejected for the first time its other form; whether it has one, in which it is tried at once."""
        if item.tag in self._rejections:
            return False
        before, item.messages = item.messages, [self._enclosed(each) for each in item.messages]
        return item.messages != before

    @staticmethod
    def _tell(refusal: _Refusal, queue: str, error: AdapterError) -> None:
        """Once. That a connection was lost with a message is told elsewhere, and is no refusal unless further tries end like that, again and again."""
        if not refusal.told and (refusal.attempts > LOSSES or not isinstance(error, NotConnected)):
            refusal.told = True
            log.warning("level_refuses", queue=queue, error=str(error), action="tried again with growing waits")

    def _refusal(self, item: Item, error: AdapterError | None) -> _Refusal:
        """That of its queue; but if the broker rejects this very message, one of its own, so that it blocks no others."""
        if isinstance(error, Rejected) or item.tag in self._rejections:
            return self._rejections.setdefault(item.tag, _Refusal())
        return self._refusals.setdefault(item.address, _Refusal())

    def _close(self) -> None:
        self._sink.close()
        with self._changed:
            self.connected = False
            self._keep(list(self._items))
            self._items.clear()
