from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaybridge.adapters.base import Rejected
from delaybridge.adapters.rabbitmq import Endpoint
from delaybridge.adapters.rabbitmq.address import Target, exchange_address, gate_of, parse, queue_address, real_of

READINGS = [
    ("orders", Target(b"", b"orders")),
    ("a/b %2F", Target(b"", b"a/b %2F")),
    ("/queues/orders", Target(b"", b"orders")),
    ("/queues/a%2Fb", Target(b"", b"a/b")),
    ("/queues/gr%C3%B6%C3%9Fe", Target(b"", "größe".encode())),
    ("/exchanges/shop/order.new", Target(b"shop", b"order.new")),
    ("/exchanges/shop", Target(b"shop", b"")),
    ("/exchanges/shop/", Target(b"shop", b"")),
    ("/exchanges/a%2Fb/%2F", Target(b"a/b", b"/")),
    ("q" * 255, Target(b"", b"q" * 255)),
    ("/queues/" + "q" * 255, Target(b"", b"q" * 255)),
]


@pytest.mark.parametrize(("address", "target"), READINGS)
def test_an_address_is_read_as_rabbitmq_writes_it(address: str, target: Target) -> None:
    assert parse(address) == target


@pytest.mark.parametrize(
    "address", ["", "/", "/queues/", "/queues", "/queues/a/b", "/exchanges/", "/exchanges//k", "/exchanges/a/b/c", "/topic/a"]
)
def test_what_is_no_address_is_rejected(address: str) -> None:
    with pytest.raises(Rejected) as refused:
        parse(address)
    assert refused.value.reason == "bad_destination"


@pytest.mark.parametrize("address", ["q" * 256, "/queues/" + "q" * 256, "/exchanges/x/" + "é" * 128])
def test_a_name_longer_than_amqp_allows_is_rejected(address: str) -> None:
    with pytest.raises(Rejected, match="255 bytes"):
        parse(address)


@given(st.binary(min_size=1, max_size=255), st.binary(max_size=255))
def test_any_exchange_and_key_survive_being_written_and_read(exchange: bytes, key: bytes) -> None:
    assert parse(exchange_address(exchange, key)) == Target(exchange, key)


@given(st.text(min_size=1, max_size=60))
def test_any_queue_name_survives_being_written_and_read(queue: str) -> None:
    assert parse(queue_address(queue)) == Target(b"", queue.encode())


def test_the_gate_and_the_real_exchange_are_named_after_the_exchange() -> None:
    assert (gate_of("orders"), real_of("orders")) == ("orders.gate", "orders.real")


@pytest.mark.parametrize("queue", ["/queues/in", "/exchanges/orders/new"])
def test_a_route_reads_a_queue_by_its_name_and_not_by_an_address(queue: str) -> None:
    with pytest.raises(ValueError, match="name the queue alone"):
        Endpoint(queue=queue)
