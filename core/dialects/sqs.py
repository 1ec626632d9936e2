"""Amazon SQS and Tencent CMQ: `DelaySeconds`. Both refuse negative values; their upper limits are not copied."""

from ..schedule import Limits
from .base import Asked, Dialect, Headers, after, natural

NAME = "sqs"
SECONDS = b"DelaySeconds"


def read(headers: Headers, now: int, limits: Limits) -> Asked:  # noqa: ARG001 - every dialect is asked the same way
    """One delivery after so many seconds."""
    return after(natural(headers[SECONDS]) * 1000, now, NAME)


DIALECT = Dialect(NAME, (SECONDS,), (), read)
