"""What ActiveMQ's own scheduler answers its clients (org.apache.activemq.ScheduledMessage), for a broker whose scheduler is off.

    AMQ_SCHEDULER_ACTION                    BROWSE (with reply-to), REMOVE (with scheduledJobId) or REMOVEALL
    ACTION_START_TIME, ACTION_END_TIME      epoch ms, both inclusive; one alone counts as none for BROWSE

A REMOVEALL with one of the two, for which ActiveMQ removes everything, does nothing here: it is Unclear.

An answer is the scheduled message as ActiveMQ shows it: not persistent, of the type `Advisory`, with `original-destination`, `scheduledJobId` and the headers
that scheduled it; and, beyond ActiveMQ, `x-delay-due`.
"""

from __future__ import annotations

import contextlib
import re
import threading
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ...core.dialects.activemq import CRON, DELAY, JOB, PERIOD, REPEAT
from ...core.fields import fields
from ...core.message import Message, Properties
from ...core.reasons import Reason
from ..base import NotConnected, Rejected
from ..clock import wall_clock
from ..scheduler_requests import Browse, ManagementMessage, Remove, RemoveAll, Unclear
from .frames import ERROR, RECEIPT, escaped
from .incoming import Rules
from .link import Link
from .outgoing import check_size, header_line, headers_of, is_destination
from .source import ActiveSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ...core.store import Record
    from .frames import Frame
    from .transport import Target, Times

NAME = "ActiveMQ.Scheduler.Management"
DESTINATIONS = (f"/topic/{NAME}", f"/queue/{NAME}")
"""Clients send to the topic. What comes to the queue waits while no bridge runs: the interceptors that `plan` prints lead the topic there."""

ACTION, START, END = b"AMQ_SCHEDULER_ACTION", b"ACTION_START_TIME", b"ACTION_END_TIME"
DUE = b"x-delay-due"

_PREFETCH = 10
_SHOWN: dict[str, Any] = {"delivery_mode": 1, "type": b"Advisory"}
_LONG = re.compile(r"[+-]?\d{1,19}")
_LONGEST_REPLY = 1000
_REPLY = re.compile(r"/(?:queue|topic|remote-temp-queue|remote-temp-topic)/[^\x00-\x1f\x7f]+")


def request(message: Message) -> Browse | Remove | RemoveAll | Unclear:
    """What a management message asks for. Pure."""
    headers = {field.name: field.payload.decode(errors="replace") for field in fields(message.headers) if field.tag == "S"}
    action = headers.get(ACTION, "")
    try:
        window = [_epoch(name, headers[name]) for name in (START, END) if name in headers]
    except ValueError as error:
        return Unclear(str(error))
    start, end = window if len(window) == 2 else (None, None)
    if action == "BROWSE":
        return _browse(message.properties.reply_to or b"", start, end)
    if action == "REMOVE":
        return Remove(headers[JOB]) if headers.get(JOB) else Unclear("REMOVE needs a scheduledJobId")
    if action == "REMOVEALL":
        return RemoveAll(start, end) if len(window) != 1 else Unclear("REMOVEALL needs both ACTION_START_TIME and ACTION_END_TIME, or none")
    return Unclear(f"AMQ_SCHEDULER_ACTION is {action!r:.100}, none of BROWSE, REMOVE and REMOVEALL")


def _browse(reply_to: bytes, start: int | None, end: int | None) -> Browse | Unclear:
    """A BROWSE, if it has an address to which ActiveMQ takes answers.

    With another one it would close the connection of the answers, and the request would come again, for ever.
    """
    to = reply_to.decode(errors="replace")
    if len(to) > _LONGEST_REPLY or not _REPLY.fullmatch(to) or not is_destination(reply_to):
        return Unclear(f"BROWSE needs a JMSReplyTo, not {to!r:.100}")
    return Browse(to, start, end)


def _epoch(name: bytes, value: str) -> int:
    if not _LONG.fullmatch(value):
        raise ValueError(f"{name.decode()} is no number of milliseconds: {value!r:.100}")
    return int(value)


def answered(record: Record, to: str, now: int, largest: int) -> bytes:
    """The SEND frame that shows a record. Where ActiveMQ cannot carry the message, its schedule is shown alone, without body and headers."""
    message = record.message
    try:
        lines, body = headers_of(replace(message, properties=replace(message.properties, **_SHOWN)), now, persistent=False)
        check_size(body, largest)
    except Rejected:
        lines, body = headers_of(Message(b"", b"", Properties(**_SHOWN)), now, persistent=False)
    own = b"".join(_told(_scheduling(record)))
    # Of repeated headers STOMP counts the first: what the bridge says stands before what a producer said.
    return b"SEND\ndestination:%b\nreceipt:answer\n%b%b\n%b\0" % (escaped(to.encode()), own, lines, body)


