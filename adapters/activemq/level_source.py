"""What leaves a level queue on ActiveMQ, the earliest first, once it has waited for as long as its level says.

ActiveMQ gives a consumer what its prefetch allows, at once. A consumer whose window is full of messages that leave in hours would not see those that a
bridge that died gives back, which leave earlier; and it would hold them all in memory. So a window is small while nothing leaves soon, and is given
back every `LOOK` seconds, to look at the head of the queue again. When all that is in sight leaves soon, a second, large window is opened beside it.

Each message is acknowledged by itself: one that waits for its destination keeps its own place in the window, and no other's.

ActiveMQ keeps in memory what it has given over a connection, until that is acknowledged, or the connection ends: also what was given back, whoever has
it then. So once that is much, a new connection is made.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from ..base import Batch, NotConnected
from ..clock import wall_clock
from ..levelled import SINCE
from .frames import frame
from .incoming import Rules, received
from .listener import Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ..base import Received
    from ..levelled import Level
    from .frames import Frame
    from .transport import Target, Times

SMALL = 20
"""Messages of the window that looks at the head of the queue."""

LOOK = 2.0
"""Seconds after which a full window of messages that stay is given back: by so much may a message be late that a dead bridge had taken."""

SOON = 5_000
"""Milliseconds. When all in sight leave within them, the large window is opened."""

APART = 1_000
"""Milliseconds by which bridges' clocks may differ."""

KEPT = 8 << 20
"""Bytes of messages given back, by which ActiveMQ's memory may grow for each connection."""

_ENTRY = 400  # bytes that ActiveMQ keeps for one, beside its body
_MARGIN = 500  # milliseconds: a window is not given back just before its first message leaves
_BATCH_BYTES = 16 << 20
_RULES = Rules(carry_empty=True)
_NEVER = math.inf


class _Window:
    """One subscription: `here` messages of it are unacknowledged, and `given` of these were given to the bridge. `last`: when its last message leaves.

    `enough`: with so many here, the broker may send nothing more.
    """

    def __init__(self, id_: bytes, size: int, enough: int) -> None:
        self.id = id_
        self.size = size
        self.enough = enough
        self.here = 0
        self.given = 0
        self.last = 0
        self.moved = time.monotonic()

    @property
    def full(self) -> bool:
        """Whether the broker sends nothing more, as far as that can be known."""
        return self.here >= self.enough

    def leaves_soon(self, now: int) -> bool:
        """Whether all that is in it does."""
        return self.last <= now + SOON


class _Stay(NamedTuple):
    """A message, ordered by when it leaves."""

    leaves: int
    number: int
    frame: Frame
    window: _Window


class _Session(Listener):
    """What comes over one connection."""

    def arrived(self) -> list[Frame]:
        """What has arrived since the last call. Raises NotConnected."""
        self.changed.clear()
        self.check()
        return [self.inbox.popleft() for _ in range(len(self.inbox))]

    def wait(self, seconds: float) -> None:
        """Until something happens, at most so long."""
        self.changed.wait(seconds)


