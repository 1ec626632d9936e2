"""Messages from a RabbitMQ queue, in batches."""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace
from pika.exceptions import ChannelClosedByBroker

from ...core.fields import Field, MalformedTableError, fields, sorted_by_name, value_of, without
from ...core.message import NO_PROPERTIES, Message
from ...core.reasons import Reason
from ..base import Batch, NotConnected, Received, Rejected
from .address import exchange_address, real_of
from .foreign import key_of
from .ingress import CLASSIC
from .link import ACCESS_REFUSED, NOT_FOUND, Link
from .wire import Delivery, ack_frame, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pika.channel import Channel
    from pika.connection import Parameters

    from .wire import Event, Wire

_BATCH_BYTES = 16 << 20  # a batch that has this much is not made longer
_STAMP = b"timestamp_in_ms"
_COUNTERS = frozenset((b"x-delivery-count", b"x-acquired-count"))
_COUNTS_IN = "l"
"""The type of those that RabbitMQ adds. A producer's own are often of another, as pika's."""
_ADDED = (_STAMP, *_COUNTERS)


UNGATED = "no gate leads to it, and nothing is delayed. Run `delaybridge apply`"
"""Why a queue to which a gate should lead is missing, and what to do."""


class Ingress(NamedTuple):
    """A queue to consume. A missing one is declared durable if `create` says so; an existing one is taken as it is.

    A queue to which a gate leads is not made here: without the gate's binding nothing would come to it, delayed messages would go past the bridge, undelayed,
    and all would look well.
    """

    queue: str
    create: bool

    def falls_back(self, code: int, *, passive: bool) -> bool:
        """Whether to declare the queue instead, after a passive declaration was answered with this code."""
        return passive and self.create and code == NOT_FOUND


class Declared(NamedTuple):
    """A queue to consume, the last one of `queues` (name and arguments), which are declared first. If we may not declare them, they are taken as they are."""

    queue: str
    queues: tuple[tuple[str, dict[str, Any]], ...]

    def falls_back(self, code: int, *, passive: bool) -> bool:
        """Whether to look passively instead, after a declaration was answered with this code."""
        return not passive and code == ACCESS_REFUSED


class Tap(NamedTuple):
    """A queue of our own, bound to an exchange for as long as the connection lasts."""

    exchange: str
    routing_key: str

    def falls_back(self, code: int, *, passive: bool) -> bool:
        """Never."""
        del code, passive
        return False


Subscription = Ingress | Declared | Tap


