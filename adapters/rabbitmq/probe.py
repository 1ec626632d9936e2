"""What the gate says over AMQP itself: queues where there is no management API, bindings with voids, and the probe message."""

from __future__ import annotations

import contextlib
import json
import secrets
import shlex
import time
from typing import TYPE_CHECKING

import pika
import pika.exceptions

from ..base import AdapterError, Finding, NotConnected
from .address import queue_address
from .link import FOREIGN, not_connected, placed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pika.adapters.blocking_connection import BlockingChannel
    from pika.connection import Parameters

    from .management import Arguments, Binding

DELAY = 300
"""Milliseconds that a probe asks for: long enough to tell a delay from none."""

PATIENCE = 10.0
"""Seconds after which a probe counts as lost."""

NAME = "delaybridge.doctor."
"""How the names of probes begin; the bridge allows queues of such names as destinations on every route."""

_NOT_FOUND = 404


@contextlib.contextmanager
def channel(parameters: Sequence[Parameters]) -> Iterator[BlockingChannel]:
    """A channel for the length of the `with` block. Raises NotConnected, and AdapterError where RabbitMQ closes the channel."""
    try:
        connection = pika.BlockingConnection(parameters)
    except FOREIGN as error:
        raise not_connected(error, placed(parameters)) from error
    try:
        yield connection.channel()
    except pika.exceptions.ChannelClosedByBroker as error:
        raise AdapterError(f"RabbitMQ refused: {error.reply_text}") from error
    except pika.exceptions.AMQPError as error:
        raise NotConnected(f"RabbitMQ closed the connection: {error}") from error
    finally:
        with contextlib.suppress(pika.exceptions.AMQPError):  # RabbitMQ may be quicker
            connection.close()


def consumers(parameters: Sequence[Parameters], queue: str) -> int | None:
    """How many consumers a queue has at this moment; None where there is no such queue."""
    with channel(parameters) as amqp:
        try:
            found: int | None = amqp.queue_declare(queue, passive=True).method.consumer_count
        except pika.exceptions.ChannelClosedByBroker as closed:
            if closed.reply_code == _NOT_FOUND:
                return None
            raise
        return found


def declare(parameters: Sequence[Parameters], queue: str) -> None:
    """Declare a durable queue of the virtual host's default type."""
    with channel(parameters) as amqp:
        amqp.queue_declare(queue, durable=True)


def bind(parameters: Sequence[Parameters], binding: Binding) -> None:
    """Make a binding, voids and all."""
    with channel(parameters) as amqp:
        make = amqp.queue_bind if binding.destination_type == "queue" else amqp.exchange_bind
        make(binding.destination, binding.source, binding.routing_key, binding.arguments)


def bind_command(binding: Binding) -> str:
    """The same as a command to paste."""
    ends = ", ".join(_literal(name) for name in (binding.destination, binding.source, binding.routing_key))
    return _command(f"{binding.destination_type}_bind({ends}, {_table(binding.arguments)})")


def declare_command(queue: str, arguments: Arguments | None = None) -> str:
    """Declaring a durable queue, as a command to paste."""
    more = f", arguments={_table(arguments)}" if arguments else ""
    return _command(f"queue_declare({_literal(queue)}, durable=True{more})")


def _table(arguments: Arguments) -> str:
    return "{" + ", ".join(f"{_literal(name)}: {_literal(value)}" for name, value in arguments.items()) + "}"


def _literal(value: object) -> str:
    """In Python, with double quotes: the shell takes the single ones."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _command(call: str) -> str:
    """One call of a channel's method; the URL is read from the environment."""
    script = f'import os, pika; pika.BlockingConnection(pika.URLParameters(os.environ["RABBITMQ_URL"])).channel().{call}'
    return f"python3 -c {shlex.quote(script)}"


def probe(parameters: Sequence[Parameters], exchange: str, queue: str) -> Finding:
    """Send a delayed message of our own to a gated exchange, or to the ingress queue where `exchange` is empty, and wait for it."""
    name = NAME + secrets.token_hex(8)
    through = f"`{exchange}`" if exchange else f"queue `{queue}`"
    ends = int(time.time() * 1000) + DELAY + round(PATIENCE * 1000)
    headers = {"x-delay": DELAY, "x-delay-to": queue_address(name), "x-delay-ends": ends}
    # Once nobody waits for it any more, a probe vanishes by itself, on the broker as in the bridge.
    properties = pika.BasicProperties(headers=headers, expiration=str(round(PATIENCE * 1000)))
    with channel(parameters) as amqp:
        amqp.confirm_delivery()
        amqp.queue_declare(name, exclusive=True, auto_delete=True)
        sent = time.monotonic()
        try:
            amqp.basic_publish(exchange, name if exchange else queue, b"delaybridge doctor", properties, mandatory=True)
        except pika.exceptions.UnroutableError:
            return Finding(False, f"a probe through {through} reached no queue", "run `delaybridge apply`")
        for method, _, _ in amqp.consume(name, auto_ack=True, inactivity_timeout=PATIENCE):
            late = (time.monotonic() - sent) * 1000 - DELAY
            amqp.cancel()
            return _judge(through, None if method is None else late)
    raise NotConnected(f"the connection ended while a probe through {through} was under way")


def _judge(through: str, late: float | None) -> Finding:
    if late is None:
        fix = "start the bridge, or see `delaybridge status` and `delaybridge dead-letter list` for what it did with the probe"
        return Finding(False, f"a probe through {through} did not come back within {PATIENCE:.0f} s", fix)
    if late < 0:
        fix = "something besides the bridge delivers from this exchange: look at its bindings"
        return Finding(False, f"a probe through {through} came {-late:.0f} ms too early", fix)
    return Finding(True, f"a probe through {through}, delayed by {DELAY} ms, came back {late:.1f} ms after it was due")
