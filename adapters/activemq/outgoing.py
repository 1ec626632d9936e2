"""From a message of the bridge to a SEND frame: what ActiveMQ can say of it, and what becomes of the rest.

Properties. `expires` is now plus the time to live, and `timestamp` is now; where the message was first sent earlier, `x-delay-timestamp` says so, and
`x-delay-message-id` what its id was. A header of the table that would repeat a property is left out. ActiveMQ knows no partition. The key is
`JMSXGroupID`, so that messages of one key keep their order among several consumers, and `x-delay-key`, because STOMP clients do not see that. In a level
queue there are no groups: ActiveMQ would keep a group's messages from all bridges but one, also where that one has no room for more.

What ActiveMQ cannot read in a property's place must not stand there: it would close the connection and say nothing of which message it was. So a time to
live that ends after the largest number it knows is none, and a `reply-to` that looks like a destination of its own and is none is `x-header-reply-to`.

Headers are text: numbers in decimal, booleans as `true` and `false`, floats by their shortest text, null as the empty text, instants as epoch seconds,
tables and arrays as JSON. Bytes that are no UTF-8, and text that holds NUL, are base64 under `<name>_base64`. Of repeated headers the last counts.

Names that mean something to ActiveMQ on SEND, or to the client that receives it, are never an application's: such a header gets the name
`x-header-<name>`. So nobody can steer the broker through the bridge: neither another destination, nor an expiry, nor ActiveMQ's own scheduler. Only what
is sent in a producer's place keeps the names with which it asks for a delay. What ActiveMQ's AMQP connector noted of a message keeps its name on the way
back to ActiveMQ: without it a consumer is given the whole encoded message of an AMQP 1.0 producer as its body.

The body is bytes, or text where the message came as text, or where its content type says that it is and it is UTF-8.
"""

from __future__ import annotations

import base64
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ...core.fields import MalformedTableError, fields
from ...core.headers import CONTROL_NAMES, DELAY_NAMES
from ...core.reasons import Reason
from ..base import Rejected
from ..levelled import SINCE
from ..texts import text_of
from .frames import escaped
from .incoming import KEY, MESSAGE_ID, TEXTS, TIMESTAMP, TOMBSTONE, USUAL_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.message import Message, Properties

LONGEST_HEADER = 10_240
MOST_HEADERS = 1000
"""ActiveMQ's limits; beyond them it closes the connection."""
_OTHERS = 15
"""Room for the headers that others put into the frame: where it goes, its receipt or transaction, what shows that a message is scheduled."""
_LATEST = 2**63 - 1
_PADDING = bytes(range(33))
"""What ActiveMQ cuts off at both ends of a destination's name."""

_GROUP = b"JMSXGroupID"
_RESERVED = frozenset((
    b"destination", b"destination-type", b"original-destination", b"transaction", b"receipt", b"content-length", b"amq-msg-type", b"transformation",
    b"transformation-error", b"message-id", b"subscription", b"ack", b"id", b"selector", b"redelivered", b"persistent", b"priority", b"expires",
    b"timestamp", b"correlation-id", b"reply-to", b"type", b"browser", b"browser-end", b"heart-beat",
))  # fmt: skip
_STEERING = re.compile(rb"JMS|AMQ_SCHEDULE|_AMQ_|_HQ_|activemq\.|scheduledJobId")
_BY_AMQP = re.compile(rb"JMS_AMQP_(?!MA_x-opt-delivery-)")
"""What the AMQP connector notes, but for what asked for a delay: its consumers would see that again."""
_GROUP_SEQUENCE = re.compile(rb"-?\d{1,9}")
_DESTINATION = re.compile(rb"/(?:remote-temp-)?(?:queue|topic)/")
_TEXTUAL = re.compile(rb"text/|application/(?:[\w.-]+\+)?(?:json|xml)\b", re.IGNORECASE)
_REPEATED = {**TEXTS, b"message-id": "message_id", b"priority": "priority", b"expiration": "expiration"}
"""Headers that say what a property says where a broker has headers only (Kafka)."""


