"""One exchange and its channel: messages that are published there, in order, and what RabbitMQ says of each. See sink.py for what it says."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from pika.exceptions import AMQPError, ChannelClosedByBroker, NoFreeChannels

from ...core.fields import named, value_of
from ...core.headers import DUE, ID, OCCURRENCE
from ...core.reasons import Reason
from ..base import AdapterError, BackOff, Rejected
from .link import ACCESS_REFUSED, NOT_FOUND, not_connected
from .wire import content_frames, decode, publish_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pika.channel import Channel

    from ...core.fields import Value
    from .wire import Confirmed, Returned, Wire

_DELIVERY = frozenset((ID, OCCURRENCE, DUE))
_WRITE = 65536  # bytes handed to the socket at once
_KEYS = 4096  # that an outlet remembers


class Outlets(Protocol):
    """What holds the outlets of one connection, on its thread. `channels`: the outlets whose channels are open, by the channel's number."""

    wire: Wire
    channels: dict[int, Outlet]

    def outcome(self, message: Prepared, failure: AdapterError | None) -> None:
        """Note an outcome; `report` tells it."""
        ...

    def report(self) -> None:
        """Tell all outcomes that are ready."""
        ...

    def give_up(self, outlet: Outlet, failure: AdapterError) -> None:
        """Forget an outlet; all that it holds has this outcome."""
        ...

    def close_idle(self) -> None:
        """Give back the channels on which nothing is under way."""
        ...


class Prepared:
    """One message, ready for the wire."""

    __slots__ = ("body", "failure", "properties", "routing_key", "tag")

    def __init__(self, tag: bytes, routing_key: bytes, properties: bytes, body: bytes) -> None:
        self.tag = tag
        self.routing_key = routing_key
        self.properties = properties
        self.body = body
        self.failure: AdapterError | None = None


