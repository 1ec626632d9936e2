"""Messages from an ActiveMQ queue or topic, in batches."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from ..base import Batch, NotConnected
from ..clock import wall_clock
from .frames import frame
from .incoming import received
from .listener import Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from .frames import Frame
    from .incoming import Rules
    from .transport import Target, Times

_BATCH_BYTES = 16 << 20  # a batch that has this much is not made longer


class _Subscriber(Listener):
    """The session of one connection: what has arrived, and which batches are not acknowledged yet.

    `prefetch`: so many messages may be unacknowledged. `pause`: seconds for which what has arrived waits for more.
    """

    def __init__(self, targets: Sequence[Target], times: Times, name: str, prefetch: int) -> None:
        super().__init__(targets, times, name)
        self.pause = 0.0
        self._prefetch = prefetch
        self._batches: deque[_Batch] = deque()
        self.given: _Batch | None = None
        """The last one, acknowledged or not."""

    def subscribe(self, destination: str) -> None:
        """Open the subscription. Raises NotConnected."""
        self.ask_for(self.link.mark.encode(), destination, b"client", self._prefetch)

    def take(self, limit: int, timeout: float) -> list[Frame]:
        """What has arrived, at most `limit`, less where messages are large; waits for the first, and then for `pause`. Raises NotConnected."""
        inbox = self.inbox
        if not inbox and self.reason is None:
            self.changed.clear()
            if not inbox and self.reason is None:
                self.changed.wait(timeout)
                if not inbox and self.reason is None and self.link.unsure:
                    self._ask_for_a_frame()
        if self.pause and self.reason is None and 0 < len(inbox) < min(limit, self._prefetch):
            time.sleep(self.pause)  # each arrival sets `changed`, and the thread that would end this is the one that is here
        self.check()
        taken: list[Frame] = []
        size = 0
        while inbox and len(taken) < limit and size < _BATCH_BYTES:
            taken.append(inbox.popleft())
            size += len(taken[-1].body)
        return taken

    def open(self, last: Frame) -> Callable[[], None]:
        """Note a batch that ends with this frame; gives what acknowledges it."""
        batch = self.given = _Batch(last.headers[b"ack"])
        self._batches.append(batch)
        return partial(self._ack, batch)

    def _ack(self, batch: _Batch) -> None:
        """ActiveMQ acknowledges all up to a message, so a batch waits for those before it."""
        batch.done = True
        last = None
        while self._batches and self._batches[0].done:
            last = self._batches.popleft().last
        if last is not None and self.reason is None:
            with contextlib.suppress(NotConnected):
                self.link.write(b"ACK\nid:%b\n\n\0" % last)  # still escaped, as it came

    def present(self) -> None:
        """Return once ActiveMQ has answered on this connection; by an empty transaction, which changes nothing. Raises NotConnected."""
        name = b"transaction", self.link.mark.encode()
        self.ask(b"BEGIN", name)
        self.link.write(frame(b"ABORT", name))

    def _ask_for_a_frame(self) -> None:
        """The same, but nobody waits for the answer: a message may stand before it that takes long to come. Raises NotConnected."""
        name = b"transaction", self.link.mark.encode()
        self.link.write(frame(b"BEGIN", name, (b"receipt", b"frame")) + frame(b"ABORT", name))


class _Batch:
    """The ack id of its last message, and whether it was acknowledged."""

    __slots__ = ("done", "last")

    def __init__(self, last: bytes) -> None:
        self.last = last
        self.done = False


class ActiveSource:
    """Consumes one destination. At most `prefetch` messages are unacknowledged, here and in the bridge together.

    ActiveMQ's acknowledgement is cumulative: that of a batch takes effect when all earlier batches are acknowledged.
    """

    GATHERING = 0.03  # s; with 1,000 messages a second, 33 batches to store and to acknowledge, instead of some hundred

    def __init__(self, targets: Callable[[], Sequence[Target]], destination: str, *, prefetch: int, times: Times, rules: Rules) -> None:
        self._targets = targets
        self._destination = destination
        self._prefetch = prefetch
        self._times = times
        self._rules = rules
        self._session: _Subscriber | None = None

    def connect(self) -> None:
        """See base.Source. ActiveMQ makes a missing queue."""
        self.close()
        session = _Subscriber(self._targets(), self._times, f"activemq source {self._destination}", self._prefetch)
        session.link.start()
        session.subscribe(self._destination)
        self._session = session

    def receive(self, limit: int, timeout: float) -> Batch | None:
        """See base.Source."""
        session = self._session
        if session is None:
            raise NotConnected("the source is closed")
        frames = session.take(limit, timeout)
        if not frames:
            return None
        now = wall_clock()
        return Batch([received(each, self._rules, now) for each in frames], session.open(frames[-1]))

    def gather(self, *, calm: bool) -> None:
        """See base.Gathering."""
        if self._session is not None:
            self._session.pause = self.GATHERING if calm else 0.0

    def tenure(self) -> Hashable:
        """See base.Holding: one for each batch, for a queue may give what others have lost at any time."""
        session = self._session
        if session is None or session.given is None:
            raise NotConnected("the source is closed")
        session.check()
        return session.given

    def affirm(self, tenure: Hashable) -> bool:
        """See base.Holding. ActiveMQ gives to others what is not acknowledged once it has closed our connection, where it answers no more."""
        if self.tenure() != tenure:
            return False
        assert self._session is not None
        self._session.present()
        return True

    def close(self) -> None:
        """See base.Source."""
        if self._session is not None:
            self._session.link.close(self._session.link.mark.encode())
            self._session = None