def harmless(name: bytes, value: bytes) -> bytes:
    """The name under which an application's header is sent: one that steers nothing."""
    if name == _GROUP or (name == b"JMSXGroupSeq" and _GROUP_SEQUENCE.fullmatch(value)):
        return name
    return b"x-header-" + name if name in _RESERVED or _STEERING.match(name) else name


def asking(name: bytes, value: bytes) -> bytes:
    """The same, but a header that asks the bridge for something keeps its name."""
    return name if name in CONTROL_NAMES else harmless(name, value)


def selectable(name: bytes, value: bytes) -> bytes:
    """The same for a destination with a gate: a selector cannot name what has a hyphen, so delay headers are spelled with `_`."""
    spelled = name.replace(b"-", b"_")
    return spelled if {name, spelled} <= DELAY_NAMES else asking(name, value)


def headers_of(message: Message, now: int, *, persistent: bool, named: Callable[[bytes, bytes], bytes] = harmless) -> tuple[bytes, bytes]:
    """All header lines of a SEND frame but `destination`, `transaction` and `receipt`, and the body. Raises Rejected.

    `named` gives each header of the application the name under which it goes out.
    """
    body = message.body or b""
    lines = _standard(message.properties, now, persistent=persistent)
    names = dict(_table(message, named))
    if message.body is None:
        names[TOMBSTONE] = b"true"
    lines += [_line(name, value) for name, value in names.items()]
    if not _is_text(message.properties, body):
        lines.append(b"content-length:%d\n" % len(body))
    elif b"\0" in body:
        lines.append(b"content-length:%d\namq-msg-type:text\n" % len(body))
    if len(lines) > MOST_HEADERS - _OTHERS:
        room = f"ActiveMQ takes {MOST_HEADERS} headers, and {_OTHERS} are kept free"
        raise Rejected(Reason.TOO_LARGE, f"{room}: a message may have {MOST_HEADERS - _OTHERS}, this one has {len(lines)}")
    return b"".join(lines), body


def check_size(body: bytes, largest: int) -> None:
    """Raises Rejected where the body is larger than the operator says that ActiveMQ takes."""
    if len(body) > largest:
        raise Rejected(Reason.TOO_LARGE, f"the body has {len(body)} bytes, `max_body_bytes` is {largest}")


def is_destination(name: bytes) -> bool:
    """Whether ActiveMQ can make this the destination of a reply, of several names too.

    Otherwise it closes the connection; or it takes the message and cannot read it again from its own disk, so that it does not even start any more.
    """
    name = name.strip(_PADDING)
    found = _DESTINATION.match(name)
    names, _, options = name[found.end() if found else 0 :].partition(b"?")
    parts = [part.strip(_PADDING) for part in names.split(b",")]
    return found is not None and b"%" not in options and all(part and not part.endswith(b"://") for part in parts)


def header_line(name: bytes, value: bytes) -> bytes:
    """One header, its value as text. Raises Rejected."""
    return _line(*_sayable(name, value))


def _line(name: bytes, value: bytes) -> bytes:
    line = b"%b:%b\n" % (escaped(name), escaped(value))
    if len(line) > LONGEST_HEADER:
        raise Rejected(Reason.TOO_LARGE, f"ActiveMQ takes headers of {LONGEST_HEADER} bytes; {name[:100]!r} has {len(line)}")
    return line


