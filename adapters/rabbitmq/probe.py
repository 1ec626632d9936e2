"""A probe: a delayed message of our own through a gate or an ingress queue into the running bridge, which takes it to a queue of our own."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

import pika
import pika.exceptions

from ..base import NotConnected
from ..preparing import Finding
from ..probes import DELAY, NAME, PATIENCE, ends, judged
from .address import queue_address
from .amqp import channel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pika.connection import Parameters

_EARLY = "something besides the bridge delivers from this exchange: look at its bindings"


def probe(parameters: Sequence[Parameters], exchange: str, queue: str) -> Finding:
    """Send a delayed message of our own to a gated exchange, or to the ingress queue where `exchange` is empty, and wait for it."""
    name = NAME + secrets.token_hex(8)
    through = f"`{exchange}`" if exchange else f"queue `{queue}`"
    headers = {"x-delay": DELAY, "x-delay-to": queue_address(name), "x-delay-ends": ends()}
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
        except pika.exceptions.NackError:
            return Finding(
                False, f"a probe through {through} was refused (basic.nack): queue `{queue}` takes no more", "see whether it is full"
            )
        for method, _, _ in amqp.consume(name, auto_ack=True, inactivity_timeout=PATIENCE):
            late = (time.monotonic() - sent) * 1000 - DELAY
            amqp.cancel()
            return judged(through, None if method is None else late, _EARLY)
    raise NotConnected(f"the connection ended while a probe through {through} was under way")
