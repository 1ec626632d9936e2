"""From a MESSAGE frame to a message of the bridge.

    expires - timestamp         expiration, the time to live in ms; none where that is not after the other. If nothing says when it was sent, as of AMQP 1.0
                                clients that give no time, what is left of it now
    timestamp                   timestamp_ms and `Received.sent`, unless `x-delay-timestamp` says that the message is older than that
    persistent                  delivery_mode, 2 or 1
    priority, correlation-id, reply-to, type, content-type, content-encoding, app-id     the property of that name
    x-delay-message-id          message_id, as it was where the message came from; else ActiveMQ's own message-id
    x-delay-key (or x_delay_key, or x-delay-key_base64)     key, and stays a header: ActiveMQ does not show JMSXGroupID to STOMP clients
    content-length              bytes, else text; `amq-msg-type` says so where a text holds NULs, and on Artemis its place, see `_text_of_artemis`

A property of a JMS producer stands in the place of a header of that name. So a `timestamp` from before its producer began, which message ids tell, and
an id that is not of ActiveMQ's making are not believed: else a message would be early, or taken for a copy of another one.

All other headers are text, as STOMP has nothing else, and stand in the order of their names: ActiveMQ gives them in none.

ActiveMQ gives a map, an object or a stream to a STOMP client as an empty text, and says nothing. (It would give maps as JSON to a subscription that asks
for it, but then an object of a class that the broker does not trust ends the connection, again and again.) So an empty text is refused if it may
have been one of these: if its producer did not send by STOMP, or asked for a transformation. A command, whose body is ignored, is none.
Of a map with several fields Artemis gives a piece, which begins with a NUL.
"""

from __future__ import annotations

import base64
import binascii
import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.message import PERSISTENT, Message, Properties
from ...core.reasons import Reason
from ..base import Received, Rejected
from .frames import ProtocolError, unescaped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .frames import Frame

TIMESTAMP, MESSAGE_ID, TOMBSTONE, KEY = b"x-delay-timestamp", b"x-delay-message-id", b"x-delay-tombstone", b"x-delay-key"
TEXTS = {
    b"correlation-id": "correlation_id",
    b"reply-to": "reply_to",
    b"type": "type",
    b"content-type": "content_type",
    b"content-encoding": "content_encoding",
    b"app-id": "app_id",
}
"""Headers that are properties of the same meaning; the first three have a place of their own in ActiveMQ's messages."""

_OF_DELIVERY = frozenset((b"ack", b"subscription", b"redelivered"))
"""Headers that say how a message is given to us, and nothing of itself."""

USUAL_PRIORITY = 4
"""What a message has where nothing is said."""

_TAKEN = frozenset((
    b"destination", b"destination-type", b"original-destination", b"message-id", b"subscription", b"ack", b"redelivered", b"persistent", b"priority",
    b"expires", b"timestamp", b"content-length", b"amq-msg-type", MESSAGE_ID, *TEXTS,
))  # fmt: skip
_LONGEST_NAME = 255
_COUNTED = re.compile(rb"(?:(?::|\\c)-?\d+){3}$")
"""How ActiveMQ's message ids end, escaped or not: session, producer, message."""
_CONNECTED = re.compile(rb"-(\d{13})-\d+:\d+:-?\d+:-?\d+:\d+$")
"""How those of its Java clients end: when the client began (ms), its connection, and these."""
_BY_STOMP = re.compile(rb":-1:\d+:\d+$")  # ActiveMQ's own session -1 stands for the clients of its STOMP connectors
_COMMANDS = frozenset((b"x-delay-cancel", b"x_delay_cancel", b"AMQ_SCHEDULER_ACTION"))


class Rules(NamedTuple):
    """What a source believes.

    `gates`: the destinations that ActiveMQ diverts to us; no other is believed to be where a message was sent. `carry_empty`: an empty text is an empty text,
    whoever sent it.
    """

    gates: Sequence[re.Pattern[str]] = ()
    carry_empty: bool = False


def received(frame: Frame, rules: Rules, now: int | None = None) -> Received:
    """What a frame of our subscription holds, which is read at `now` (epoch ms)."""
    token = _token(frame)
    try:
        headers = {
            name if b"\\" not in name else unescaped(name): value if b"\\" not in value else unescaped(value)
            for name, value in frame.headers.items()
        }
    except ProtocolError as error:
        return _unread(frame, token, Rejected(Reason.HEADER_DAMAGED, str(error)))
    table, too_long = _table(headers)
    sent = _sent(headers)
    message = Message(frame.body, table, _properties(headers, sent, now, _is_text(frame)), _key(headers))
    return Received(
        message, _address(headers, rules.gates), token, redelivered=True, sent=sent, defect=_defect(frame, headers, rules) or too_long
    )


def _unread(frame: Frame, token: bytes, defect: Rejected) -> Received:
    """What has headers that cannot be kept: the body, as lasting as it was."""
    message = Message(frame.body, b"", Properties(delivery_mode=_delivery_mode(frame.headers)))
    return Received(message, "", token, redelivered=True, defect=defect)


