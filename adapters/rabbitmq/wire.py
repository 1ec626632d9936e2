"""Content on the wire, byte for byte.

pika decodes every header table: it cuts floats, widens integers, drops duplicates, and dies on a table nested some five hundred levels deep.
Here tables stay raw bytes, and the 13 properties are read without interpreting them. `Wire` is pika's connection with its reading side
replaced for what carries load:

    deliver, return, ack, nack, content headers and bodies  -> events, handed over in one list per read from the socket
    everything else                                         -> pika

It walks each read with an offset instead of trimming the buffer per frame. tests/unit/rabbitmq/test_wire.py fails when pika changes a member
that is used here.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from pika import SelectConnection
from pika.exceptions import InvalidFrameError, StreamLostError, UnexpectedFrameError
from pika.frame import decode_frame

from ...core.fields import MalformedTableError
from ...core.message import Properties

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_FRAME = struct.Struct(">BHI")  # type, channel, length of the payload
_CONTENT = struct.Struct(">HHQ")  # class, weight, size of the body
_METHOD = struct.Struct(">I")
_TAG = struct.Struct(">QB")
_SHORT = struct.Struct(">H")
_SIZE = struct.Struct(">I")
_TIME = struct.Struct(">Q")
FRAME_OVERHEAD = _FRAME.size + 1
CONTENT_OVERHEAD = _CONTENT.size  # of a content header's payload; the properties follow
_END = b"\xce"
_FRAME_METHOD, _FRAME_HEADER, _FRAME_BODY = 1, 2, 3
_BASIC = 60
_PUBLISH, _RETURN, _DELIVER, _ACK, _NACK = ((_BASIC << 16) + method for method in (40, 50, 60, 80, 120))
_MANDATORY = 1
DIRECT_REPLY = b"amq.rabbitmq.reply-to."
"""How the keys begin that RabbitMQ gives requesters instead of a queue: see its `Direct Reply-to`."""
_RECEIVE = 65536  # bytes asked from the socket at once; pika asks for 4 KiB, four system calls where one does


class Delivery(NamedTuple):
    """One message of a consumer. `properties` are the raw bytes of the content header after the body's size."""

    tag: int
    redelivered: bool
    exchange: bytes
    routing_key: bytes
    properties: bytes
    body: bytes


class Returned(NamedTuple):
    """A mandatory message that no queue took; an ack for it follows."""

    channel: int
    reason: str
    routing_key: bytes
    properties: bytes
    body: bytes


class Confirmed(NamedTuple):
    """An ack (`ok`) or nack of the message with this number, or with `multiple` of all up to it."""

    channel: int
    number: int
    multiple: bool
    ok: bool


Event = Delivery | Returned | Confirmed


def _short_string(data: bytes, at: int) -> tuple[bytes, int]:
    end = at + 1 + data[at]
    return data[at + 1 : end], end


def _delivery(frame: bytes) -> tuple[Any, ...]:
    _, at = _short_string(frame, 4)  # the consumer's tag
    tag, bits = _TAG.unpack_from(frame, at)
    exchange, at = _short_string(frame, at + _TAG.size)
    routing_key, _ = _short_string(frame, at)
    return Delivery, tag, bits & 1 == 1, exchange, routing_key


def _return(frame: bytes, channel: int) -> tuple[Any, ...]:
    text, at = _short_string(frame, 6)  # after the reply code
    _, at = _short_string(frame, at)  # the exchange
    routing_key, _ = _short_string(frame, at)
    return Returned, channel, text.decode(errors="replace"), routing_key


