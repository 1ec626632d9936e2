"""Apache Pulsar's producer: `deliverAfter` and `deliverAt` (TypedMessageBuilder)."""

from ..schedule import Limits
from .base import Asked, Dialect, Headers, after, agreed, at, duration, number

NAME = "pulsar"
AFTER, AT = b"deliverAfter", b"deliverAt"


def read(headers: Headers, now: int, limits: Limits) -> Asked:  # noqa: ARG001 - every dialect is asked the same way
    """Milliseconds or a duration from now, or epoch milliseconds."""
    asked = []
    if AFTER in headers:
        asked.append(after(duration(headers[AFTER]), now, NAME))
    if AT in headers:
        asked.append(at(number(headers[AT]), NAME))
    return agreed(asked)


DIALECT = Dialect(NAME, (AFTER, AT), (), read)
