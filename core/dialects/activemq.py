"""ActiveMQ Classic's scheduler (org.apache.activemq.ScheduledMessage, SchedulerBroker): ms, ms, count and cron, negative values refused."""

from ..schedule import Limits
from .base import Asked, Dialect, Headers, cron, natural, scheduled, zone

NAME = "activemq"
DELAY, PERIOD, REPEAT, CRON = b"AMQ_SCHEDULED_DELAY", b"AMQ_SCHEDULED_PERIOD", b"AMQ_SCHEDULED_REPEAT", b"AMQ_SCHEDULED_CRON"
JOB = b"scheduledJobId"


def read(headers: Headers, now: int, limits: Limits) -> Asked:
    """A message that bears a job's id was scheduled before, and goes straight through."""
    if JOB in headers:
        return Asked(NAME, None)
    delay, period, repeat = (natural(headers.get(name)) for name in (DELAY, PERIOD, REPEAT))
    return scheduled(now, delay, period, repeat, cron(headers.get(CRON)), zone(headers), NAME, limits)


DIALECT = Dialect(NAME, (DELAY, PERIOD, CRON), (REPEAT,), read)
