"""Headers by which a producer has RabbitMQ send copies elsewhere: `CC` and `BCC` (its sender-selected distribution).

They name routing keys of the exchange to which the producer publishes, with the producer's rights. The bridge publishes with rights of its own: through the
default exchange a `CC` would reach any queue, past `allow_to`, with a dead letter as well. So they count only where a message goes on to the exchange for
which its producer meant it, which is behind a gate. Elsewhere they get another name, and do nothing. So do those that are no arrays, as they come from other
brokers: RabbitMQ would refuse the message.
"""

from __future__ import annotations

from ...core.fields import named
from .address import REAL_SUFFIX

_HARMLESS = {b"CC": b"x-original-cc", b"BCC": b"x-original-bcc"}
_REAL = REAL_SUFFIX.encode()


def uncopied(exchange: bytes, headers: bytes) -> bytes:
    """The header table for a message to this exchange, in which `CC` and `BCC` have another name unless they count there. Raises MalformedTableError."""
    if b"CC" not in headers:
        return headers
    counts = exchange.endswith(_REAL)
    kept: list[bytes] = []
    at = 0
    for field in named(headers, _HARMLESS):
        if counts and field.tag == "A":
            continue
        name = _HARMLESS[field.name]
        kept += (headers[at : field.start], bytes((len(name),)), name)
        at = field.start + 1 + len(field.name)
    return b"".join((*kept, headers[at:]))
