"""ActiveMQ addresses and gates."""

from __future__ import annotations

import re

import pytest

from delaybridge.adapters.activemq import Endpoint
from delaybridge.adapters.activemq.address import destination, pattern
from delaybridge.adapters.base import Rejected


@pytest.mark.parametrize(
    ("address", "meant"),
    [("orders", "/queue/orders"), ("/queue/a.b/c", "/queue/a.b/c"), ("/topic/events", "/topic/events"), ("größe", "/queue/größe")],
)
def test_an_address_names_one_queue_or_topic(address: str, meant: str) -> None:
    assert destination(address) == meant


@pytest.mark.parametrize(
    "address",
    ["", "/queue/", "/topic/", "/queue", "/temp-queue/a", "a,b", "*", "a.>", "a?b", "topic://a", " a", "a ", "a\nb", "a\0", "x" * 513],
)
def test_anything_else_is_refused(address: str) -> None:
    with pytest.raises(Rejected) as refused:
        destination(address)
    assert refused.value.reason == "bad_destination"


@pytest.mark.parametrize(
    ("gate", "inside", "outside"),
    [
        ("orders", "/queue/orders", "/topic/orders"),
        ("/queue/orders.>", "/queue/orders.a.b", "/queue/order"),
        ("/queue/orders.>", "/queue/orders", "/topic/orders"),
        ("/topic/*.new", "/topic/orders.new", "/topic/a.b.new"),
        ("/queue/>", "/queue/a.b", "/topic/a"),
        ("a+b", "/queue/a+b", "/queue/aab"),
    ],
)
def test_a_gate_has_activemqs_wildcards(gate: str, inside: str, outside: str) -> None:
    assert pattern(gate).fullmatch(inside)
    assert not pattern(gate).fullmatch(outside)


@pytest.mark.parametrize("gate", ["orders*", "orders>", "/topic/a.*b", "orders.>.new", "a,b", "a b", "a?b", "stomp://h", "/queue/", ""])
def test_a_gate_that_no_destination_could_pass_is_refused(gate: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(repr(gate))}"):
        pattern(gate)


def test_an_endpoint_refuses_what_names_no_queue_and_no_gate() -> None:
    with pytest.raises(ValueError, match="exactly one"):
        Endpoint(queue="a,b")
    with pytest.raises(ValueError, match="name the queue alone"):
        Endpoint(queue="/queue/a")
    with pytest.raises(ValueError, match="neither"):
        Endpoint(queue="a", gate=("/exchange/x",))
    assert Endpoint(queue="a", gate=("b.>",)).address == "/queue/a"
