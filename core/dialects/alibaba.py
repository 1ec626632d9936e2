"""Alibaba's commercial RocketMQ: `__STARTDELIVERTIME`, epoch ms (com.aliyun.openservices.ons Message.setStartDeliverTime)."""

from ..schedule import Limits
from .base import Asked, Dialect, Headers, at, number

NAME = "alibaba"
DELIVER = b"__STARTDELIVERTIME"


def read(headers: Headers, now: int, limits: Limits) -> Asked:  # noqa: ARG001 - every dialect is asked the same way
    """One delivery at that instant."""
    return at(number(headers[DELIVER]), NAME)


DIALECT = Dialect(NAME, (DELIVER,), (), read)
