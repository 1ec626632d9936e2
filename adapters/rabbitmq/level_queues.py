"""Level queues on RabbitMQ: a message waits where nobody consumes, and RabbitMQ itself moves it on when its time is up.

    delaybridge.level.1m ---after 60000 ms (x-message-ttl), dead-lettered at least once---> delaybridge.level.1m.out ---> the bridges

All are quorum queues. At every moment a message is on disk in one of the two: RabbitMQ forgets it in the first when the second has confirmed it.
At level 0 nothing waits: it is one queue.

No policy should match these queues. One that shortens a wait does no harm (what is not due hops again), but `message-ttl` on an `.out` queue, or
`max-length` with `drop-head`, loses messages, and nobody can declare a queue so that a policy cannot.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from pika import BasicProperties
from pika.exceptions import ChannelClosedByBroker

from ..preparing import Step
from . import amqp
from .link import DIFFERS, NOT_FOUND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
    from pika.connection import Parameters

    from ..levelled import Level

OUT = ".out"
UNLIMITED = {"x-delivery-limit": 2**31 - 1}
"""RabbitMQ 4 drops what a quorum queue has redelivered 20 times, unless told otherwise: after a bridge that was killed as often."""

_QUORUM: dict[str, Any] = {
    "x-queue-type": "quorum",
    "x-overflow": "reject-publish",  # at-least-once dead-lettering wants it
    **UNLIMITED,
    "x-queue-leader-locator": "balanced",  # else the node to which the first bridge connects leads them all
}
OTHERS = "delete it when it is empty, or set another `store.prefix`"
"""What to do about a queue of that name that is not ours."""

THROUGH = 10.0
"""Seconds within which a marker comes through a level that moves messages."""

SECOND_LOOK = 190.0
"""Seconds between two looks at queues that may be deleted.