class Outlet:
    """One exchange and its channel.

    waiting        messages that are not on the wire yet
    flying         messages that are on the wire and not confirmed, by number
    number         that of the message published last; RabbitMQ counts from 1 on each channel
    lowest         the lowest number that may not be confirmed yet
    return_after   the number of the last message that came back: those that come back later have higher ones
    careful        how many messages are still to be published one at a time, to find the one for which RabbitMQ closed the channel
    refused        the routing keys that we had no right to write: their messages go alone, because each further refusal closes the channel for all on the wire
    frames         basic.publish, ready to send, by routing key
    """

    def __init__(self, exchange: bytes, outlets: Outlets) -> None:
        self.exchange = exchange
        self._outlets = outlets
        self._channel: Channel | None = None
        self._waiting: deque[Prepared] = deque()
        self._flying: dict[int, Prepared] = {}
        self._number = 0
        self._lowest = 1
        self._return_after = 0
        self._careful = 0
        self._refused: set[bytes] = set()
        self._frames: dict[bytes, bytes] = {}

    @property
    def idle(self) -> bool:
        """Nothing is under way."""
        return not self._waiting and not self._flying

    @property
    def flying(self) -> list[bytes]:
        """The tags of what is on the wire."""
        return [message.tag for message in self._flying.values()]

    def send(self, messages: Sequence[Prepared]) -> None:
        """Publish, or keep until the channel is open."""
        self._waiting.extend(messages)
        if self._channel is None:
            try:
                self._channel = self._outlets.wire.channel(on_open_callback=self._opened)
            except NoFreeChannels as error:
                self._outlets.close_idle()  # for the next try
                self._outlets.give_up(self, BackOff(Reason.REFUSED_BY_BROKER, repr(error)))
        elif self._channel.is_open:
            self._flush()

    def drain(self) -> list[Prepared]:
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
        self._outlets.channels[channel.channel_number] = self
        channel.add_on_close_callback(self._closed)
        channel.confirm_delivery(lambda _: None)  # the broker reads it before what follows; acks come to `confirmed`
        self._flush()

    def _flush(self) -> None:
        assert self._channel is not None
        wire, channel = self._outlets.wire, self._channel.channel_number
        pieces: list[bytes] = []
        size = 0
        while self._waiting and (not self._flying or self._may_join(self._waiting[0])):
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

    def _may_join(self, message: Prepared) -> bool:
        """Whether it may be on the wire together with what is there."""
        if self._careful:
            return False
        if not self._refused:
            return True
        first = next(iter(self._flying.values()))  # one whose key was refused is the only one
        return self._refused.isdisjoint((first.routing_key, message.routing_key))

    def _frame(self, channel: int, routing_key: bytes) -> bytes:
        frame = self._frames.get(routing_key)
        if frame is None:
            if len(self._frames) >= _KEYS:
                self._frames.clear()
            frame = self._frames[routing_key] = publish_frame(channel, self.exchange, routing_key)
        return frame

    def confirmed(self, event: Confirmed) -> None:
        """Settle one message, or all up to it. Each number is stepped over once, so this takes time only for what it settles."""
        if event.multiple:
            for number in range(self._lowest, event.number + 1):
                self._settle(self._flying.pop(number, None), event.ok)
            self._lowest = event.number + 1
        else:
            self._settle(self._flying.pop(event.number, None), event.ok)
            self._lowest += event.number == self._lowest
        if self._waiting:
            self._flush()

    def _settle(self, message: Prepared | None, ok: bool) -> None:
        if message is None:
            return
        if not ok:
            message.failure = BackOff(
                Reason.REFUSED_BY_BROKER, f"RabbitMQ did not take it (basic.nack) for exchange {_name(self.exchange)}"
            )
        self._careful = max(0, self._careful - 1)
        self._refused.discard(message.routing_key)
        self._outlets.outcome(message, message.failure)

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
        self._outlets.channels.pop(channel.channel_number, None)
        self._channel = None
        if not isinstance(reason, ChannelClosedByBroker):
            return  # it was idle; or the connection ends, and whoever holds all outlets tells what becomes of what is under way
        flying = len(self._flying)
        if not flying:
            self._outlets.give_up(self, not_connected(reason))
        elif reason.reply_code == NOT_FOUND:
            self._outlets.give_up(self, BackOff(Reason.UNROUTABLE, reason.reply_text))
        else:
            unanswered = self.drain()
            if flying == 1:
                self._fail(unanswered.pop(0), reason)
            self._careful = max(flying, self._careful) - (flying == 1)
            if unanswered:
                self.send(unanswered)
        self._outlets.report()

    def _fail(self, culprit: Prepared, reason: ChannelClosedByBroker) -> None:
        if reason.reply_code == ACCESS_REFUSED:
            if len(self._refused) >= _KEYS:
                self._refused.clear()
            self._refused.add(culprit.routing_key)
        self._outlets.outcome(culprit, _refusal(reason))


def _refusal(reason: ChannelClosedByBroker) -> AdapterError:
    if reason.reply_code == ACCESS_REFUSED:
        return BackOff(Reason.REFUSED_BY_BROKER, reason.reply_text)
    return Rejected(Reason.REJECTED_BY_BROKER, reason.reply_text)


def _same(message: Prepared, returned: Returned) -> bool:
    """Whether this message is the one that came back.

    On the way RabbitMQ takes `BCC` off, its interceptors write headers, and RabbitMQ 4 drops names that stand twice. So of the headers only those count that
    tell deliveries apart.
    """
    if message.routing_key != returned.routing_key or message.body != returned.body:
        return False
    return message.properties == returned.properties or _delivery(message.properties) == _delivery(returned.properties)


def _delivery(properties: bytes) -> dict[bytes, Value]:
    return {field.name: value_of(field) for field in named(decode(properties)[1], _DELIVERY)}


def _name(raw: bytes) -> str:
    """An exchange or a key, for people."""
    return repr(raw.decode(errors="replace"))