class Wire(SelectConnection):
    """A connection whose deliveries, returns and confirmations go to `listener`, in order, before pika sees the frame that follows them."""

    listener: Callable[[list[Event]], None]

    def __init__(self, **arguments: Any) -> None:
        self._events: list[Event] = []
        self._method: tuple[Any, ...] | None = None
        self._properties = b""
        self._missing = 0
        self._parts: list[bytes] = []
        super().__init__(**arguments)

    def _proto_connection_made(self, transport: Any) -> None:
        transport._MAX_RECV_BYTES = _RECEIVE  # noqa: SLF001  pika has no setting for it
        super()._proto_connection_made(transport)

    def _on_data_available(self, data_in: bytes) -> None:
        if not self._opened:
            super()._on_data_available(data_in)
            return
        buffer = self._frame_buffer + data_in if self._frame_buffer else data_in
        at = self._walk(buffer)
        self._frame_buffer = buffer[at:]
        self.bytes_received += at
        self._hand_over()

    def _walk(self, buffer: bytes) -> int:
        """Take all complete frames; returns where the first incomplete one begins."""
        at, size = 0, len(buffer)
        while size - at >= FRAME_OVERHEAD:
            kind, channel, length = _FRAME.unpack_from(buffer, at)
            start = at + _FRAME.size
            end = start + length
            if end >= size:
                break
            if buffer[end] != _END[0]:
                raise InvalidFrameError("wrong end of frame")
            if kind == _FRAME_BODY:
                self._take_body(buffer[start:end])
            elif kind == _FRAME_HEADER:
                self._take_header(buffer[start:end])
            elif kind != _FRAME_METHOD or not self._take_method(buffer[start:end], channel):
                self._hand_over()
                _, frame = decode_frame(buffer[at : end + 1])
                assert frame is not None
                self._process_frame(frame)
            at = end + 1
        return at

    def _take_method(self, frame: bytes, channel: int) -> bool:
        (method,) = _METHOD.unpack_from(frame)
        if method == _DELIVER:
            self._method = _delivery(frame)
        elif method in {_ACK, _NACK}:
            number, bits = _TAG.unpack_from(frame, 4)
            self._events.append(Confirmed(channel, number, bits & 1 == 1, method == _ACK))
        elif method == _RETURN:
            self._method = _return(frame, channel)
        else:
            return False
        return True

    def _take_header(self, frame: bytes) -> None:
        if self._method is None:
            raise UnexpectedFrameError("a content header without its method")
        _, _, self._missing = _CONTENT.unpack_from(frame)
        self._properties = frame[_CONTENT.size :]
        if not self._missing:
            self._complete(b"")

    def _take_body(self, part: bytes) -> None:
        if self._method is None:
            raise UnexpectedFrameError("a body without its method")
        self._missing -= len(part)
        if self._missing or self._parts:
            self._parts.append(part)
        if not self._missing:
            self._complete(b"".join(self._parts) if self._parts else part)

    def _complete(self, body: bytes) -> None:
        assert self._method is not None
        event, *fields = self._method
        self._events.append(event(*fields, self._properties, body))
        self._method = None
        self._parts.clear()

    def _hand_over(self) -> None:
        if self._events:
            events, self._events = self._events, []
            self.listener(events)

    def write(self, pieces: Sequence[bytes]) -> None:
        """Send marshalled frames."""
        self._output_marshaled_frames([b"".join(pieces)])

    @property
    def payload_limit(self) -> int:
        """The most bytes that one frame carries."""
        return self._body_max_length

    def abort(self) -> None:
        """Drop the connection without a farewell."""
        if not self.is_closed:
            self._terminate_stream(StreamLostError("given up waiting for the broker"))


def publish_frame(channel: int, exchange: bytes, routing_key: bytes) -> bytes:
    """A basic.publish, ready to send; the same for all messages that go there. It is `mandatory`, unless it is a direct reply.

    RabbitMQ returns a mandatory one, because there is no queue, although it has delivered it. That a requester has gone it does not tell.
    """
    flags = 0 if not exchange and routing_key.startswith(DIRECT_REPLY) else _MANDATORY
    payload = b"".join((
        _METHOD.pack(_PUBLISH), b"\0\0", bytes((len(exchange),)), exchange, bytes((len(routing_key),)), routing_key, bytes((flags,)),
    ))  # fmt: skip
    return _FRAME.pack(_FRAME_METHOD, channel, len(payload)) + payload + _END


def ack_frame(channel: int, tag: int, *, multiple: bool) -> bytes:
    """A basic.ack, ready to send."""
    payload = _METHOD.pack(_ACK) + _TAG.pack(tag, multiple)
    return _FRAME.pack(_FRAME_METHOD, channel, len(payload)) + payload + _END