def _standard(properties: Properties, now: int, *, persistent: bool) -> list[bytes]:
    lines = [b"persistent:true\n" if persistent or properties.delivery_mode != 1 else b"persistent:false\n"]
    # The usual one would be a header more, and ActiveMQ allocates 10 KB for each that it reads.
    if properties.priority not in (None, USUAL_PRIORITY):
        lines.append(b"priority:%d\n" % min(9, properties.priority))
    if properties.expiration is not None:
        ttl = properties.expiration.removeprefix(b"+")  # which RabbitMQ takes
        if not ttl.isdigit():
            raise Rejected(Reason.REJECTED_BY_BROKER, f"the time to live is no number: {properties.expiration!r:.100}")
        expires = _expires(ttl, now)
        if expires is not None:
            lines.append(b"timestamp:%d\nexpires:%d\n" % (now, expires))
    for name in TEXTS:
        value = getattr(properties, TEXTS[name])
        if value is not None:
            lines.append(header_line(b"x-header-reply-to" if name == b"reply-to" and not _replies(value) else name, value))
    return lines


def _expires(ttl: bytes, now: int) -> int | None:
    """When a message with this time to live (ms, in digits) expires; None where that is never."""
    if len(ttl.lstrip(b"0")) > len(str(_LATEST)):
        return None
    expires = now + max(1, int(ttl.lstrip(b"0") or 0))
    return expires if expires <= _LATEST else None


def _replies(value: bytes) -> bool:
    """Whether it may stand as the `reply-to`: a destination, or text that ActiveMQ takes for none."""
    named = value.strip(_PADDING)
    if named.startswith(b"/temp-"):
        return False  # it would be a queue of the bridge's own connection
    return is_destination(named) or not _DESTINATION.match(named)


def _table(message: Message, named: Callable[[bytes, bytes], bytes]) -> dict[bytes, bytes]:
    """The application's headers, and those that the bridge adds."""
    properties = message.properties
    out: dict[bytes, bytes] = {}
    from_activemq = properties.text is not None  # no other broker says so; there it is an application that made up such a name
    try:
        for field in fields(message.headers):
            name = _name(field.name)
            value = field.payload if field.tag in "Sx" else text_of(field) or b""
            if name in _REPEATED and getattr(properties, _REPEATED[name]) is not None:
                continue
            if name == KEY and message.key is not None:
                continue  # `_added` says it, maybe under another name
            name, value = _sayable(name, value)
            out[name if from_activemq and _BY_AMQP.match(name) else named(name, value)] = value
    except MalformedTableError as error:
        raise Rejected(Reason.HEADER_DAMAGED, str(error)) from error
    return out | dict(_sayable(name, value) for name, value in _added(message, out))


def _added(message: Message, table: dict[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    properties, added = message.properties, []
    sent = properties.timestamp_ms
    if sent is None and properties.timestamp is not None:
        sent = properties.timestamp * 1000
    if sent is not None:
        added.append((TIMESTAMP, b"%d" % sent))
    if properties.message_id is not None:
        added.append((MESSAGE_ID, properties.message_id))
    if message.key is not None:
        added.append((KEY, message.key))
        if message.key and _GROUP not in table and SINCE not in table and _sayable(_GROUP, message.key)[0] == _GROUP:
            added.append((_GROUP, message.key))
    for name, value in ((b"user-id", properties.user_id), (b"cluster-id", properties.cluster_id)):
        if value is not None and name not in table:
            added.append((name, value))
    return added


@lru_cache(maxsize=4096)
def _name(raw: bytes) -> bytes:
    r"""A name that ActiveMQ takes: not empty, UTF-8, without NUL; other bytes as `\xff`."""
    text = raw.decode(errors="backslashreplace").replace("\0", "\\x00")
    return text.encode() or b"_"


def _sayable(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """A header that ActiveMQ takes: with a value that is no text in base64, under another name."""
    try:
        if b"\0" not in value:
            value.decode()
            return name, value
    except UnicodeDecodeError:
        pass
    return name + b"_base64", base64.b64encode(value)


def _is_text(properties: Properties, body: bytes) -> bool:
    if properties.text is not None:
        return properties.text
    if properties.content_encoding or not properties.content_type or not _TEXTUAL.match(properties.content_type):
        return False
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