class LevelSource:
    """Consumes one level queue. Holds at most `prefetch` messages, and `SMALL` while none of them leaves soon. See base.Source."""

    def __init__(self, targets: Callable[[], Sequence[Target]], destination: str, level: Level, *, prefetch: int, times: Times) -> None:
        self._targets = targets
        self._destination = destination
        self._level = level
        self._prefetch = prefetch
        self._times = times
        self._session: _Session | None = None
        self._windows: dict[bytes, _Window] = {}
        self._staying: list[_Stay] = []
        self._numbers = itertools.count()
        self._now = 0
        self._kept = 0  # bytes that ActiveMQ keeps of what was given back

    def connect(self) -> None:
        """See base.Source. ActiveMQ makes a missing queue."""
        self.close()
        session = _Session(self._targets(), self._times, f"activemq level {self._level.name}")
        session.link.start()
        self._session = session
        self._kept = 0
        self._open(min(SMALL, self._prefetch))

    def receive(self, limit: int, timeout: float) -> Batch | None:
        """See base.Source: what may leave now."""
        if self._kept >= KEPT and self._session is not None and not any(window.given for window in self._windows.values()):
            self.connect()
        session = self._session
        if session is None:
            raise NotConnected("the source is closed")
        deadline = time.monotonic() + timeout
        while True:
            now = wall_clock()
            self._keep_time(now)
            self._take_in(session.arrived(), now)
            self._look(now)
            batch = self._leaving(limit, wall_clock())
            left = deadline - time.monotonic()
            if batch or left <= 0:
                return self._batch(session, batch) if batch else None
            session.wait(min(left, max(0.0005, self._first() / 1000 - time.time())))

    @property
    def first_leaves(self) -> int | None:
        """See levelled.Foreseeing. The head of the queue is in sight, except while it is looked at anew."""
        return min((stay.leaves for stay in list(self._staying)), default=None)

    def _keep_time(self, now: int) -> None:
        """If the clock was set back, sort anew what has come."""
        if now < self._now:
            for window in self._windows.values():
                window.last = min(window.last, now + self._level.wait)
            staying = [stay._replace(leaves=self._leaves(stay.frame, now)) for stay in self._staying]
            heapq.heapify(staying)
            self._staying = staying
        self._now = now

    def _leaves(self, each: Frame, now: int) -> int:
        """When a message leaves. One that was put here in time to come leaves at once: the clock was set back since, and it would keep others waiting."""
        since = _since(each)
        return since + self._level.wait if since <= now + APART else now

    def _take_in(self, frames: Sequence[Frame], now: int) -> None:
        """Sort what has come by its window. What comes for a window that was given back meanwhile, ActiveMQ gives to another."""
        for each in frames:
            window = self._windows.get(each.headers.get(b"subscription", b""))
            if window is not None:
                leaves = self._leaves(each, now)
                heapq.heappush(self._staying, _Stay(leaves, next(self._numbers), each, window))
                window.here += 1
                window.last = max(window.last, leaves)
                window.moved = time.monotonic()

    def _first(self) -> float:
        """When the first message leaves."""
        return self._staying[0].leaves if self._staying else _NEVER

    def _leaving(self, limit: int, now: int) -> list[_Stay]:
        taken: list[_Stay] = []
        size = 0
        while len(taken) < limit and size < _BATCH_BYTES and self._first() <= now:
            stay = heapq.heappop(self._staying)
            stay.window.given += 1
            size += len(stay.frame.body)
            taken.append(stay)
        return taken

    def _batch(self, session: _Session, stays: Sequence[_Stay]) -> Batch:
        left = dict(enumerate(stays))
        return Batch(
            [_received(stay.frame) for stay in stays],
            lambda: self._ack(session, left.values()),
            lambda places: self._ack(session, [left.pop(place) for place in places]),
        )

    def _ack(self, session: _Session, stays: Collection[_Stay]) -> None:
        with contextlib.suppress(NotConnected):  # the next `receive` says so
            session.link.write(b"".join(b"ACK\nid:%b\n\n\0" % stay.frame.headers[b"ack"] for stay in stays))  # still escaped, as it came
        # Only now: what is given to nobody may be given back, and its connection left.
        for window, count in Counter(stay.window for stay in stays).items():
            window.here -= count
            window.given -= count
            window.moved = time.monotonic()

    def _look(self, now: int) -> None:
        """Give back windows that show nothing that leaves soon, and open one where those that there are show nothing new."""
        for window in [window for window in self._windows.values() if self._blind(window, now)]:
            self._give_back(window)
        windows = self._windows.values()
        room = self._prefetch - sum(window.size for window in windows)
        if room > 0 and all(window.full and (window.given or window.leaves_soon(now)) for window in windows):
            soon = any(window.leaves_soon(now) for window in windows)
            self._open(room if soon else min(SMALL, room))

    def _blind(self, window: _Window, now: int) -> bool:
        """Whether a window is of no use: it has not moved for long, and is either full of messages that stay, or one more than is needed."""
        if window.given or time.monotonic() - window.moved < LOOK or self._first() <= now + _MARGIN:
            return False
        return not window.leaves_soon(now) if window.full else len(self._windows) > 1

    def _open(self, size: int) -> None:
        assert self._session is not None
        link = self._session.link
        window = _Window(b"%b-%d" % (link.mark.encode(), next(self._numbers)), size, 1 if link.artemis else size)
        self._windows[window.id] = window
        self._session.ask_for(window.id, self._destination, b"client-individual", size)

    def _give_back(self, window: _Window) -> None:
        """ActiveMQ puts what was not acknowledged back to the head of the queue, in its order."""
        assert self._session is not None
        del self._windows[window.id]
        # They would gather until they leave, window after window. The heap is whole before another thread sees it.
        staying = [stay for stay in self._staying if stay.window is not window]
        self._kept += sum(_ENTRY + len(stay.frame.body) for stay in self._staying if stay.window is window)
        heapq.heapify(staying)
        self._staying = staying
        self._session.link.write(frame(b"UNSUBSCRIBE", (b"id", window.id)))

    def close(self) -> None:
        """See base.Source."""
        if self._session is not None:
            self._session.link.close(*self._windows)
            self._session = None
        self._windows.clear()
        self._staying.clear()


def _received(each: Frame) -> Received:
    """Unlike a source, a level is believed where it says that it gives a message for the first time: what was lost on its way is known by its connection."""
    return replace(received(each, _RULES), redelivered=each.headers.get(b"redelivered") == b"true")


def _since(each: Frame) -> int:
    """Since when a message waits; one that does not say so was not put here by a bridge, and leaves at once."""
    value = each.headers.get(SINCE, b"")
    return int(value) if value.isdigit() and len(value) < 16 else 0
