"""A message over which RabbitMQ fails, and ends the connection, holds up no other: it is found, and rejected."""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING

import pika

from contract.outcomes import words
from delaybridge.adapters.base import NotConnected, Outcome, Outgoing
from delaybridge.adapters.rabbitmq import RabbitMQ, adapter
from delaybridge.core.message import Message

if TYPE_CHECKING:
    from brokers.rabbitmq import Broker

DECIMAL = b"\x05priceD\x02\x00\x00\x04\xd2"  # 12.34


def test_a_decimal_for_a_stream_holds_up_nothing_whether_this_rabbitmq_can_carry_it_or_not(rabbitmq: Broker) -> None:
    queue = f"suspects-{secrets.token_hex(6)}"
    user = pika.BlockingConnection(pika.URLParameters(rabbitmq.url))
    user.channel().queue_declare(queue, durable=True, arguments={"x-queue-type": "stream"})
    sink = adapter.sink(RabbitMQ.model_validate({"url": rabbitmq.url, "connection_timeout": 15}))
    ended: list[Outcome] = []
    waiting = {b"%d" % number: Message(b"%d" % number, DECIMAL if number == 3 else b"") for number in range(20)}

    for _ in range(10):  # as a lane does: what is unknown is published again, over a new connection
        heard: list[Outcome] = []
        answered = threading.Event()

        def confirm(outcomes: list[Outcome], heard: list[Outcome] = heard, answered: threading.Event = answered) -> None:
            heard.extend(outcomes)
            if len(heard) == len(waiting):
                answered.set()

        sink.connect(confirm)  # type: ignore[arg-type]  # it is given lists
        sink.publish([Outgoing(tag, queue, message) for tag, message in waiting.items()])
        assert answered.wait(30)
        known = [(tag, error) for tag, error in heard if not isinstance(error, NotConnected)]
        ended += known
        for tag, _error in known:
            del waiting[tag]
        if not waiting:
            break
    sink.close()
    user.channel().queue_delete(queue)
    user.close()

    found = words(ended, 20)
    assert found.pop("3") in {"confirmed", "rejected_by_broker"}
    assert set(found.values()) == {"confirmed"}
