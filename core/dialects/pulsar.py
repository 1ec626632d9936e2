"""Apache Pulsar's producer: `deliverAfter` and `deliverAt` (TypedMessageBuilder)."""

from ..schedule import Limits
from .base import Answer, Dialect, Headers, after, agreed, at, duration, number

NAME = "pulsar"
AFTER, AT = b"deliverAfter", b"deliverAt"


def read(headers: Headers, now: int, limits: Limits) -> Answer:  # noqa: ARG001 - every dialect is asked the same way
    """Milliseconds or a duration from now, or epoch milliseconds."""
    answers = []
    if AFTER in headers:
        answers.append(after(duration(headers[AFTER]), now, NAME))
    if AT in headers:
        answers.append(at(number(headers[AT]), NAME))
    return agreed(answers)


DIALECT = Dialect(NAME, (AFTER, AT), (), read)
