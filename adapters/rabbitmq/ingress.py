"""Finds how RabbitMQ itself may take messages out of an ingress queue before a bridge has them: by the queue's arguments, or by policies."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from ..preparing import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .management import Queue

CLASSIC = {"x-queue-type": "classic"}
"""The type of an ingress queue on one node.

It is named because the virtual host may have another type by default: a stream never gives what came while the bridge was away, and a quorum queue drops what
it has delivered too often.
"""

ENOUGH = 1_000_000
"""Redeliveries that no bridge reaches."""

LIMITS = {
    "message-ttl": "drops what no bridge took within {} ms",
    "expires": "is deleted, with all that is in it, when no bridge has read it for {} ms",
    "max-length": "holds {} messages: RabbitMQ drops or refuses what is more",
    "max-length-bytes": "holds {} bytes: RabbitMQ drops or refuses what is more",
}
"""Each as a policy names it; an argument has `x-` before it."""


_ANEW = "its arguments cannot be changed: when it is empty, delete it, and run `delaybridge apply`, without its producers meanwhile"
REDELIVERIES = "drops a message that it has delivered {} times without an acknowledgement"


def policies(queue: Queue) -> str:
    """The names of the policies that hold for a queue, for people."""
    return " or ".join(f"`{name}`" for name in (queue.policy, queue.operator_policy) if name)


def losses(queue: Queue) -> Iterator[Finding]:
    """A finding for each thing by which an ingress queue loses messages."""
    if not queue.durable:
        yield Finding(False, f"queue `{queue.name}` is not durable: a restart loses it", "delete it, then run `delaybridge apply`")
    if queue.auto_delete:
        yield Finding(
            False, f"queue `{queue.name}` is deleted, with all that is in it, whenever its last bridge disconnects (`auto_delete`)", _ANEW
        )
    if queue.type == "stream":
        yield Finding(False, f"queue `{queue.name}` is a stream: what comes while no bridge reads it never comes to one", _ANEW)
    for limit, what in LIMITS.items():
        argument, policy = queue.arguments.get(f"x-{limit}"), queue.defined.get(limit)
        if argument is not None:
            yield Finding(False, f"queue `{queue.name}` {what.format(argument)} (argument `x-{limit}`)", _ANEW)
        elif policy is not None:
            fix = f"take `{limit}` out of policy {policies(queue)}, or see that it does not match this queue"
            yield Finding(False, f"queue `{queue.name}` {what.format(policy)} (`{limit}` in policy {policies(queue)})", fix)
    yield from _redeliveries(queue)


def on_one_node(queue: Queue, nodes: int) -> Iterator[Finding]:
    """Tells of a queue that stands and falls with one of several nodes. No defect: it may be meant, and cannot be changed while the queue is there."""
    if nodes > 1 and queue.type == "classic" and "ha-mode" not in queue.defined:
        yield Finding(
            True,
            f"queue `{queue.name}` is a classic queue on one of {nodes} nodes: nothing comes in while that is away, and what waits is lost with its disk; "
            "to have a quorum queue, stop bridges and producers, delete it when it is empty, and run `delaybridge apply`",
        )


def _redeliveries(queue: Queue) -> Iterator[Finding]:
    """A bridge that is killed again and again, or cannot store, has the same messages redelivered each time."""
    limit = queue.redeliveries
    if limit is not None and limit < ENOUGH:
        policy = shlex.join(["^" + re.escape(queue.name) + "$", '{"delivery-limit": -1}'])
        yield Finding(
            False,
            f"queue `{queue.name}` {REDELIVERIES.format(limit)}",
            f"`rabbitmqctl set_policy NAME {policy} --apply-to quorum_queues`, or a policy of yours that says so; not where its own arguments set the limit",
        )
