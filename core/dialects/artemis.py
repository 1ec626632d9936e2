"""ActiveMQ Artemis: `_AMQ_SCHED_DELIVERY`, epoch ms (org.apache.activemq.artemis.api.core.Message.HDR_SCHEDULED_DELIVERY_TIME)."""

from ..schedule import Limits
from .base import Asked, Dialect, Headers, at, number

NAME = "artemis"
DELIVER = b"_AMQ_SCHED_DELIVERY"


def read(headers: Headers, now: int, limits: Limits) -> Asked:  # noqa: ARG001 - every dialect is asked the same way
    """One delivery at that instant."""
    return at(number(headers[DELIVER]), NAME)


DIALECT = Dialect(NAME, (DELIVER,), (), read)
