"""The passage through one level: takes what leaves its queue, and passes it on to the next level, or to memory for the last instants.

Nothing is acknowledged before it is confirmed at its next place: whoever dies, the broker gives the message to another bridge.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from .countdown import Countdown
from .envelope import Envelope, unpack

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...adapters.base import Batch, Level, Received, Source
    from ...core.message import Message
    from ..clock import Clock

WINDOW = 4_000
"""Messages of one level that a bridge has taken and not passed on: a level whose messages go nowhere takes no more, and harms no other."""

AT_ONCE = 200
PATIENCE, HURRY = 0.5, 0.02
"""Seconds to wait for a first message: while nothing is to be acknowledged, and while something may be soon."""


class Taken:
    """What came over one connection and is not acknowledged. `lost` when that is gone: then the broker gives it again."""

    def __init__(self) -> None:
        self.staying: list[Stay] = []
        self.passed_on: deque[Batched] = deque()
        self.unfinished = 0
        self.lost = False


class Batched(Countdown):
    """Messages that came together are acknowledged together, once each is passed on."""

    def __init__(self, batch: Batch, passed_on: Callable[[Batched], None]) -> None:
        super().__init__(len(batch.messages), lambda: passed_on(self))
        self.ack = batch.ack
        self.size = len(batch.messages)

    @property
    def begun(self) -> bool:
        """Whether some of them are passed on."""
        return self.left < self.size


class Finish:
    """Called once a message is confirmed at its next place, on any thread. `token` names it at its source."""

    __slots__ = ("_batch", "token")

    def __init__(self, batch: Batched, token: bytes) -> None:
        self._batch = batch
        self.token = token

    def __call__(self) -> None:
        """It need not come again."""
        self._batch.one()


class Stay:
    """One message on its way through a level, and when it may leave. Without an envelope no bridge has put it there."""

    __slots__ = ("batch", "done", "envelope", "leaves", "message", "place")

    def __init__(self, received: Received, envelope: Envelope | None, leaves: int, number: int, batch: Batched) -> None:
        self.message = received.message
        self.done = Finish(batch, received.token)
        self.envelope = envelope
        self.leaves = leaves
        self.place = (leaves, number)
        self.batch = batch

    def __lt__(self, other: Stay) -> bool:
        return self.place < other.place


class Onward(Protocol):
    """Where messages go from a level. `taken` is the connection that one came over; `done` is called once it is confirmed elsewhere, on any thread."""

    def leave(self, envelope: Envelope, taken: Taken, now: int, done: Finish) -> None:
        """To its next level, or to memory."""
        ...

    def aside(self, message: Message, taken: Taken, done: Finish) -> None:
        """To the dead letters: no bridge has put this into the queue."""
        ...

    def put_again(self, envelope: Envelope, taken: Taken, now: int, done: Finish) -> None:
        """Back into the level queues, at the end of the last."""
        ...

    def empty(self, taken: Taken, now: int) -> None:
        """Put what is in memory of this connection back into the level queues, and call what `leave` was given."""
        ...

    def lost(self, taken: Taken) -> None:
        """The broker gives again what came over this connection and is not acknowledged."""
        ...


class Passage:
    """One level. `connect`, `step` and `close` are called by one thread; `timed` says that its source gives only what may leave."""

    def __init__(self, level: Level, source: Source, onward: Onward, clock: Clock, *, timed: bool) -> None:
        self.level = level
        self._source = source
        self._onward = onward
        self._clock = clock
        self._timed = timed
        self._numbers = itertools.count()
        self._taken = Taken()

    @property
    def first_leaves(self) -> int | None:
        """When the first of what this bridge has taken leaves the level (epoch ms)."""
        staying = self._taken.staying
        return staying[0].leaves if staying else None

    @property
    def staying(self) -> int:
        """How many messages this bridge has taken that do not leave yet."""
        return len(self._taken.staying)

    def connect(self) -> None:
        """Raises NotConnected."""
        self._taken = Taken()
        self._source.connect()

    def close(self) -> None:
        """Acknowledge what is passed on; the rest goes back to the broker. Idempotent."""
        self._acknowledge()
        self._source.close()
        self._taken.lost = True
        self._onward.lost(self._taken)

    def hand_back(self, patience: float) -> None:
        """Before an orderly end: what shares a batch with something delivered is published again, so that the batch can be acknowledged.

        Else that would be delivered twice. Waits up to `patience` seconds for the publisher.
        """
        taken, deadline = self._taken, time.monotonic() + patience
        now = self._clock()
        self._onward.empty(taken, now)
        begun = [stay for stay in taken.staying if stay.batch.begun and stay.envelope]
        taken.staying = [stay for stay in taken.staying if not (stay.batch.begun and stay.envelope)]
        heapq.heapify(taken.staying)
        for stay in begun:
            assert stay.envelope is not None
            self._onward.put_again(stay.envelope, taken, now, stay.done)
        self._acknowledge()
        while taken.unfinished > len(taken.staying) and time.monotonic() < deadline:
            time.sleep(HURRY)
            self._acknowledge()

    def step(self, patience: float = PATIENCE) -> bool:
        """Pass on what may leave, and take what comes within the next moments, `patience` seconds at most; False where the window is full.

        Raises NotConnected.
        """
        self._acknowledge()
        self._release(self._clock())
        room = WINDOW - self._taken.unfinished
        if room > 0:
            self._take(min(AT_ONCE, room), min(patience, self._wait(self._clock())))
        return room > 0

    def _wait(self, now: int) -> float:
        """Seconds until there is something to do, whatever comes in."""
        taken = self._taken
        patience = HURRY if taken.unfinished > len(taken.staying) else PATIENCE
        return min(patience, max(0, taken.staying[0].leaves - now) / 1000) if taken.staying else patience

    def _take(self, limit: int, wait: float) -> None:
        taken = self._taken
        batch = self._source.receive(limit, wait)
        if batch is None:
            return
        batched = Batched(batch, taken.passed_on.append)
        taken.unfinished += batched.size
        now = self._clock()
        for received in batch.messages:
            heapq.heappush(taken.staying, self._stay(received, batched, now))

    def _stay(self, received: Received, batched: Batched, now: int) -> Stay:
        try:
            envelope = unpack(received.message)
        except ValueError:
            return Stay(received, None, now, next(self._numbers), batched)
        leaves = now if self._timed else envelope.since + self.level.wait
        return Stay(received, envelope, leaves, next(self._numbers), batched)

    def _release(self, now: int) -> None:
        taken = self._taken
        while taken.staying and taken.staying[0].leaves <= now:
            stay = heapq.heappop(taken.staying)
            if stay.envelope is None:
                self._onward.aside(stay.message, taken, stay.done)
            else:
                self._onward.leave(stay.envelope, taken, now, stay.done)

    def _acknowledge(self) -> None:
        taken = self._taken
        while taken.passed_on:
            batched = taken.passed_on.popleft()
            taken.unfinished -= batched.size
            batched.ack()
