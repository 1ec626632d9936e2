"""Messages to ActiveMQ, confirmed.

What is due together goes out in one transaction, which ActiveMQ makes durable with one write; the receipt of COMMIT confirms it. Two things
about ActiveMQ's transactions decide the rest:

- After a SEND that it refuses, COMMIT fails for all that is in the transaction, and says nothing of which message it was. Nothing of it is taken then
  (unless somebody has switched off the broker's `rollbackOnlyOnAsyncException`), so its messages go again, each alone and with a receipt.
  Until the connection ends, though, ActiveMQ (6.3.1) counts them in the memory of their queues, which become full of nothing. So the connection is given up
  once all that is on the wire has its answer.
- A queue over its memory limit stops the whole connection, for SENDs that ask for no receipt. With one, only this SEND waits.

So a destination's first message goes alone, through its `Door`, and asks for a receipt. When that comes, the destination is trusted with transactions.

    ERROR for a SEND that went alone    BackOff(refused_by_broker), or Rejected(rejected_by_broker) where another try is useless, for that message
    no receipt for one                  it stays in flight, as ActiveMQ will not forget it; others BackOff(refused_by_broker) after the blocked time-out
    no answer to a transaction          the connection is dropped after `STALL`: NotConnected for all; what was on board has to earn trust again
    a transaction was rolled back       NotConnected for what is not sent yet, once all that is has its answer
    connection closed                   NotConnected for all: they may have been delivered
      over the size of a message        Rejected(too_large) for the largest; ActiveMQ does not say which it was, but a larger one it does not take either
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import structlog

from ...core.reasons import Reason
from ..base import AdapterError, BackOff, NotConnected, Outcome, Rejected
from ..clock import wall_clock
from .address import destination
from .doors import Doors
from .flights import Prepared, Transaction
from .frames import ERROR, RECEIPT
from .link import Link
from .outgoing import asking, check_size, harmless, headers_of, selectable
from .standing import Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..base import Confirm, Outgoing
    from .frames import Frame
    from .transport import Target, Times

log = structlog.get_logger()

STALL = 5.0
"""Seconds without an answer to a transaction."""

_MESSAGES, _BYTES = 1000, 4 << 20  # of one transaction
_OPEN = 2  # ActiveMQ writes one transaction while it reads the next
_WIDTH = 100  # of a door, for messages that a transaction has failed with
_TICK = 0.25
_ROLLED_BACK = "rollback only"
_USELESS = ("InvalidDestination", "MessageFormat", "Illegal destination", "Unsupported message type")
_LIMITS: dict[str, Callable[[Prepared], int]] = {
    "The maximum frame size was exceeded": lambda message: message.size,
    "The maximum data length was exceeded": lambda message: len(message.body),
}
"""What ActiveMQ says before it closes a connection over a message that is larger than its connector allows, and what it has measured."""


class _Publisher:
    """The session of one connection. All but `submit`, `heard` and `lost` runs on the publisher's own thread."""

    def __init__(self, targets: Sequence[Target], times: Times, confirm: Confirm, standing: Standing, settings: Settings) -> None:
        self.link = Link(targets, self, times._replace(blocked=STALL), "activemq sink reader")
        self._confirm = confirm
        self._standing = standing
        self._settings = settings
        self._blocked = times.blocked
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._submitted: list[Outgoing] = []
        self._reason: NotConnected | None = None
        self._numbers = itertools.count(1)
        self._taken: deque[Outgoing] = deque()  # what is not prepared yet
        self._waiting: deque[Prepared] = deque()
        self._open: deque[Transaction] = deque()  # the first is being committed, the other follows when that has succeeded
        self._outcomes: list[Outcome] = []
        self._doors = Doors(standing, self._outcomes, self._numbers)
        self._quiet = threading.Event()  # what came after the farewell would be answered by an error, or not at all
        self._rolled_back: float | None = None  # when a transaction first was
        self._over = False
        self._thread = threading.Thread(target=self._run, name="activemq sink", daemon=True)

    def start(self) -> None:
        """Connect. Raises NotConnected."""
        self.link.start()
        self._thread.start()

    def close(self) -> None:
        """Send nothing more, disconnect and tell all outcomes."""
        self._calls.put(self._quiet.set)
        self._quiet.wait(STALL)  # the thread may be at a write that ActiveMQ does not take
        self.link.close()
        self._thread.join()

    # --- from other threads ---

    def submit(self, messages: Sequence[Outgoing]) -> None:
        """Hand messages over from any thread. Raises NotConnected: then none was taken."""
        with self._lock:
            if self._reason is not None:
                raise self._reason
            if messages and not self._submitted:
                self._calls.put(self._publish)
            self._submitted.extend(messages)

    def heard(self, frames: list[Frame]) -> None:
        """See link.Session."""
        self._calls.put(partial(self._hear, frames))

    def lost(self, reason: NotConnected) -> None:
        """See link.Session."""
        with self._lock:
            self._reason = reason
        self._calls.put(partial(self._end, reason))

    # --- on the publisher's thread ---

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:
            log.exception("sink_failed", action="all that is under way is due again, over a new connection")
            reason = NotConnected(f"the sink failed: {error!r}")
            self._end(reason)
            self._report()
            self.link.drop(reason)

    def _serve(self) -> None:
        looked = time.monotonic()
        while not self._over:
            with contextlib.suppress(queue.Empty):
                self._calls.get(timeout=_TICK if self._open or self._doors.busy else None)()
            now = time.monotonic()
            if now - looked >= _TICK:
                looked = now
                self._calls.put(partial(self._look_after, now))  # behind the answers that have come
            self._pump()
            self._report()
            self._part()

    def _take(self) -> list[Outgoing]:
        with self._lock:
            messages, self._submitted = self._submitted, []
            return messages

    def _publish(self) -> None:
        now = wall_clock()
        self._taken.extend(self._take())
        while self._taken:
            outgoing = self._taken[0]
            try:
                name = destination(outgoing.address)
                settings = self._settings
                lines, body = headers_of(outgoing.message, now, persistent=settings.persistent, named=settings.named(name))
                check_size(body, settings.largest)
            except Rejected as reason:
                self._outcomes.append((outgoing.tag, reason))
            else:
                self._waiting.append(Prepared(outgoing.tag, name, lines, body))
            self._taken.popleft()

    def _pump(self) -> None:
        """Send what may be sent."""
        out: list[bytes] = []
        while self._waiting and len(self._open) < _OPEN and not self._over:
            now = time.monotonic()
            if self._parting(now):
                break
            batch = self._batch(out, now)
            if batch:
                transaction = Transaction(next(self._numbers), batch, now)
                self._open.append(transaction)
                out.append(transaction.sends())
                if len(self._open) == 1:
                    out.append(transaction.commit())
        if out:
            self._write(b"".join(out))

    def _batch(self, out: list[bytes], now: float) -> list[Prepared]:
        """The next messages for a transaction; what has to go alone is put into `out`, or waits at its door."""
        single = len(self._waiting) == 1 and not self._open
        batch: list[Prepared] = []
        size = 0
        while self._waiting and len(batch) < _MESSAGES and size < _BYTES:
            message = self._waiting.popleft()
            name = message.destination
            if single or not self._standing.trusts(name) or self._doors.stands(name):
                self._doors.send(message, out, now)
            else:
                batch.append(message)
                size += len(message.body)
        return batch

    def _write(self, data: bytes) -> None:
        if self._quiet.is_set():
            return
        try:
            self.link.write(data)
        except NotConnected:
            self._quiet.set()  # `lost` is on its way: it knows what ActiveMQ said before it closed the connection

    def _hear(self, frames: list[Frame]) -> None:
        for each in frames:
            if self._over:
                return  # what is told here was reported as unknown
            if each.command == RECEIPT:
                self._receipt(each.headers[b"receipt-id"])
            elif each.command == ERROR:
                self._error(each)

    def _report(self) -> None:
        if self._outcomes:
            outcomes = self._outcomes.copy()
            self._outcomes.clear()
            self._confirm(outcomes)

    # --- transactions ---

    def _receipt(self, receipt: bytes) -> None:
        if self._doors.awaits(receipt):
            self._answered(receipt, None)
        elif self._open and receipt == self._open[0].name:
            self._outcomes.extend((each.tag, None) for each in self._open.popleft().messages)
            if self._open:
                self._open[0].since = time.monotonic()
                self._write(self._open[0].commit())

    def _answered(self, receipt: bytes, error: AdapterError | None) -> None:
        out: list[bytes] = []
        self._waiting.extendleft(reversed(self._doors.answered(receipt, error, out, time.monotonic())))
        if out:
            self._write(b"".join(out))

    def _error(self, frame: Frame) -> None:
        """An error that names no receipt of ours is about a message in a transaction, which COMMIT will tell."""
        receipt, text = frame.headers.get(b"receipt-id", b""), frame.text(b"message")
        if self._doors.awaits(receipt):
            if self._rolled_back is not None:
                self._standing.suspect([self._doors.destination(receipt)])
            self._answered(receipt, _refusal(text, frame.body))
        elif self._open and receipt == self._open[0].name:
            if _ROLLED_BACK in text:
                self._one_by_one()
            else:
                self.link.drop(NotConnected(f"ActiveMQ did not commit: {text}"))

    def _one_by_one(self) -> None:
        """Nothing of the first transaction was taken, and nothing may overtake it."""
        failed, *following = self._open
        self._open.clear()
        self._standing.distrust(failed.destinations)
        out = [each.abort() for each in following]
        self._waiting.extendleft(message for each in reversed(following) for message in reversed(each.messages))
        now = time.monotonic()
        for message in failed.messages:
            self._doors.send(message, out, now, _WIDTH)
        self._rolled_back = self._rolled_back or now
        self._write(b"".join(out))

    def _parting(self, now: float) -> bool:
        """Whether nothing more is sent, because a transaction was rolled back: see above. But nobody waits for an answer that a full queue holds back."""
        return self._rolled_back is not None and (not self._doors.busy or now - self._rolled_back < STALL)

    def _part(self) -> None:
        if self._rolled_back is not None and not self._over and not self._open and not self._doors.busy:
            self.link.drop(NotConnected("ActiveMQ rolled a transaction back, and keeps its memory until the connection ends"))

    # --- when no answer comes ---

    def _look_after(self, now: float) -> None:
        self._doors.shut(now, self._blocked)
        if self._open and now - self._open[0].since > STALL:
            self._standing.suspect(self._open[0].destinations)
            self.link.drop(NotConnected(f"ActiveMQ did not answer a transaction for {STALL:g} s"))

    def _end(self, reason: NotConnected) -> None:
        if self._over:
            return
        self._over = True
        self._quiet.set()
        with self._lock:
            self._reason = reason
        under_way: list[Prepared] = []
        for each in self._open:
            self._standing.distrust(each.destinations)
            under_way += each.messages
        under_way += (*self._doors.under_way(), *self._waiting)
        culprit = _too_large(reason, under_way)
        if culprit is not None:
            under_way.remove(culprit)
            detail = f"{reason}: this message has {culprit.size} bytes with its headers; see `max_body_bytes`"
            self._outcomes.append((culprit.tag, Rejected(Reason.TOO_LARGE, detail)))
        self._outcomes.extend((each.tag, reason) for each in under_way)
        self._outcomes.extend((outgoing.tag, reason) for outgoing in (*self._taken, *self._take()))