def _token(frame: Frame) -> bytes:
    """The broker's name for a message, which tells it from all others.

    Of copies for several destinations ActiveMQ lets some through with one id: where they were sent tells them apart. Artemis counts messages, from the
    beginning where it restarts without a journal, and puts the consumer's number before: without that, and with the message's time, it is a name. An id
    that is not of ActiveMQ's making, as an AMQP 1.0 producer's, is one together with all else that is said of the message: ActiveMQ cannot read such an id in
    our acknowledgement, closes the connection, and gives the message again. Not without a time, as the connector with `transport.transformer=jms` gives none
    by itself: there nothing may tell equal messages apart.
    """
    headers = frame.headers
    _, artemis, number = headers.get(b"message-id", b"").rpartition(b",")
    if artemis:
        return number + b"@" + headers.get(b"timestamp", b"")
    if not _COUNTED.search(number):
        if headers.get(b"timestamp", b"").strip(b"0"):
            return _digest(frame)
        return number + b"@" + headers.get(b"ack", b"")  # a copy would be another message, and no other message a copy
    came_to = headers.get(b"original-destination")
    return number if came_to is None else number + b"@" + came_to


def _digest(frame: Frame) -> bytes:
    """Of all that a redelivery has alike."""
    digest = blake2b(frame.body, digest_size=16)
    for name, value in sorted(frame.headers.items()):
        if name not in _OF_DELIVERY:
            digest.update(b"\n%b:%b" % (name, value))
    return digest.digest()


def _table(headers: dict[bytes, bytes]) -> tuple[bytes, Rejected | None]:
    """What fits into a table, and why not all does."""
    out: list[bytes] = []
    defect: Rejected | None = None
    for name in sorted(headers):
        if len(name) > _LONGEST_NAME:
            defect = Rejected(Reason.TOO_LARGE, f"a header name holds at most {_LONGEST_NAME} bytes, this one has {len(name)}")
        elif name not in _TAKEN:
            value = headers[name]
            out.append(b"%c%bS%b%b" % (len(name), name, len(value).to_bytes(4, "big"), value))
    return b"".join(out), defect


def _key(headers: dict[bytes, bytes]) -> bytes | None:
    for name in (KEY, b"x_delay_key"):
        if name in headers:
            return headers[name]
    encoded = headers.get(KEY + b"_base64")
    try:
        return None if encoded is None else base64.b64decode(encoded, validate=True)
    except binascii.Error:
        return None


def _number(value: bytes | None) -> int | None:
    """A positive number, else None: a property of a JMS producer can stand in any header's place."""
    return (int(value) or None) if value is not None and value.isdigit() and len(value) < 19 else None


def _sent(headers: dict[bytes, bytes]) -> int | None:
    """When it was sent, by its producer's clock: not before that began."""
    sent, began = _number(headers.get(b"timestamp")), _CONNECTED.search(headers.get(b"message-id", b""))
    return None if began and sent is not None and sent < int(began[1]) else sent


def _delivery_mode(headers: dict[bytes, bytes]) -> int:
    return PERSISTENT if headers.get(b"persistent") == b"true" else 1


def _properties(headers: dict[bytes, bytes], sent: int | None, now: int | None, text: bool) -> Properties:
    values: dict[str, Any] = {TEXTS[name]: headers[name] for name in TEXTS.keys() & headers.keys()}
    expires = _number(headers.get(b"expires"))
    since = now if sent is None else sent
    if expires is not None and since is not None and expires > since:  # the broker hands out nothing that has expired
        values["expiration"] = b"%d" % (expires - since)
    priority = headers.get(b"priority", b"")
    return Properties(
        **values,
        message_id=headers.get(MESSAGE_ID) or headers.get(b"message-id", b"").rpartition(b",")[2] or None,
        delivery_mode=_delivery_mode(headers),
        priority=int(priority) if len(priority) == 1 and priority.isdigit() else USUAL_PRIORITY,
        timestamp_ms=_number(headers.get(TIMESTAMP)) or sent,
        text=text,
    )


def _is_text(frame: Frame) -> bool:
    return not frame.sized or frame.headers.get(b"amq-msg-type") == b"text" or _text_of_artemis(frame)


def _text_of_artemis(frame: Frame) -> bool:
    """Artemis gives texts with their length, too. It puts that of bytes before all that it says of a message, that of a text behind it."""
    if not frame.sized or b"," not in frame.headers.get(b"message-id", b""):
        return False
    names = list(frame.headers)
    return names.index(b"content-length") > names.index(b"message-id")


def _address(headers: dict[bytes, bytes], gates: Sequence[re.Pattern[str]]) -> str:
    """Where the producer sent it, if that is one of the gates; else nothing says so that can be believed."""
    came_to = headers.get(b"original-destination", b"").decode(errors="replace")
    return came_to if any(gate.fullmatch(came_to) for gate in gates) else ""


def _defect(frame: Frame, headers: dict[bytes, bytes], rules: Rules) -> Rejected | None:
    if frame.broken:
        return Rejected(
            Reason.HEADER_DAMAGED,
            "a header's name has an end of line in it: ActiveMQ escapes none, so it comes in pieces, maybe of the body",
        )
    if frame.body.startswith(b"\0") and _text_of_artemis(frame):
        return Rejected(
            Reason.UNSUPPORTED_BODY, "a map or a stream, of which Artemis gives a piece to STOMP clients, as a text that begins with NUL"
        )
    if frame.body or frame.sized:
        return None
    if b"transformation" not in headers and (rules.carry_empty or _BY_STOMP.search(headers.get(b"message-id", b""))):
        return None
    if _COMMANDS & headers.keys():
        return None
    return Rejected(
        Reason.UNSUPPORTED_BODY, "an empty text, or a map, an object or a stream, which ActiveMQ empties for STOMP; see `empty_messages`"
    )
