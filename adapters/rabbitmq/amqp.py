"""Administration over AMQP, where the management API is missing or cannot do it (bindings that have an argument without a value); also as commands to paste."""

from __future__ import annotations

import contextlib
import json
import shlex
from typing import TYPE_CHECKING

import pika
import pika.exceptions

from ..base import AdapterError, NotConnected, telling
from .ingress import CLASSIC
from .link import FOREIGN, NOT_FOUND, not_connected, placed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pika.adapters.blocking_connection import BlockingChannel
    from pika.connection import Parameters

    from .management import Arguments, Binding

READS = "RABBITMQ_URL"
"""The environment variable from which commands read the broker's URL, with credentials."""


_PATIENCE = 60.0
"""Seconds for which an alarm of RabbitMQ is waited out before whoever asks is told of it."""


@contextlib.contextmanager
def channel(parameters: Sequence[Parameters]) -> Iterator[BlockingChannel]:
    """A channel for the length of the `with` block. Raises NotConnected, and AdapterError where RabbitMQ closes the channel."""
    for each in parameters:
        each.blocked_connection_timeout = min(each.blocked_connection_timeout or _PATIENCE, _PATIENCE)
    connection = _connection(parameters)
    try:
        yield connection.channel()
    except pika.exceptions.ChannelClosedByBroker as error:
        raise AdapterError(f"RabbitMQ refused: {error.reply_text}") from error
    except pika.exceptions.AMQPError as error:
        raise NotConnected(f"RabbitMQ closed the connection: {error}") from error
    finally:
        with contextlib.suppress(pika.exceptions.AMQPError):  # RabbitMQ may be quicker
            connection.close()


def _connection(parameters: Sequence[Parameters]) -> pika.BlockingConnection:
    """To the first that lets us in. pika's own way through several ends at the first whose name cannot be resolved. Raises NotConnected."""
    failures: list[NotConnected] = []
    for each in parameters:
        try:
            return pika.BlockingConnection(each)
        except FOREIGN as error:
            failures.append(not_connected(error, placed(parameters)))
    raise telling(failures)


def consumers(parameters: Sequence[Parameters], queue: str) -> int | None:
    """How many consumers a queue has at this moment; None where there is no such queue."""
    with channel(parameters) as amqp:
        try:
            found: int | None = amqp.queue_declare(queue, passive=True).method.consumer_count
        except pika.exceptions.ChannelClosedByBroker as closed:
            if closed.reply_code == NOT_FOUND:
                return None
            raise
        return found


def declare(parameters: Sequence[Parameters], queue: str) -> None:
    """Declare a durable queue."""
    with channel(parameters) as amqp:
        amqp.queue_declare(queue, durable=True, arguments=CLASSIC)


def bind(parameters: Sequence[Parameters], binding: Binding) -> None:
    """Make a binding, also with arguments that have no value."""
    with channel(parameters) as amqp:
        make = amqp.queue_bind if binding.destination_type == "queue" else amqp.exchange_bind
        make(binding.destination, binding.source, binding.routing_key, binding.arguments)


def bind_command(binding: Binding) -> str:
    """The same as a command to paste."""
    ends = ", ".join(_literal(name) for name in (binding.destination, binding.source, binding.routing_key))
    return _command(f"{binding.destination_type}_bind({ends}, {_table(binding.arguments)})")


def declare_command(queue: str, arguments: Arguments) -> str:
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
    script = f'import os, pika; pika.BlockingConnection(pika.URLParameters(os.environ["{READS}"])).channel().{call}'
    return f"python3 -c {shlex.quote(script)}"
