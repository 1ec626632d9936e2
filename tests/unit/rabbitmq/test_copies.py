"""Who gets copies of what the bridge publishes on RabbitMQ."""

from __future__ import annotations

import pytest

from delaybridge.adapters.rabbitmq.copies import uncopied
from delaybridge.core.fields import plain, table

HEADERS = table([("tenant", "a"), ("CC", "us"), ("ACCOUNT", "CC"), ("BCC", "boss"), ("last", 1)])


@pytest.mark.parametrize("exchange", [b"", b"orders"])
def test_a_producers_copies_do_nothing_where_it_did_not_publish(exchange: bytes) -> None:
    found = plain(uncopied(exchange, HEADERS))
    assert found == {"tenant": "a", "x-original-cc": "us", "ACCOUNT": "CC", "x-original-bcc": "boss", "last": 1}


def test_behind_a_gate_a_producers_copies_are_sent_as_it_said() -> None:
    assert uncopied(b"orders.real", HEADERS) is HEADERS


def test_headers_without_copies_are_left_alone() -> None:
    headers = table([("tenant", "CC")])
    assert uncopied(b"", headers) == headers
