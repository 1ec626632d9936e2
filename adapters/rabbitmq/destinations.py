"""Looks for `doctor` whether the places are there to which routes lead. Over AMQP, so that it needs no management API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pika.exceptions import ChannelClosedByBroker

from ..preparing import Finding
from .address import parse
from .amqp import channel
from .link import NOT_FOUND

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pika.adapters.blocking_connection import BlockingConnection
    from pika.connection import Parameters


def missing(parameters: Sequence[Parameters], addresses: Iterable[str]) -> list[Finding]:
    """A finding for each of these that is not there. Raises AdapterError."""
    with channel(parameters) as amqp:
        return [
            Finding(False, f"a route leads to `{address}`, which is not there", "declare it, or correct the route")
            for address in sorted(set(addresses))
            if _is_missing(amqp.connection, address)
        ]


def _is_missing(connection: BlockingConnection, address: str) -> bool:
    """Whether there is no such exchange or queue. What may not be looked at, and names that are no text, are taken for there."""
    target = parse(address)
    try:
        exchange, queue = target.exchange.decode(), target.routing_key.decode()
        with connection.channel() as one:
            if exchange:
                one.exchange_declare(exchange, passive=True)
            else:
                one.queue_declare(queue, passive=True)
    except ChannelClosedByBroker as closed:
        return bool(closed.reply_code == NOT_FOUND)
    except UnicodeDecodeError:
        return False
    return False
