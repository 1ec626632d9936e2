"""RabbitMQ addresses, as RabbitMQ 4 writes them (its "address v2" format), and the names of a gate's exchanges.

    /queues/<queue>                        to one queue, through the default exchange
    /exchanges/<exchange>/<routing key>    to an exchange; without the last part the key is empty
    <queue>                                plain text means the queue of that name

Names are percent-encoded UTF-8, so `/` within a name is `%2F`; bytes that are no UTF-8 survive as well.

A gated exchange `orders` hands delayed messages to the bridge and the rest to `orders.real`, which holds the consumers' bindings. The bridge
publishes to `orders.real` only, so nothing that it delivers can meet the gate again.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from ...core.reasons import Reason
from ..base import Rejected

GATE_SUFFIX = ".gate"
REAL_SUFFIX = ".real"
_SHORT = 255  # AMQP short strings: exchange, queue and routing key


class Target(NamedTuple):
    """Where to publish, as it goes over the wire. The exchange `b""` is the default one: the routing key names a queue."""

    exchange: bytes
    routing_key: bytes


def gate_of(exchange: str) -> str:
    """The headers exchange that catches what is delayed."""
    return exchange + GATE_SUFFIX


def real_of(exchange: str) -> str:
    """The exchange that holds the consumers' bindings once `exchange` is gated."""
    return exchange + REAL_SUFFIX


def _raw(part: str) -> bytes:
    raw = unquote_to_bytes(part)
    if len(raw) > _SHORT:
        raise Rejected(Reason.BAD_DESTINATION, f"a RabbitMQ name holds at most {_SHORT} bytes, this one has {len(raw)}")
    return raw


@lru_cache(maxsize=4096)
def parse(address: str) -> Target:
    """Read an address. Raises Rejected(bad_destination) where it is none."""
    if not address:
        raise Rejected(Reason.BAD_DESTINATION, "the address is empty")
    if not address.startswith("/"):
        raw = address.encode()
        if len(raw) > _SHORT:
            raise Rejected(Reason.BAD_DESTINATION, f"a queue name holds at most {_SHORT} bytes, this one has {len(raw)}")
        return Target(b"", raw)
    parts = address.split("/")[1:]
    if parts[0] == "queues" and len(parts) == 2 and parts[1]:
        return Target(b"", _raw(parts[1]))
    if parts[0] == "exchanges" and len(parts) in {2, 3} and parts[1]:
        return Target(_raw(parts[1]), _raw(parts[2]) if len(parts) == 3 else b"")
    raise Rejected(Reason.BAD_DESTINATION, f"{address!r} is neither /queues/<queue> nor /exchanges/<exchange>/<key> nor a queue's name")


def canonical(address: str) -> str:
    """The address as a source writes it. Raises Rejected(bad_destination)."""
    exchange, key = parse(address)
    return exchange_address(exchange, key) if exchange else _queue(key)


def queue_address(queue: str) -> str:
    """The address of a queue."""
    return _queue(queue.encode())


def _queue(name: bytes) -> str:
    return "/queues/" + quote_from_bytes(name, safe="")


@lru_cache(maxsize=4096)
def exchange_address(exchange: bytes, routing_key: bytes) -> str:
    """The address of a routing key at an exchange."""
    return f"/exchanges/{quote_from_bytes(exchange, safe='')}/{quote_from_bytes(routing_key, safe='')}"