class _Subscriber:
    """The session of one connection: its channel, and what has arrived on it."""

    def __init__(self, subscription: Subscription, prefetch: int) -> None:
        self._subscription = subscription
        self._prefetch = prefetch
        self._consumer = ""
        self.channel: Channel
        self.inbox: deque[Delivery] = deque()
        self.arrived = threading.Event()
        self.reason: NotConnected | None = None

    def opened(self, link: Link, wire: Wire) -> None:
        """See link.Session."""
        self._link = link
        self._wire = wire
        self._open(passive=not isinstance(self._subscription, Declared))

    def _open(self, *, passive: bool) -> None:
        self._wire.channel(on_open_callback=partial(self._declare, passive))

    def _declare(self, passive: bool, channel: Channel) -> None:
        self.channel = channel
        channel.add_on_close_callback(partial(self._channel_closed, passive))
        channel.add_on_cancel_callback(self._cancelled)
        subscription = self._subscription
        if isinstance(subscription, Tap):
            channel.queue_declare("", exclusive=True, auto_delete=True, callback=partial(self._bind, subscription))
        elif passive or isinstance(subscription, Ingress):
            arguments = None if passive else CLASSIC
            channel.queue_declare(subscription.queue, passive=passive, durable=not passive, arguments=arguments, callback=self._declared)
        else:
            self._prepare(subscription)

    def _prepare(self, subscription: Declared) -> None:
        for name, arguments in subscription.queues:
            wanted = name == subscription.queue
            self.channel.queue_declare(name, durable=True, arguments=arguments, callback=self._declared if wanted else lambda _: None)

    def _bind(self, tap: Tap, declared: Any) -> None:
        arguments = {"x-match": "all"}  # on a headers exchange: everything; no other type looks at it
        then = partial(self._declared, declared)
        self.channel.queue_bind(declared.method.queue, tap.exchange, tap.routing_key, arguments, callback=lambda _: then())

    def _declared(self, declared: Any) -> None:
        self.channel.basic_qos(prefetch_count=self._prefetch, callback=lambda _: self._consume(declared.method.queue))

    def _consume(self, queue: str) -> None:
        # Deliveries go to `heard`; pika only wants to see a callback.
        self._consumer = self.channel.basic_consume(queue, lambda *_: None, callback=lambda _: self._link.ready())

    def _channel_closed(self, passive: bool, _: Channel, reason: Exception) -> None:
        code = reason.reply_code if isinstance(reason, ChannelClosedByBroker) else 0
        if not self._consumer and self._subscription.falls_back(code, passive=passive):
            self._open(passive=not passive)
        else:
            self._link.fail(reason)

    def _cancelled(self, _: Any) -> None:
        self._link.fail(
            NotConnected(
                f"RabbitMQ cancelled the consumer of queue `{self._subscription[0]}`: the queue is gone, or, from RabbitMQ 4.3 on, a message "
                "was not acknowledged within its consumer timeout"
            )
        )

    def heard(self, events: list[Event]) -> None:
        """See link.Session."""
        self.inbox.extend(event for event in events if isinstance(event, Delivery))
        self.arrived.set()

    def closing(self, wire: Wire, then: Callable[[], None]) -> None:
        """See link.Session."""
        del wire
        if self._consumer and self.channel.is_open:
            self.channel.basic_cancel(self._consumer, callback=lambda _: then())
        else:
            then()

    def lost(self, reason: NotConnected) -> None:
        """See link.Session."""
        self.reason = reason
        self.arrived.set()

    def take(self, limit: int, timeout: float) -> list[Delivery]:
        """What has arrived, at most `limit`, less where messages are large; waits for the first. Raises NotConnected."""
        inbox = self.inbox
        if not inbox and self.reason is None:
            self.arrived.clear()
            if not inbox and self.reason is None:
                self.arrived.wait(timeout)
        if self.reason is not None:
            raise self.reason
        taken: list[Delivery] = []
        size = 0
        while inbox and len(taken) < limit and size < _BATCH_BYTES:
            taken.append(inbox.popleft())
            size += len(taken[-1].body)
        return taken

    def ack(self, tags: Sequence[int], *, multiple: bool) -> None:
        """Acknowledge these, on the link's thread; nothing happens where the channel is gone."""
        if self.channel.is_open:
            number = self.channel.channel_number
            self._wire.write([ack_frame(number, tag, multiple=multiple) for tag in (tags[-1:] if multiple else tags)])


class _Given(NamedTuple):
    """A batch that was given out: `left` has the tags of its unacknowledged messages by their places, `last` is the tag of its last message."""

    link: Link
    session: _Subscriber
    left: dict[int, int]
    last: int

    def ack_some(self, places: Sequence[int]) -> None:
        """See base.Batch."""
        self.ack([self.left.pop(place) for place in places], multiple=False)

    def ack(self, tags: Sequence[int], *, multiple: bool) -> None:
        """Acknowledge these; with `multiple` all up to the last of them."""
        if tags:
            self.link.post(lambda: self.session.ack(tags, multiple=multiple))


