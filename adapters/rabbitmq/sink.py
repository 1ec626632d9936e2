"""Messages to RabbitMQ, confirmed.

Each exchange has a channel of its own, because RabbitMQ answers one bad message by closing its channel, and with it the fate of all that
was not confirmed there is unknown. So a missing or forbidden exchange harms no other destination:

    basic.return        BackOff(unroutable)              no queue is bound for the key, or the queue is missing
    basic.nack          BackOff(refused_by_broker)       the queue is full (overflow: reject-publish), or its leader failed
    channel closed 404  BackOff(unroutable)              for all that waits there: the exchange is missing
    channel closed 403  BackOff(refused_by_broker)       for the one message that caused it
    channel closed else Rejected(rejected_by_broker)     for the one message that caused it (406: too large for this broker, bad expiration, ...)
    connection closed   NotConnected                     for all: they may have been delivered
      with 501, 502, 541  Rejected(rejected_by_broker)   for the one message over which RabbitMQ fails each time: see suspects.py

RabbitMQ does not say which message closed a channel. Those without an answer are published again, one at a time, until the culprit has
been alone; a message that had been taken before the channel closed is doubled by that, with the same id and occurrence.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING

import structlog
from pika import PlainCredentials

from ...core.reasons import Reason
from ..base import NotConnected, Rejected
from .address import Target, parse
from .copies import uncopied
from .foreign import is_foreign, native
from .link import Link
from .outlet import Outlet, Prepared
from .suspects import TIMES, Suspects, failed
from .wire import CONTENT_OVERHEAD, Confirmed, Returned, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from pika.connection import Parameters

    from ..base import AdapterError, Confirm, Outcome, Outgoing
    from .wire import Event, Wire

log = structlog.get_logger()

_IDLE_ABOVE = 200  # channels, before idle ones are closed
_PATIENCE = 5.0  # seconds for which others wait for the answer to a suspect: RabbitMQ fails at once, where it does


class _Publisher:
    """The session of one connection: an outlet for each exchange, and the outcomes that are ready."""

    def __init__(self, confirm: Confirm, suspects: Suspects, *, impersonates: bool) -> None:
        self._confirm = confirm
        self._impersonates = impersonates
        self._user: bytes | None = None  # the only one that a message may name; None where any may be
        self._suspects = suspects
        self._sent = 0.0  # when the latest suspect was
        self._outlets: dict[bytes, Outlet] = {}
        self._outcomes: list[Outcome] = []
        self._lock = threading.Lock()
        self._submitted: list[Outgoing] = []
        self._taken: deque[Outgoing] = deque()  # of these, what is not prepared yet: a suspect waits here for the one before it
        self._sorted: dict[bytes, list[Prepared]] = {}  # by exchange, what no outlet has yet
        self._reason: NotConnected | None = None
        self.channels: dict[int, Outlet] = {}
        self.blocked = ""
        self.wire: Wire

    def opened(self, link: Link, wire: Wire) -> None:
        """See link.Session."""
        self._link = link
        self.wire = wire
        credentials = wire.params.credentials  # each URL may have its own; only RabbitMQ knows the name that a certificate stands for
        if isinstance(credentials, PlainCredentials) and not self._impersonates:
            self._user = (credentials.username or "").encode()
        wire.add_on_connection_blocked_callback(self._is_blocked)
        wire.add_on_connection_unblocked_callback(self._is_unblocked)
        link.ready()

    def _is_blocked(self, _: object, frame: Any) -> None:
        self.blocked = f"RabbitMQ takes no messages until its alarm is over: {frame.method.reason}"
        log.warning("broker_blocks", reason=self.blocked, action="messages wait; see `rabbitmq-diagnostics alarms`")

    def _is_unblocked(self, *_: object) -> None:
        self.blocked = ""
        log.info("broker_takes_messages_again")

    def submit(self, messages: Sequence[Outgoing]) -> None:
        """Hand messages over from any thread. Raises NotConnected: then none was taken."""
        with self._lock:
            if self._reason is not None:
                raise self._reason
            if not self._submitted:
                self._link.post(self._publish)
            self._submitted.extend(messages)

    def _take(self) -> list[Outgoing]:
        with self._lock:
            messages, self._submitted = self._submitted, []
            return messages

    def _publish(self) -> None:
        if not self.wire.is_open:
            return  # `lost` is on its way, and reports them
        self._taken.extend(self._take())
        while self._taken and self._may_go():
            outgoing = self._taken[0]
            try:
                target = parse(outgoing.address)
                prepared = self._prepared(outgoing, target)
            except Rejected as reason:
                self._outcomes.append((outgoing.tag, reason))
            else:
                self._sorted.setdefault(target.exchange, []).append(prepared)
            self._taken.popleft()
        while self._sorted:
            exchange = next(iter(self._sorted))
            outlet = self._outlet(exchange)
            outlet.send(self._sorted.pop(exchange))
        self.report()

    def _may_go(self) -> bool:
        """Whether another message may, or has to wait because there are suspects, and one is under way."""
        if not self._suspects.left:
            return True
        now = time.monotonic()
        if self._busy:
            if now - self._sent < _PATIENCE:
                return False
            self._suspects.left = 0
        self._sent = now
        return True

    @property
    def _busy(self) -> bool:
        return bool(self._sorted) or not all(outlet.idle for outlet in self._outlets.values())

    def _prepared(self, outgoing: Outgoing, target: Target) -> Prepared:
        message = outgoing.message
        if is_foreign(message):
            message = native(message)
        user = message.properties.user_id
        if user is not None and self._user is not None and user != self._user:
            theirs, ours = (name.decode(errors="backslashreplace") for name in (user, self._user))
            detail = f"user_id is {theirs!r}, and the bridge publishes as {ours!r}; see `impersonate`"
            raise Rejected(Reason.REJECTED_BY_BROKER, detail)
        try:
            properties = encode(message.properties, uncopied(message.headers, count=message.properties.copies is True))
        except (ValueError, OverflowError) as error:
            raise Rejected(Reason.REJECTED_BY_BROKER, f"a property does not fit AMQP 0-9-1: {error}") from error
        if len(properties) + CONTENT_OVERHEAD > self.wire.payload_limit:
            detail = f"headers and properties take {len(properties)} bytes, and must fit one frame of {self.wire.payload_limit}"
            raise Rejected(Reason.TOO_LARGE, detail)
        return Prepared(outgoing.tag, target.routing_key, properties, message.body or b"")

    def _outlet(self, exchange: bytes) -> Outlet:
        outlet = self._outlets.get(exchange)
        if outlet is None:
            if len(self._outlets) >= _IDLE_ABOVE:
                self.close_idle()
            outlet = self._outlets[exchange] = Outlet(exchange, self)
        return outlet

    def close_idle(self) -> None:
        """See Outlets."""
        for idle in [other for other in self._outlets.values() if other.idle]:
            del self._outlets[idle.exchange]
            idle.close()

    def heard(self, events: list[Event]) -> None:
        """See link.Session."""
        for event in events:
            if isinstance(event, Confirmed):
                self.channels[event.channel].confirmed(event)
            elif isinstance(event, Returned):
                self.channels[event.channel].returned(event)
        self.report()

    def outcome(self, message: Prepared, failure: AdapterError | None) -> None:
        """See Outlets."""
        self._suspects.answered(message.tag)
        self._outcomes.append((message.tag, failure))

    def report(self) -> None:
        """See Outlets."""
        if self._outcomes:
            outcomes, self._outcomes = self._outcomes, []
            self._confirm(outcomes)
        if self._taken and not self._busy:
            self._link.post(self._publish)

    def give_up(self, outlet: Outlet, failure: AdapterError) -> None:
        """See Outlets."""
        if self._outlets.get(outlet.exchange) is outlet:
            del self._outlets[outlet.exchange]
        self._outcomes.extend((message.tag, failure) for message in outlet.drain())

    def closing(self, wire: Wire, then: Callable[[], None]) -> None:
        """See link.Session."""
        del wire
        then()

    def lost(self, reason: NotConnected) -> None:
        """See link.Session."""
        with self._lock:
            self._reason = reason
        flying = [tag for outlet in self._outlets.values() for tag in outlet.flying]
        culprit = self._suspects.culprit(flying) if failed(reason) else None
        if culprit is not None:
            detail = f"RabbitMQ failed each of the {TIMES} times that this message was alone on the wire: {reason}"
            self._outcomes.append((culprit, Rejected(Reason.REJECTED_BY_BROKER, detail)))
        under_way = [message.tag for outlet in self._outlets.values() for message in outlet.drain()]
        under_way += [outgoing.tag for outgoing in (*self._taken, *self._take())]
        under_way += [message.tag for message in chain(*self._sorted.values())]
        self._outcomes.extend((tag, reason) for tag in under_way if tag != culprit)
        self._taken.clear()
        self.report()


class RabbitSink:
    """Publishes to any exchange and queue of one broker, over one connection. `impersonates`: a message's `user_id` is RabbitMQ's to judge."""

    def __init__(self, parameters: Callable[[], Sequence[Parameters]], *, timeout: float, impersonates: bool) -> None:
        self._parameters = parameters
        self._timeout = timeout
        self._impersonates = impersonates
        self._suspects = Suspects()
        self._link: Link | None = None
        self._session: _Publisher | None = None

    def connect(self, confirm: Confirm) -> None:
        """See base.Sink."""
        self.close()
        session = _Publisher(confirm, self._suspects, impersonates=self._impersonates)
        link = Link(self._parameters(), session, self._timeout, "rabbitmq sink")
        link.start()
        self._link, self._session = link, session

    def publish(self, messages: Sequence[Outgoing]) -> None:
        """See base.Sink. Buffers as much as the caller leaves unconfirmed; while RabbitMQ blocks the connection, outcomes stay open."""
        if self._session is None:
            raise NotConnected("the sink is closed")
        self._session.submit(messages)

    @property
    def blocked(self) -> str:
        """See base.Blockable."""
        session = self._session
        return "" if session is None else session.blocked

    def close(self) -> None:
        """See base.Sink."""
        if self._link is not None:
            self._link.close()
            self._link = self._session = None
