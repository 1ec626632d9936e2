"""Headers by which a producer has RabbitMQ send copies elsewhere: `CC` and `BCC` (its sender-selected distribution).

They name routing keys of the exchange to which the producer publishes, with the producer's rights. The bridge publishes with rights of its own: through the
default exchange a `CC` would reach any queue, past `allow_to`, with a dead letter as well. So they count only where a message goes on to the exchange for
which its producer meant it, which is behind a gate: `Properties.copies` says so. Elsewhere they get another name, and do nothing. So do those that are no
arrays, as they come from other brokers: RabbitMQ would refuse the message.
"""

from __future__ import annotations

from ...core.fields import named

_HARMLESS = {b"CC": b"x-original-cc", b"BCC": b"x-original-bcc"}


def uncopied(headers: bytes, *, count: bool) -> bytes:
    """The header table, in which `CC` and `BCC` have another name unless they count. Raises MalformedTableError."""
    if b"CC" not in headers:
        return headers
    kept: list[bytes] = []
    at = 0
    for field in named(headers, _HARMLESS):
        if count and field.tag == "A":
            continue
        name = _HARMLESS[field.name]
        kept += (headers[at : field.start], bytes((len(name),)), name)
        at = field.start + 1 + len(field.name)
    return b"".join((*kept, headers[at:]))