class RabbitSource:
    """Consumes one queue. At most `prefetch` messages are unacknowledged, here and in the bridge together.

    `stamped`: RabbitMQ writes onto each message when it received it, over what a producer may have written there. `hints`: what to do where RabbitMQ refuses
    the queue, by its reply code.
    """

    def __init__(
        self,
        parameters: Callable[[], Sequence[Parameters]],
        subscription: Subscription,
        *,
        prefetch: int,
        timeout: float,
        gated: Collection[str] = (),
        stamped: bool = False,
        hints: Mapping[int, str] | None = None,
    ) -> None:
        self._parameters = parameters
        self._subscription = subscription
        self._prefetch = prefetch
        self._timeout = timeout
        self._stamped = stamped
        self._hints = hints or {}
        self._gated = {name.encode(): real_of(name).encode() for name in gated}
        self.parted = True
        """See base.Parting."""
        self._link: Link | None = None
        self._session = _Subscriber(subscription, prefetch)
        self._open_batches: deque[int] = deque()

    def connect(self) -> None:
        """See base.Source. Declares a missing queue where the route says so."""
        self.close()
        self._session = _Subscriber(self._subscription, self._prefetch)
        self._open_batches = deque()
        link = Link(self._parameters(), self._session, self._timeout, f"rabbitmq source {self._subscription[0]}")
        try:
            link.start()
        except NotConnected as error:
            cause = error.__cause__
            hint = self._hints.get(cause.reply_code) if isinstance(cause, ChannelClosedByBroker) else None
            if hint is None:
                raise
            raise NotConnected(f"{error}: {hint}") from cause
        self._link = link

    def receive(self, limit: int, timeout: float) -> Batch | None:
        """See base.Source."""
        if self._link is None:
            raise NotConnected("the source is closed")
        deliveries = self._session.take(limit, timeout)
        if not deliveries:
            return None
        given = _Given(self._link, self._session, {place: delivery.tag for place, delivery in enumerate(deliveries)}, deliveries[-1].tag)
        self._open_batches.append(given.last)
        return Batch([self._received(delivery) for delivery in deliveries], partial(self._ack, given), given.ack_some)

    def _ack(self, given: _Given) -> None:
        """Acknowledge a batch: the oldest by one frame, any other by one per message, so that no earlier message is acknowledged with it."""
        oldest = given.session is self._session and self._open_batches[0] == given.last
        if given.session is self._session:
            self._open_batches.remove(given.last)
        given.ack(list(given.left.values()), multiple=oldest)

    def close(self) -> None:
        """See base.Source."""
        if self._link is not None:
            self.parted = self._link.close()
            self._link = None

    def _received(self, delivery: Delivery) -> Received:
        address = self._address(delivery)
        try:
            properties, headers = decode(delivery.properties)
            sent, counters = _broker_headers(headers)
            uncounted = without(headers, counters) if counters else headers
            added = [field for field in counters if field.tag == _COUNTS_IN]
            own = sorted_by_name(uncounted)  # as RabbitMQ's own code leaves them where it adds a counter
            key = key_of(headers)
        except MalformedTableError as error:
            damaged = Message(delivery.body, b"", NO_PROPERTIES)
            defect = Rejected(Reason.HEADER_DAMAGED, str(error))
            return Received(damaged, address, _token(delivery, delivery.properties), delivery.redelivered, defect=defect)
        identity = delivery.properties
        if own is not headers or not headers:  # an empty table is gone after a counter was put into it and taken off again
            identity = encode(properties, own)
        if delivery.redelivered and added:
            headers = without(headers, added)
        if b"CC" in headers and delivery.exchange in self._gated:
            properties = replace(properties, copies=True)
        message, token = Message(delivery.body, headers, properties, key), _token(delivery, identity)
        return Received(message, address, token, delivery.redelivered, sent if self._stamped else None)

    def _address(self, delivery: Delivery) -> str:
        """Where the producer sent it. What came by the default exchange was sent to the ingress queue itself, which is no destination."""
        exchange = delivery.exchange
        return exchange_address(self._gated.get(exchange, exchange), delivery.routing_key) if exchange else ""


def _broker_headers(table: bytes) -> tuple[int | None, list[Field]]:
    """When the broker received the message (epoch ms), as its interceptor or plug-in stamps it, and the counters that a redelivery adds."""
    stamp: int | None = None
    counters: list[Field] = []
    if not any(name in table for name in _ADDED):  # most tables need no walk
        return stamp, counters
    for field in fields(table):
        if field.name == _STAMP:
            value = value_of(field)
            stamp = value if type(value) is int else stamp
        elif field.name in _COUNTERS:
            counters.append(field)
    return stamp, counters


def _token(delivery: Delivery, properties: bytes) -> bytes:
    """Equal for equal content that was sent to the same exchange and key."""
    exchange, key = delivery.exchange, delivery.routing_key
    digest = blake2b(bytes((len(exchange), len(key))) + len(properties).to_bytes(4, "big"), digest_size=16)
    for part in (exchange, key, properties, delivery.body):
        digest.update(part)
    return digest.digest()