def content_frames(channel: int, properties: bytes, body: bytes, limit: int) -> list[bytes]:
    """Content header and body as pieces to send; a frame carries at most `limit` bytes."""
    pieces = [
        _FRAME.pack(_FRAME_HEADER, channel, _CONTENT.size + len(properties)) + _CONTENT.pack(_BASIC, 0, len(body)),
        properties,
        _END,
    ]
    for start in range(0, len(body), limit):
        part = body[start : start + limit]
        pieces += (_FRAME.pack(_FRAME_BODY, channel, len(part)), part, _END)
    return pieces


# Property flags in the order in which the properties stand on the wire; the header table stands third.
_HEADERS = 1 << 13
_TEXTS_BEFORE = ((1 << 15, "content_type"), (1 << 14, "content_encoding"))
_OCTETS = ((1 << 12, "delivery_mode"), (1 << 11, "priority"))
_TEXTS_BETWEEN = ((1 << 10, "correlation_id"), (1 << 9, "reply_to"), (1 << 8, "expiration"), (1 << 7, "message_id"))
_TIMESTAMP = 1 << 6
_TEXTS_AFTER = ((1 << 5, "type"), (1 << 4, "user_id"), (1 << 3, "app_id"), (1 << 2, "cluster_id"))
_UNKNOWN = 0b11  # reserved, and "more flags follow"


def decode(raw: bytes) -> tuple[Properties, bytes]:
    """Properties and header table of a content header. Raises MalformedTableError where there is more or less than the 13 properties."""
    values: dict[str, Any] = {}
    try:
        (flags,) = _SHORT.unpack_from(raw)
        if flags & _UNKNOWN:
            raise MalformedTableError(f"unknown property flags {flags & _UNKNOWN:#04b}")
        at, table = _texts(raw, 2, flags, _TEXTS_BEFORE, values), b""
        if flags & _HEADERS:
            start = at + 4
            at = start + _SIZE.unpack_from(raw, at)[0]
            table = raw[start:at]
        for flag, name in _OCTETS:
            if flags & flag:
                values[name] = raw[at]
                at += 1
        at = _texts(raw, at, flags, _TEXTS_BETWEEN, values)
        if flags & _TIMESTAMP:
            (values["timestamp"],) = _TIME.unpack_from(raw, at)
            at += 8
        at = _texts(raw, at, flags, _TEXTS_AFTER, values)
    except (IndexError, struct.error) as error:
        raise MalformedTableError("the content header is cut off") from error
    if at != len(raw):
        raise MalformedTableError("the content header does not end where its properties do")
    return Properties(**values), table


def _texts(raw: bytes, at: int, flags: int, texts: tuple[tuple[int, str], ...], values: dict[str, Any]) -> int:
    for flag, name in texts:
        if flags & flag:
            end = at + 1 + raw[at]
            values[name] = raw[at + 1 : end]
            at = end
    return at


def encode(properties: Properties, table: bytes) -> bytes:
    """What `decode` read, the same bytes again. Raises ValueError where a value does not fit."""
    flags, pieces = 0, [b""]
    flags |= _put_texts(properties, _TEXTS_BEFORE, pieces)
    if table:
        flags |= _HEADERS
        pieces += (_SIZE.pack(len(table)), table)
    for flag, name in _OCTETS:
        value = getattr(properties, name)
        if value is not None:
            flags |= flag
            pieces.append(bytes((value,)))
    flags |= _put_texts(properties, _TEXTS_BETWEEN, pieces)
    if properties.timestamp is not None:
        flags |= _TIMESTAMP
        pieces.append(properties.timestamp.to_bytes(8, "big"))
    flags |= _put_texts(properties, _TEXTS_AFTER, pieces)
    pieces[0] = _SHORT.pack(flags)
    return b"".join(pieces)


def _put_texts(properties: Properties, texts: tuple[tuple[int, str], ...], pieces: list[bytes]) -> int:
    flags = 0
    for flag, name in texts:
        value = getattr(properties, name)
        if value is not None:
            flags |= flag
            pieces += (bytes((len(value),)), value)
    return flags
