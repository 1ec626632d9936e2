"""Messages to RabbitMQ, confirmed.

Each exchange has a channel of its own, because RabbitMQ answers one bad message by closing its channel, and with it the fate of all that
was not confirmed there is unknown. So a missing or forbidden exchange harms no other destination:

    basic.return        BackOff(unroutable)              no queue is bound for the key, or the queue is missing
    basic.nack          BackOff(refused_by_broker)       the queue is full (overflow: reject-publish), or its leader failed
    channel closed 404  BackOff(unroutable)              for all that waits there: the exchange is missing
    channel closed 403  BackOff(refused_by_broker)       for the one message that caused it
    channel closed else Rejected(rejected_by_broker)     for the one message that caused it (406: too large for this broker, bad expiration, ...)
    connection closed   NotConnected                     for all: they may have been delivered

RabbitMQ does not say which message closed a channel. Those without an answer are published again, one at a time, until the culprit has
been alone; a message that had been taken before the channel closed is doubled by that, with the same id and occurrence.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING

import structlog
from pika.exceptions import AMQPError, ChannelClosedByBroker, NoFreeChannels

from ...core.fields import named, value_of
from ...core.headers import DUE, ID, OCCURRENCE
from ...core.reasons import Reason
from ..base import AdapterError, BackOff, NotConnected, Rejected
from .address import Target, parse
from .copies import uncopied
from .foreign import is_foreign, native
from .link import ACCESS_REFUSED, NOT_FOUND, Link, not_connected
from .wire import CONTENT_OVERHEAD, Confirmed, Returned, content_frames, decode, encode, publish_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from pika.channel import Channel
    from pika.connection import Parameters

    from ...core.fields import Value
    from ..base import Confirm, Outcome, Outgoing
    from .wire import Event, Wire

log = structlog.get_logger()

_DELIVERY = frozenset((ID, OCCURRENCE, DUE))
_WRITE = 65536  # bytes handed to the socket at once
_IDLE_ABOVE = 200  # channels, before idle ones are closed


class _Prepared:
    """One message, ready for the wire."""

    __slots__ = ("body", "failure", "properties", "routing_key", "tag")

    def __init__(self, tag: bytes, routing_key: bytes, properties: bytes, body: bytes) -> None:
        self.tag = tag
        self.routing_key = routing_key
        self.properties = properties
        self.body = body
        self.failure: AdapterError | None = None


class _Outlet:
    """One exchange and its channel. `waiting` is not on the wire yet; `flying`, by number, is not confirmed yet."""

    def __init__(self, exchange: bytes, session: _Publisher) -> None:
        self.exchange = exchange
        self._session = session
        self._channel: Channel | None = None
        self._waiting: deque[_Prepared] = deque()
        self._flying: dict[int, _Prepared] = {}
        self._number = 0
        self._lowest = 1
        self._return_after = 0
        self._careful = 0
        self._frames: dict[bytes, bytes] = {}

    @property
    def idle(self) -> bool:
        """Nothing is under way."""
        return not self._waiting and not self._flying

    def send(self, messages: Sequence[_Prepared]) -> None:
        """Publish, or keep until the channel is open."""
        self._waiting.extend(messages)
        if self._channel is None:
            try:
                self._channel = self._session.wire.channel(on_open_callback=self._opened)
            except NoFreeChannels as error:
                self._session.close_idle()  # for the next try
                self._session.give_up(self, BackOff(Reason.REFUSED_BY_BROKER, repr(error)))
        elif self._channel.is_open:
            self._flush()

    def drain(self) -> list[_Prepared]:
        """Forget all that has no outcome yet, in order."""
        unanswered = [*self._flying.values(), *self._waiting]
        self._flying.clear()
        self._waiting.clear()
        return unanswered

    def close(self) -> None:
        """Give the channel back."""
        if self._channel is not None and self._channel.is_open:
            self._channel.close()

    def _opened(self, channel: Channel) -> None:
        self._channel = channel
        self._number, self._lowest, self._return_after = 0, 1, 0
        self._frames.clear()
        self._session.channels[channel.channel_number] = self
        channel.add_on_close_callback(self._closed)
        channel.confirm_delivery(lambda _: None)  # the broker reads it before what follows; acks come to `confirmed`
        self._flush()

    def _flush(self) -> None:
        assert self._channel is not None
        wire, channel = self._session.wire, self._channel.channel_number
        pieces: list[bytes] = []
        size = 0
        while self._waiting and not (self._careful and self._flying):
            message = self._waiting.popleft()
            message.failure = None
            self._number += 1
            self._flying[self._number] = message
            pieces.append(self._frame(channel, message.routing_key))
            pieces += content_frames(channel, message.properties, message.body, wire.payload_limit)
            size += len(message.body)
            if size > _WRITE:
                wire.write(pieces)
                pieces, size = [], 0
        if pieces:
            wire.write(pieces)

    def _frame(self, channel: int, routing_key: bytes) -> bytes:
        frame = self._frames.get(routing_key)
        if frame is None:
            if len(self._frames) >= 4096:
                self._frames.clear()
            frame = self._frames[routing_key] = publish_frame(channel, self.exchange, routing_key)
        return frame

    def confirmed(self, event: Confirmed) -> None:
        """Settle one message, or all up to it. Each number is stepped over once, so this costs what it settles."""
        if event.multiple:
            for number in range(self._lowest, event.number + 1):
                self._settle(self._flying.pop(number, None), event.ok)
            self._lowest = event.number + 1
        else:
            self._settle(self._flying.pop(event.number, None), event.ok)
            self._lowest += event.number == self._lowest
        if self._waiting:
            self._flush()

    def _settle(self, message: _Prepared | None, ok: bool) -> None:
        if message is None:
            return
        if not ok:
            message.failure = BackOff(
                Reason.REFUSED_BY_BROKER, f"RabbitMQ did not take it (basic.nack) for exchange {_name(self.exchange)}"
            )
        self._careful = max(0, self._careful - 1)
        self._session.outcome(message, message.failure)

    def returned(self, event: Returned) -> None:
        """Mark the message that came back. A return bears no number, but returns come in the order of publishing."""
        first = next(iter(self._flying), self._number)
        for number in range(max(first, self._return_after + 1), self._number + 1):
            message = self._flying.get(number)
            if message is not None and _same(message, event):
                message.failure = BackOff(
                    Reason.UNROUTABLE, f"{event.reason}: key {_name(event.routing_key)} at exchange {_name(self.exchange)}"
                )
                self._return_after = number
                return
        raise AMQPError(f"RabbitMQ returned a message that is not under way: key {_name(event.routing_key)}")

    def _closed(self, channel: Channel, reason: Exception) -> None:
        self._session.channels.pop(channel.channel_number, None)
        self._channel = None
        flying = len(self._flying)
        if not flying or not isinstance(reason, ChannelClosedByBroker):
            self._session.give_up(self, not_connected(reason))
        elif reason.reply_code == NOT_FOUND:
            self._session.give_up(self, BackOff(Reason.UNROUTABLE, reason.reply_text))
        else:
            unanswered = self.drain()
            if flying == 1:
                self._session.outcome(unanswered.pop(0), _refusal(reason))
            self._careful = max(flying, self._careful) - (flying == 1)
            if unanswered:
                self.send(unanswered)
        self._session.report()


def _refusal(reason: ChannelClosedByBroker) -> AdapterError:
    if reason.reply_code == ACCESS_REFUSED:
        return BackOff(Reason.REFUSED_BY_BROKER, reason.reply_text)
    return Rejected(Reason.REJECTED_BY_BROKER, reason.reply_text)


def _same(message: _Prepared, returned: Returned) -> bool:
    """Whether this is what came back. On the way RabbitMQ takes `BCC` off, its interceptors write headers, and RabbitMQ 4 drops names that stand twice.

    So of the headers only those count that tell deliveries apart.
    """
    if message.routing_key != returned.routing_key or message.body != returned.body:
        return False
    return message.properties == returned.properties or _delivery(message.properties) == _delivery(returned.properties)


def _delivery(properties: bytes) -> dict[bytes, Value]:
    return {field.name: value_of(field) for field in named(decode(properties)[1], _DELIVERY)}


class _Publisher:
    """The session of one connection: an outlet for each exchange, and the outcomes that are ready."""

    def __init__(self, confirm: Confirm, user: bytes | None) -> None:
        self._confirm = confirm
        self._user = user
        self._outlets: dict[bytes, _Outlet] = {}
        self._outcomes: list[Outcome] = []
        self._lock = threading.Lock()
        self._submitted: list[Outgoing] = []
        self._taken: deque[Outgoing] = deque()  # of these, what is not prepared yet
        self._sorted: dict[bytes, list[_Prepared]] = {}  # by exchange, what no outlet has yet
        self._reason: NotConnected | None = None
        self.channels: dict[int, _Outlet] = {}
        self.blocked = ""
        self.wire: Wire

    def opened(self, link: Link, wire: Wire) -> None:
        """See Session."""
        self._link = link
        self.wire = wire
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
        while self._taken:
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

    def _prepared(self, outgoing: Outgoing, target: Target) -> _Prepared:
        message = outgoing.message
        if is_foreign(message):
            message = native(message)
        user = message.properties.user_id
        if user is not None and self._user is not None and user != self._user:
            theirs, ours = (name.decode(errors="backslashreplace") for name in (user, self._user))
            detail = f"user_id is {theirs!r}, and the bridge publishes as {ours!r}; see `impersonate`"
            raise Rejected(Reason.REJECTED_BY_BROKER, detail)
        try:
            properties = encode(message.properties, uncopied(target.exchange, message.headers))
        except (ValueError, OverflowError) as error:
            raise Rejected(Reason.REJECTED_BY_BROKER, f"a property does not fit AMQP 0-9-1: {error}") from error
        if len(properties) + CONTENT_OVERHEAD > self.wire.payload_limit:
            detail = f"headers and properties take {len(properties)} bytes, and must fit one frame of {self.wire.payload_limit}"
            raise Rejected(Reason.TOO_LARGE, detail)
        return _Prepared(outgoing.tag, target.routing_key, properties, message.body or b"")

    def _outlet(self, exchange: bytes) -> _Outlet:
        outlet = self._outlets.get(exchange)
        if outlet is None:
            if len(self._outlets) >= _IDLE_ABOVE:
                self.close_idle()
            outlet = self._outlets[exchange] = _Outlet(exchange, self)
        return outlet

    def close_idle(self) -> None:
        """Give back the channels on which nothing is under way."""
        for idle in [other for other in self._outlets.values() if other.idle]:
            del self._outlets[idle.exchange]
            idle.close()

    def heard(self, events: list[Event]) -> None:
        """See Session."""
        for event in events:
            if isinstance(event, Confirmed):
                self.channels[event.channel].confirmed(event)
            elif isinstance(event, Returned):
                self.channels[event.channel].returned(event)
        self.report()

    def outcome(self, message: _Prepared, failure: AdapterError | None) -> None:
        """Note an outcome; `report` tells it."""
        self._outcomes.append((message.tag, failure))

    def report(self) -> None:
        """Tell all outcomes that are ready."""
        if self._outcomes:
            outcomes, self._outcomes = self._outcomes, []
            self._confirm(outcomes)

    def give_up(self, outlet: _Outlet, failure: AdapterError) -> None:
        """Forget an outlet; all that it holds has this outcome."""
        if self._outlets.get(outlet.exchange) is outlet:
            del self._outlets[outlet.exchange]
        self._outcomes.extend((message.tag, failure) for message in outlet.drain())

    def closing(self, wire: Wire, then: Callable[[], None]) -> None:
        """See Session."""
        del wire
        then()

    def lost(self, reason: NotConnected) -> None:
        """See Session."""
        with self._lock:
            self._reason = reason
        for outlet in list(self._outlets.values()):
            self.give_up(outlet, reason)
        self._outcomes.extend((outgoing.tag, reason) for outgoing in (*self._taken, *self._take()))
        self._outcomes.extend((message.tag, reason) for message in chain(*self._sorted.values()))
        self.report()


def _name(raw: bytes) -> str:
    """An exchange or a key, for people."""
    return repr(raw.decode(errors="replace"))


class RabbitSink:
    """Publishes to any exchange and queue of one broker, over one connection."""

    def __init__(self, parameters: Callable[[], Sequence[Parameters]], *, timeout: float, user: bytes | None) -> None:
        self._parameters = parameters
        self._timeout = timeout
        self._user = user
        self._link: Link | None = None
        self._session: _Publisher | None = None

    def connect(self, confirm: Confirm) -> None:
        """See base.Sink."""
        self.close()
        session = _Publisher(confirm, self._user)
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