def _told(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """The header lines for these; what ActiveMQ cannot carry is left out."""
    for name, value in headers:
        with contextlib.suppress(Rejected):
            yield header_line(name, value)


def _scheduling(record: Record) -> list[tuple[bytes, bytes]]:
    schedule, out = record.schedule, [(JOB, record.id.encode()), (b"original-destination", record.address.encode())]
    recurrence = schedule.recurrence
    delay = schedule.due - _sent(record) if recurrence is None else recurrence.delay
    numbers = [(DELAY, delay)] + ([] if recurrence is None else [(PERIOD, recurrence.period), (REPEAT, recurrence.repeat)])
    out += [(name, b"%d" % value) for name, value in numbers if value > 0]
    if recurrence is not None and recurrence.cron:
        out.append((CRON, recurrence.cron.encode()))
    return [*out, (DUE, b"%d" % schedule.due)]


def _sent(record: Record) -> int:
    """When its delay began: see Planner. A stamp from the future does not count."""
    stamp = record.message.properties.timestamp_ms
    return stamp if stamp is not None and stamp <= record.taken else record.taken


class Scheduler:
    """See scheduler_requests.SchedulerRequests: one destination of management messages."""

    def __init__(self, targets: Callable[[], Sequence[Target]], destination: str, times: Times, largest: int) -> None:
        self._targets = targets
        self._times = times
        self._largest = largest
        self._source = ActiveSource(targets, destination, prefetch=_PREFETCH, times=times, rules=Rules((), carry_empty=True))

    def connect(self) -> None:
        """See scheduler_requests.SchedulerRequests."""
        self._source.connect()

    def receive(self, timeout: float) -> ManagementMessage | None:
        """See scheduler_requests.SchedulerRequests."""
        batch = self._source.receive(1, timeout)
        if batch is None:
            return None
        (received,) = batch.messages
        wanted = request(received.message) if received.defect is None else Unclear(str(received.defect))
        return ManagementMessage(wanted, batch.ack)

    def answer(self, to: str, pages: Iterable[Sequence[Record]]) -> None:
        """See scheduler_requests.SchedulerRequests. Answers over a connection of its own: a queue that takes nothing stands in nobody else's way."""
        answers = _Answers(self._targets(), self._times, self._largest)
        answers.link.start()
        try:
            for page in pages:
                answers.send(page, to)
        finally:
            answers.link.close()

    def close(self) -> None:
        """See scheduler_requests.SchedulerRequests."""
        self._source.close()


class _Answers:
    """The session of a connection that sends answers. Each asks for a receipt, and the receipts of a page are waited for."""

    def __init__(self, targets: Sequence[Target], times: Times, largest: int) -> None:
        self.link = Link(targets, self, times, "activemq scheduler")
        self._largest = largest
        self._patience = times.blocked
        self._open = 0
        self._refused = ""
        self._lost: NotConnected | None = None
        self._changed = threading.Condition()

    def send(self, page: Sequence[Record], to: str) -> None:
        """Send one page. Raises NotConnected, and Rejected also where ActiveMQ closes the connection to refuse: it would do so again."""
        now = wall_clock()
        self._open = len(page)
        with contextlib.suppress(NotConnected):  # then `lost` is on its way, behind what ActiveMQ has said
            for record in page:
                self.link.write(answered(record, to, now, self._largest))
        with self._changed:
            told = self._changed.wait_for(lambda: not self._open or self._refused or self._lost, self._patience)
        if self._lost is not None and not self._refused:
            raise self._lost
        if self._refused or not told:
            raise Rejected(Reason.REJECTED_BY_BROKER, self._refused or f"{to} took no answer for {self._patience:g} s")

    def heard(self, frames: list[Frame]) -> None:
        """See link.Session."""
        with self._changed:
            self._open -= sum(frame.command == RECEIPT for frame in frames)
            self._refused = next((frame.text(b"message") for frame in frames if frame.command == ERROR), self._refused)
            self._changed.notify()

    def lost(self, reason: NotConnected) -> None:
        """See link.Session."""
        with self._changed:
            self._lost = reason
            self._changed.notify()
