"""Whether a source knows, once it is closed, that RabbitMQ has every acknowledgement."""

from __future__ import annotations

import secrets
from contextlib import closing
from typing import TYPE_CHECKING

import pika
import pytest

from contract.proxy import Proxy
from contract.taking import taken
from delaybridge.adapters.rabbitmq import Endpoint, RabbitMQ, adapter
from delaybridge.bridge.apart.frames import Setup
from delaybridge.bridge.apart.source import ApartSource
from delaybridge.bridge.config import Logs

if TYPE_CHECKING:
    from brokers.rabbitmq import Broker


@pytest.mark.parametrize("apart", [False, True], ids=["", "in a process of its own"])
@pytest.mark.parametrize("silent", [False, True], ids=["it answers the farewell", "the network is gone"])
def test_a_source_knows_whether_it_parted_in_order(rabbitmq: Broker, silent: bool, apart: bool) -> None:
    name = f"farewell-{secrets.token_hex(6)}"
    with closing(pika.BlockingConnection(pika.URLParameters(rabbitmq.url))) as user, Proxy(rabbitmq.url) as proxy:
        channel = user.channel()
        channel.queue_declare(name)
        channel.basic_publish("", name, b"a")
        options, endpoint = RabbitMQ.model_validate({"url": proxy.url, "connection_timeout": 5}), Endpoint(queue=name)
        source = (
            ApartSource(Setup("rabbitmq", options, endpoint, Logs(), frozenset()), "test") if apart else adapter.source(options, endpoint)
        )
        source.connect()
        batch = source.receive(10, 10)
        assert batch is not None
        if silent:
            proxy.freeze()
        batch.ack()
        source.close()
        if isinstance(source, ApartSource):
            source.end()

    assert source.parted is not silent
    if not silent:
        return
    with closing(adapter.source(RabbitMQ.model_validate({"url": rabbitmq.url}), Endpoint(queue=name))) as again:
        again.connect()
        assert [each.redelivered for each in taken(again, bool)] == [True]