class Settings:
    """What the operator decides: whether all messages are made persistent, and how large a body may be.

    `ingress`, for what is sent in a producer's place: the address of its route's queue.
    """

    def __init__(self, *, persistent: bool, largest: int, ingress: str | None = None) -> None:
        self.persistent = persistent
        self.largest = largest
        self._ingress = ingress

    def named(self, destination: str) -> Callable[[bytes, bytes], bytes]:
        """The names of headers there."""
        if self._ingress is None:
            return harmless
        return asking if destination == self._ingress else selectable


def _too_large(reason: NotConnected, under_way: Sequence[Prepared]) -> Prepared | None:
    """The message that ActiveMQ can never take, if it closed the connection over the size of one of these. It does not say which: so the largest."""
    size = next((size for words, size in _LIMITS.items() if words in str(reason)), None)
    return None if size is None else max(under_way, key=size, default=None)


def _refusal(text: str, body: bytes) -> AdapterError:
    said = f"{text} {body[:200].decode(errors='replace')}"
    if any(word in said for word in _USELESS):
        return Rejected(Reason.REJECTED_BY_BROKER, text)
    return BackOff(Reason.REFUSED_BY_BROKER, text)


class ActiveSink:
    """Publishes to any queue and topic of one broker, over one connection."""

    def __init__(self, targets: Callable[[], Sequence[Target]], *, times: Times, settings: Settings) -> None:
        self._targets = targets
        self._times = times
        self._settings = settings
        self._standing = Standing()
        self._session: _Publisher | None = None

    def connect(self, confirm: Confirm) -> None:
        """See base.Sink."""
        self.close()
        session = _Publisher(self._targets(), self._times, confirm, self._standing, self._settings)
        session.start()
        self._session = session

    def publish(self, messages: Sequence[Outgoing]) -> None:
        """See base.Sink. Buffers as much as the caller leaves unconfirmed."""
        if self._session is None:
            raise NotConnected("the sink is closed")
        self._session.submit(messages)

    def close(self) -> None:
        """See base.Sink."""
        if self._session is not None:
            self._session.close()
            self._session = None
