"""What the demo sends: some 1,800 messages in every dialect, due over the next twenty seconds, and some that are special."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...core.fields import Value
from ...core.message import Message, message

SECONDS = 20
PER_DIALECT = 150


@dataclass(frozen=True, slots=True)
class Sample:
    """One message to send. `deliveries` is how many it must give, None where that depends on the wall clock (a cron)."""

    group: str
    message: Message
    deliveries: int | None = 1


Headers = dict[str, Value]
Dialect = Callable[[int, int], Headers]
"""Headers for a message sent at `now` (epoch ms) that is to come `delay` milliseconds later."""

DIALECTS: dict[str, Dialect] = {
    "own, duration": lambda _, delay: {"x-delay": f"{delay}ms"},
    "own, instant": lambda now, delay: {"x-delay-until": now + delay},
    "RabbitMQ plugin": lambda _, delay: {"x-delay": delay},
    "ActiveMQ": lambda _, delay: {"AMQ_SCHEDULED_DELAY": str(delay)},
    "RocketMQ level": lambda _, delay: {"DELAY": "1" if delay < 5000 else "2" if delay < 10_000 else "3"},
    "RocketMQ timer": lambda _, delay: {"TIMER_DELAY_MS": str(delay)},
    "Alibaba": lambda now, delay: {"__STARTDELIVERTIME": str(now + delay)},
    "Pulsar": lambda now, delay: {"deliverAt": now + delay},
    "SQS": lambda _, delay: {"DelaySeconds": 1 + delay // 1000},
    "Artemis": lambda now, delay: {"_AMQ_SCHED_DELIVERY": now + delay},
    "AMQP 1.0": lambda _, delay: {"x-opt-delivery-delay": delay},
    "none (at once)": lambda _, __: {},
}


def _message(group: str, number: int, headers: Headers) -> Message:
    return message(f"{group} {number}".encode(), {**headers, "x-delay-to": "demo.out", "demo-group": group})


def plain(now: int) -> Iterator[Sample]:
    """Every dialect, spread evenly over the demo."""
    for number in range(PER_DIALECT):
        delay = 1000 + number * (SECONDS - 2) * 1000 // PER_DIALECT
        for group, headers in DIALECTS.items():
            yield Sample(group, _message(group, number, headers(now, delay)))


def special(now: int) -> Iterator[Sample]:
    """Repeats, a cron, what is cancelled and replaced, and three that cannot be honoured."""
    for number in range(20):
        headers: Headers = {"AMQ_SCHEDULED_DELAY": 1000 + 50 * number, "AMQ_SCHEDULED_PERIOD": 2000, "AMQ_SCHEDULED_REPEAT": 4}
        yield Sample("repeats (ActiveMQ)", _message("repeats (ActiveMQ)", number, headers), deliveries=5)
    for number in range(10):
        headers = {"x-delay": "2s", "x-delay-period": "3s", "x-delay-repeat": 3}
        yield Sample("repeats (own)", _message("repeats (own)", number, headers), deliveries=4)
    yield Sample("cron", _message("cron", 0, {"x-delay-cron": "* * * * *", "x-delay-id": "demo-cron"}), deliveries=None)
    yield Sample("cancelled", _message("cancelled", 0, {"x-delay": "15s", "x-delay-id": "demo-cancelled"}), deliveries=0)
    yield Sample("cancelled", message(b"", {"x-delay-cancel": "demo-cancelled"}), deliveries=0)
    yield Sample("replaced", _message("replaced", 1, {"x-delay": "15s", "x-delay-id": "demo-replaced"}), deliveries=0)
    yield Sample("replaced", _message("replaced", 2, {"x-delay": "12s", "x-delay-id": "demo-replaced"}))
    yield Sample("refused", _message("refused", 0, {"x-delay": "soon"}), deliveries=0)
    yield Sample("refused", _message("refused", 1, {"x-delay": "5s", "x-delay-until": now + 60_000}), deliveries=0)
    yield Sample("refused", _message("refused", 2, {"x-delay-cron": "0 0 30 2 *"}), deliveries=0)
