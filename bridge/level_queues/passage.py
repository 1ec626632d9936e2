"""The passage through one level: takes what leaves its queue, and passes it on to the next level, or to memory for the last instants.

Nothing is acknowledged before it is confirmed at its next place: if a bridge dies, the broker gives its messages to another one.

What becomes of one message, and which object has it (a `Taken` is of one connection, a `Batched` of one batch, a `Stay` and a `Finish` of one message):

    its source gives it
        |
    stays              Stay, in `Taken.staying`
        |   the time to leave has come: `Onward.leave`, which is given its Finish
    is on its way      to its next level, or in memory until it is delivered
        |   it is confirmed at its next place: the Finish is called, on any thread
    is passed on       the Batched counts it, and is in `Taken.begun`, or, with the last message of its batch, in `Taken.passed_on`
        |   soon, with its batch; or by itself after a moment
    is acknowledged    at its source, by the passage's own thread
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from ...adapters.base import Sharing
from ...adapters.levelled import Foreseeing
from .envelope import Envelope, unpack
from .lately import PASSED_ON, Lately

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...adapters.base import Batch, Source
    from ...adapters.clock import Clock
    from ...adapters.levelled import Level
    from ...core.message import Message

WINDOW = 4_000
"""Messages of one level that a bridge has taken and not passed on: a level whose messages go nowhere takes no more, and harms no other."""

AT_ONCE = 200
PATIENCE, HURRY = 0.5, 0.02
"""Seconds to wait for a first message: while nothing is to be acknowledged, and while something may be soon."""


MOMENT, PINNED = 1_000, 500
"""For how long (ms) a message that is passed on waits for the rest of its batch before it is acknowledged by itself; and how many may wait so."""


class Taken:
    """What came over one connection and is not acknowledged yet.

    staying      messages that do not leave yet, in a heap
    begun        batches of which some messages are passed on, and not acknowledged
    passed_on    batches of which all are
    unfinished   how many messages are not acknowledged
    lost         the connection is gone, and the broker gives all of it again
    """

    def __init__(self) -> None:
        self.staying: list[Stay] = []
        self.begun: deque[Batched] = deque()
        self.passed_on: deque[Batched] = deque()
        self.unfinished = 0
        self.lost = False


class Batched:
    """Messages that came together. They are acknowledged together if each is passed on within moments; else one by one.

    `left`: how many are not passed on. `since`: when the first of those was passed on that could be acknowledged now.
    """

    def __init__(self, batch: Batch, taken: Taken, clock: Clock) -> None:
        if batch.ack_some is None:
            raise TypeError("the source of a level must acknowledge single messages, too: see adapters.base.Batch")
        self.left = len(batch.messages)
        self.since = 0
        self._batch = batch
        self._ack_some = batch.ack_some
        self._taken = taken
        self._clock = clock
        self._passed_on: list[int] = []
        self._lock = threading.Lock()

    def one(self, place: int) -> None:
        """The message at this place is passed on. Any thread."""
        with self._lock:
            self.left -= 1
            self._passed_on.append(place)
            first, last = len(self._passed_on) == 1, not self.left
        if last:
            self._taken.passed_on.append(self)
        elif first:
            self.since = self._clock()
            self._taken.begun.append(self)

    def lost(self, place: int) -> bool:
        """Whether the broker gives the one at this place again, to this bridge or to another. Any thread."""
        return self._taken.lost or (self._batch.elsewhere is not None and self._batch.elsewhere(place))

    @property
    def pinned(self) -> int:
        """How many are passed on and wait for the others."""
        return len(self._passed_on)

    def part(self) -> Sequence[bytes]:
        """Acknowledge those that are passed on, unless all are: then `whole` does it. Returns their tokens."""
        with self._lock:
            if not self.left:
                return ()
            places, self._passed_on = self._passed_on, []
        self._ack_some(places)
        return self._tokens(places)

    def whole(self) -> Sequence[bytes]:
        """All are passed on: acknowledge those that are not yet. Returns their tokens."""
        self._batch.ack()
        return self._tokens(self._passed_on)

    def _tokens(self, places: Sequence[int]) -> Sequence[bytes]:
        messages = self._batch.messages
        return [messages[place].token for place in places]


class Finish:
    """Called once a message is confirmed at its next place, on any thread. `token` names it at its source.

    `again`: its broker may have given it before. `order` is that of its envelope, where somebody asks for it.
    """

    __slots__ = ("__weakref__", "_batch", "_called", "_place", "again", "order", "token")

    def __init__(self, batch: Batched, place: int, token: bytes, *, again: bool = False) -> None:
        self._batch = batch
        self._place = place
        self._called = False
        self.again = again
        self.order = 0
        self.token = token

    def __call__(self) -> None:
        """The message need not come again."""
        self._called = True
        self._batch.one(self._place)

    @property
    def open(self) -> bool:
        """Whether its message is still on its way here, and nobody else has it."""
        return not (self._called or self._batch.lost(self._place))


class Stay:
    """One message on its way through a level, and when it leaves. Without an envelope it was not put there by a bridge."""

    __slots__ = ("done", "envelope", "leaves", "message", "place")

    def __init__(self, message: Message, envelope: Envelope | None, leaves: int, number: int, done: Finish) -> None:
        self.message = message
        self.done = done
        self.envelope = envelope
        self.leaves = leaves
        self.place = (leaves, number)

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

    def empty(self, taken: Taken) -> int:
        """Drop what is in memory of this connection. Returns how many of these the broker gives again to whoever comes next."""
        ...

    def moved(self, taken: Taken) -> None:
        """Another bridge may have some of what came over this connection: let go of that, see `Finish.open`."""
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
        self._sharing = source if isinstance(source, Sharing) else None
        self._foreseeing = source if isinstance(source, Foreseeing) else None
        self._lately: Lately[bytes] = Lately(PASSED_ON)
        self._handed_over = 0
        self._numbers = itertools.count()
        self._taken = Taken()

    @property
    def first_leaves(self) -> int | None:
        """When the first message leaves the level of those that this bridge has taken, or sees there (epoch ms). Any thread."""
        taken = [stay.leaves for stay in self._taken.staying[:1]]  # no two looks: the level's own thread may take it out in between
        seen = self._foreseeing.first_leaves if self._foreseeing is not None else None
        return min(taken if seen is None else [*taken, seen], default=None)

    @property
    def staying(self) -> int:
        """How many messages this bridge has taken that do not leave yet."""
        return len(self._taken.staying)

    def connect(self) -> None:
        """Raises NotConnected."""
        self._taken = Taken()
        self._handed_over = 0
        self._source.connect()

    def close(self) -> None:
        """Acknowledge what is passed on; the rest goes back to the broker. Idempotent."""
        self._acknowledge(at_once=True)
        self._source.close()
        self._taken.lost = True
        self._onward.lost(self._taken)

    def hand_back(self, patience: float) -> None:
        """Before an orderly end: drop what is in memory, which the broker gives again, and wait until what is on its way to its next place is confirmed there.

        It waits up to `patience` seconds: what is not confirmed by then comes twice.
        """
        taken, deadline = self._taken, time.monotonic() + patience
        back = self._onward.empty(taken)
        self._acknowledge(at_once=True)
        while taken.unfinished > len(taken.staying) + back and time.monotonic() < deadline:
            time.sleep(HURRY)  # confirms come on the publisher's thread, and this one acknowledges; only at an orderly end
            self._acknowledge(at_once=True)

    def step(self, patience: float = PATIENCE) -> bool:
        """Pass on what may leave, and take what comes within the next moments, `patience` seconds at most; False where the window is full.

        Raises NotConnected.
        """
        self._let_go()
        self._acknowledge()
        self._release(self._clock())
        room = WINDOW - self._taken.unfinished
        if room > 0:
            self._take(min(AT_ONCE, room), min(patience, self._wait(self._clock())))
        else:
            self._source.receive(0, 0)  # where the connection is gone, what is held here comes again
        return room > 0

    def _let_go(self) -> None:
        """Let go of what another bridge has now.

        Else what is held back for a destination would fill the window with copies, each time that a partition goes and comes back.
        """
        if self._sharing is not None and (count := self._sharing.handed_over) != self._handed_over:
            self._handed_over = count
            self._onward.moved(self._taken)

    def _wait(self, now: int) -> float:
        """Seconds until there is something to do, whatever comes in."""
        taken = self._taken
        patience = HURRY if taken.unfinished > len(taken.staying) else PATIENCE
        return min(patience, max(0, taken.staying[0].leaves - self.level.early // 2 - now) / 1000) if taken.staying else patience

    def _take(self, limit: int, wait: float) -> None:
        taken = self._taken
        batch = self._source.receive(limit, wait)
        if batch is None:
            return
        batched = Batched(batch, taken, self._clock)
        taken.unfinished += len(batch.messages)
        now = self._clock()
        for place, received in enumerate(batch.messages):
            done = Finish(batched, place, received.token, again=received.redelivered)
            stay = self._stay(received.message, done, now)
            if received.redelivered and stay.envelope is not None and received.token in self._lately:
                done()
            else:
                heapq.heappush(taken.staying, stay)

    def _stay(self, message: Message, done: Finish, now: int) -> Stay:
        try:
            envelope = unpack(message)
        except ValueError:
            return Stay(message, None, now, next(self._numbers), done)
        leaves = now if self._timed else envelope.since + self.level.wait
        return Stay(message, envelope, leaves, next(self._numbers), done)

    def _release(self, now: int) -> None:
        taken = self._taken
        while taken.staying and (self._timed or taken.staying[0].leaves <= now + self.level.early):  # the clock may be set back in between
            stay = heapq.heappop(taken.staying)
            if not stay.done.open:
                stay.done()
            elif stay.envelope is None:
                self._onward.aside(stay.message, taken, stay.done)
            else:
                self._onward.leave(stay.envelope, taken, self._left(stay.envelope, now), stay.done)

    def _left(self, envelope: Envelope, now: int) -> int:
        """The time at which it leaves by its level: what leaves early is to go the same way."""
        return max(now, min(envelope.since + self.level.wait, now + self.level.early))

    def _acknowledge(self, *, at_once: bool = False) -> None:
        taken = self._taken
        while taken.passed_on:
            self._acknowledged(taken.passed_on.popleft().whole())
        if taken.begun:
            self._part(at_once=at_once)

    def _part(self, *, at_once: bool) -> None:
        """Acknowledge what has waited for the rest of its batch for too long; all that waits so, where that is too much, or `at_once`."""
        taken, now = self._taken, self._clock()
        begun = [batched for _ in range(len(taken.begun)) if (batched := taken.begun.popleft()).left]
        parting = at_once or sum(batched.pinned for batched in begun) >= PINNED
        for batched in begun:
            if parting or not 0 <= now - batched.since < MOMENT:
                self._acknowledged(batched.part())
            else:
                taken.begun.append(batched)

    def _acknowledged(self, tokens: Sequence[bytes]) -> None:
        """What another bridge may have, or has come to its end only after its connection, was perhaps just let go of: that is not remembered."""
        self._taken.unfinished -= len(tokens)
        if self._sharing is None and not self._taken.lost:
            self._lately.add(tokens)
