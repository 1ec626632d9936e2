"""RabbitMQ's delayed-message plugin: a numeric `x-delay`, which comes back negated (rabbit_delayed_message_utils).

The name is shared with our own dialect, which reads it and asks here first.
"""

from __future__ import annotations

import math
import struct

from ..fields import Field, entry, value_of
from ..reasons import Reason, Refusal
from .base import said, shown

NAME = "rabbitmq"
HEADER = b"x-delay"
_HEAD = entry(HEADER, 0)[:-8]
_INT64 = struct.Struct(">q")


def plugin_delay(field: Field) -> int | None:
    """Milliseconds, floating point cut towards zero; None where the value is text that is no number, or the name is not the plugin's."""
    if field.name != HEADER:
        return None
    if field.tag in "df":
        value = value_of(field)
        assert isinstance(value, float)
        if not math.isfinite(value):
            raise Refusal(Reason.BAD_NUMBER, f"{shown(field)} is no number of milliseconds", NAME)
        return math.trunc(value)
    value = said(field)
    return value if isinstance(value, int) else None


def negated(delay: int) -> bytes:
    """The header that the delivered message bears: a second delayed exchange behind it does not delay again."""
    return _HEAD + _INT64.pack(-delay)