While RabbitMQ moves a message from a queue to its `.out`, it counts it in neither. That takes moments; but what it could not move, as just after its restart,
it tries again only after `dead_letter_worker_publisher_confirm_timeout`, 180 s, and passes by up to 31 such messages with new ones.
"""

_MARKER = "delaybridge.undo"


class Queue(NamedTuple):
    """One queue, as it is declared; `what` says in a sentence what it is for."""

    name: str
    arguments: dict[str, Any]
    what: str


def queues(level: Level) -> list[Queue]:
    """The queues of a level, in the order in which they are declared: the last one is what bridges consume."""
    name = level.name
    if not level.wait:
        return [Queue(name, _QUORUM, f"queue `{name}` keeps messages until they are taken")]
    ways = {
        "x-message-ttl": level.wait,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": name + OUT,
        "x-dead-letter-strategy": "at-least-once",
    }
    return [
        Queue(name, _QUORUM | ways, f"queue `{name}` keeps each message for {level.wait} ms, then hands it to `{name}{OUT}`"),
        Queue(name + OUT, _QUORUM, f"queue `{name}{OUT}` keeps what has waited until a bridge takes it"),
    ]


class RabbitLevelQueues:
    """See levelled.LevelDeclaration. All of it goes over AMQP."""

    counts_taken = False
    held_after_a_kill = 0.0

    def __init__(self, parameters: Callable[[], Sequence[Parameters]], levels: Sequence[Level]) -> None:
        self._parameters = parameters
        self._levels = levels
        self._queues = [queue for level in levels for queue in queues(level)]

    def plan(self) -> list[Step]:
        """See levelled.LevelDeclaration."""
        with self._connection() as connection:
            return [_planned(connection, queue) for queue in self._queues]

    def apply(self) -> list[Step]:
        """See levelled.LevelDeclaration. Raises AdapterError where the user may not."""
        with self._connection() as connection:
            return [_declared(connection, queue) for queue in self._queues]

    def undo(self) -> list[Step]:
        """See levelled.LevelDeclaration. A queue that a bridge consumes stays, too: stop the bridges first.

        Before the queues of a level are deleted, a marker must have come through it, and nothing may show in it for `SECOND_LOOK` seconds after that.
        """
        with self._connection() as connection:
            reasons = {level: _seen(connection, level) for level in self._levels}
            quiet = [level for level, reason in reasons.items() if not reason and level.wait and _look(connection, level.name)]
            reasons |= _stuck(connection, quiet)
            if not all(reasons[level] for level in quiet):
                connection.sleep(SECOND_LOOK)
            reasons = {level: reason or _seen(connection, level) for level, reason in reasons.items()}
            return [step for level, reason in reasons.items() for step in _taken_away(connection, level, reason)]

    def depths(self) -> list[int]:
        """See levelled.LevelDeclaration. What a bridge has taken and not acknowledged is not among it; a queue that is missing has none."""
        with self._connection() as connection:
            return [sum(_ready(connection, queue.name) for queue in queues(level)) for level in self._levels]

    @contextlib.contextmanager
    def _connection(self) -> Iterator[BlockingConnection]:
        with amqp.channel(self._parameters()) as channel:
            yield channel.connection


def _planned(connection: BlockingConnection, queue: Queue) -> Step:
    """The queue as a step, without making it. RabbitMQ compares arguments only when a queue is declared, which changes nothing where it is there."""
    if _look(connection, queue.name) is None:
        return _step(queue, done=False)
    return _declared(connection, queue)


def _declared(connection: BlockingConnection, queue: Queue) -> Step:
    try:
        with connection.channel() as channel:
            channel.queue_declare(queue.name, durable=True, arguments=queue.arguments)
    except ChannelClosedByBroker as closed:
        if closed.reply_code != DIFFERS:
            raise
        return Step(f"queue `{queue.name}` is there and differs: {OTHERS}. RabbitMQ says: {closed.reply_text}", "", False)
    return _step(queue, done=True)


def _step(queue: Queue, *, done: bool) -> Step:
    return Step(queue.what, amqp.declare_command(queue.name, queue.arguments), done, (amqp.READS,))


class _Found(NamedTuple):
    ready: int
    consumers: int


def _look(connection: BlockingConnection, name: str) -> _Found | None:
    """None where there is no such queue."""
    try:
        with connection.channel() as channel:  # many are looked at, and a broker may allow few channels
            method = channel.queue_declare(name, passive=True).method
    except ChannelClosedByBroker as closed:
        if closed.reply_code == NOT_FOUND:
            return None
        raise
    return _Found(method.message_count or 0, method.consumer_count or 0)


def _ready(connection: BlockingConnection, name: str) -> int:
    found = _look(connection, name)
    return found.ready if found else 0


def _reason_to_stay(connection: BlockingConnection, level: Level) -> str:
    """Why the queues of a level must stay; empty where they may go."""
    for queue in queues(level):
        found = _look(connection, queue.name)
        if found and found.consumers:
            return f"a bridge takes from `{queue.name}`: stop it first"
        if found and found.ready:
            return f"messages wait in `{queue.name}` ({found.ready})"
    return ""


def _stuck(connection: BlockingConnection, levels: Sequence[Level]) -> dict[Level, str]:
    """Why these levels must stay although nothing is seen in them; empty where they may go, because a marker that was sent through has come out."""
    reasons = {level: _no_way_out(connection, level) for level in levels}
    channel = connection.channel()
    channel.confirm_delivery()
    expected = [level for level in levels if not reasons[level]]
    for level in expected:
        properties = BasicProperties(type=_MARKER, expiration="1", delivery_mode=2)
        channel.basic_publish("", level.name, b"`apply --undo` looked whether this level moves messages", properties, mandatory=True)
    deadline = time.monotonic() + THROUGH
    while expected and time.monotonic() < deadline:
        expected = [level for level in expected if not _sweep(channel, level)]
        connection.sleep(0.05)
    for level in expected:
        reasons[level] = f"within {THROUGH:g} s nothing came through it: what else it may hold is not to be seen"
    return reasons


def _no_way_out(connection: BlockingConnection, level: Level) -> str:
    name = level.name + OUT
    return "" if _look(connection, name) else f"`{name}` is missing, so what it may hold could not leave: `delaybridge apply` makes it"


def _seen(connection: BlockingConnection, level: Level) -> str:
    """Why the queues of a level must stay, as `_reason_to_stay`, once markers that came late are out of the way."""
    out = _look(connection, level.name + OUT) if level.wait else None
    if out and out.ready and not out.consumers:
        with connection.channel() as channel:
            _sweep(channel, level)
        _forgotten(connection, level.name + OUT)
    return _reason_to_stay(connection, level)


def _forgotten(connection: BlockingConnection, name: str) -> None:
    """Wait, for a moment, until we are no consumer of a queue any more: RabbitMQ counts whoever got a message, until it knows what became of that."""
    deadline = time.monotonic() + 1
    while (found := _look(connection, name)) and found.consumers and time.monotonic() < deadline:
        connection.sleep(0.05)


def _sweep(channel: BlockingChannel, level: Level) -> bool:
    """Take markers that have come through. Whether there were any, or a message that is no marker, which is put back."""
    came = False
    while True:
        found, properties, _ = channel.basic_get(level.name + OUT)
        if found is None or properties is None:
            return came
        came = True
        if properties.type != _MARKER:
            channel.basic_reject(found.delivery_tag, requeue=True)
            return came
        channel.basic_ack(found.delivery_tag)


def _taken_away(connection: BlockingConnection, level: Level, reason: str) -> Iterator[Step]:
    """Quorum queues know no `if-empty`: so each is looked at once more, as late as can be."""
    for queue in queues(level):
        reason = reason or _reason_to_stay(connection, level)
        if not reason:
            with connection.channel() as channel:
                channel.queue_delete(queue.name)
        yield Step(f"queue `{queue.name}` stays: {reason}" if reason else f"queue `{queue.name}` is gone", "", not reason)
