"""AMQP 1.0 message annotations, as ActiveMQ and Tanzu RabbitMQ read them (JMSMappingInboundTransformer): values of zero or less are ignored."""

from ..schedule import Limits
from .base import Asked, Dialect, Headers, agreed, cron, number, scheduled, zone

NAME = "amqp"
DELAY, TIME = b"x-opt-delivery-delay", b"x-opt-delivery-time"
PERIOD, REPEAT, CRON = b"x-opt-delivery-period", b"x-opt-delivery-repeat", b"x-opt-delivery-cron"


def read(headers: Headers, now: int, limits: Limits) -> Asked:
    """The absolute time is a delay counted from now; both must agree, and go with period, repeat and cron as ActiveMQ's do."""
    delay, time, period, repeat = (max(0, number(headers[name])) if name in headers else 0 for name in (DELAY, TIME, PERIOD, REPEAT))
    expression = cron(headers.get(CRON))
    if time and not (period or repeat or expression):
        return agreed([Asked(NAME, time), Asked(NAME, now + delay if delay else None)])
    if time:
        agreed([Asked(NAME, max(time, now)), Asked(NAME, now + delay if delay else None)])
        delay = max(0, time - now)
    return scheduled(now, delay, period, repeat, expression, zone(headers), NAME, limits)


DIALECT = Dialect(NAME, (DELAY, TIME, PERIOD, CRON), (REPEAT,), read)
