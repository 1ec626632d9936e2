"""A sink's session on a scripted broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from pika import ConnectionParameters, PlainCredentials
from pika.exceptions import AMQPError, NoFreeChannels

from delaybridge.adapters.base import AdapterError, BackOff, Outcome, Outgoing, Rejected
from delaybridge.adapters.rabbitmq.sink import _Publisher
from delaybridge.adapters.rabbitmq.suspects import Suspects
from delaybridge.adapters.rabbitmq.wire import Confirmed
from delaybridge.core.message import NO_PROPERTIES, Properties, message

if TYPE_CHECKING:
    from collections.abc import Callable

    from delaybridge.core import fields

LIMIT = 131064


class FakeChannel:
    """Opens at once, and closes when the script says so."""

    def __init__(self, wire: FakeWire, number: int) -> None:
        self.wire = wire
        self.channel_number = number
        self.is_open = True
        self.closed: Callable[[Any, Exception], None] = lambda *_: None

    def add_on_close_callback(self, callback: Callable[[Any, Exception], None]) -> None:
        self.closed = callback

    def confirm_delivery(self, _: object) -> None: ...

    def close(self) -> None:
        self.breaks(AMQPError("closed by us"))

    def breaks(self, reason: Exception) -> None:
        self.is_open = False
        del self.wire.open[self.channel_number]
        self.closed(self, reason)


class FakeWire:
    """Counts what is published on each channel."""

    is_open = True
    payload_limit = LIMIT
    params = ConnectionParameters(credentials=PlainCredentials("guest", "secret"))
    channels_left = 2047

    def __init__(self) -> None:
        self.open: dict[int, FakeChannel] = {}
        self.opened = 0
        self.opening: list[Callable[[], None]] | None = None  # where channels open when the script says so
        self.written: list[bytes] = []

    def add_on_connection_blocked_callback(self, callback: object) -> None: ...

    def add_on_connection_unblocked_callback(self, callback: object) -> None: ...

    def channel(self, on_open_callback: Callable[[FakeChannel], None]) -> FakeChannel:
        if len(self.open) >= self.channels_left:
            raise NoFreeChannels
        self.opened += 1
        channel = self.open[self.opened] = FakeChannel(self, self.opened)
        if self.opening is None:
            on_open_callback(channel)
        else:
            channel.is_open = False
            self.opening.append(lambda: on_open_callback(channel))
        return channel

    def write(self, pieces: list[bytes]) -> None:
        self.written.append(b"".join(pieces))

    @property
    def published(self) -> int:
        return sum(data.count(b"\x00\x3c\x00\x28") for data in self.written)


class FakeLink:
    def ready(self) -> None: ...

    def post(self, call: Callable[[], None]) -> None:
        call_later.append(call)


call_later: list[Callable[[], None]] = []


class Stage:
    def __init__(self, suspects: Suspects | None = None, *, impersonates: bool = False, session: _Publisher | None = None) -> None:
        self.heard: list[Outcome] = []
        self.wire = FakeWire()
        self.session = session or _Publisher(self.heard.extend, suspects or Suspects(), impersonates=impersonates)
        self.session.opened(cast("Any", FakeLink()), cast("Any", self.wire))

    def publish(self, *tags: str, address: str = "/exchanges/x/k", properties: Properties = NO_PROPERTIES, **headers: fields.Value) -> None:
        self.session.submit([Outgoing(tag.encode(), address, message(tag.encode(), headers, properties)) for tag in tags])
        self.run()

    def run(self) -> None:
        while call_later:
            call_later.pop(0)()

    def ack(self, number: int, *, multiple: bool = False, ok: bool = True, channel: int = 1) -> None:
        self.session.heard([Confirmed(channel, number, multiple, ok)])
        self.run()

    @property
    def outcomes(self) -> dict[str, str]:
        return {tag.decode(): word(error) for tag, error in self.heard}


def word(error: AdapterError | None) -> str:
    if error is None:
        return "confirmed"
    return error.reason if isinstance(error, BackOff | Rejected) else type(error).__name__
