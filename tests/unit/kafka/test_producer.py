"""Where `delaybridge send` puts a message on Kafka, where nothing but a producer can divert."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delaybridge.adapters.base import Outgoing
from delaybridge.adapters.kafka import Endpoint, Kafka, adapter
from delaybridge.adapters.kafka.sinks.sink import KafkaSink
from delaybridge.core.message import message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delaybridge.core.fields import Value


@pytest.mark.parametrize(
    ("topic", "address", "headers", "sent_to"),
    [
        ("orders.late", "orders", {"x-delay": "5s"}, "orders.late"),
        ("orders.late", "orders", {"x-delay-cancel": "order-1"}, "orders.late"),
        ("orders.late", "orders", {"x-delay-id": "order-1"}, "orders"),
        ("orders.late", "orders", {"x-delay": -5000}, "orders"),
        ("orders.late", "orders", {"x-delay": "-5000"}, "orders"),
        ("orders.late", "orders.late", {"x-delay": "5s"}, "orders.late"),
        ("inbox", "inbox", {"x-delay": "5s"}, "inbox"),
        ("^in.*", "inbox", {"x-delay": "5s"}, "inbox"),
    ],
)
def test_what_carries_a_delay_header_is_sent_to_where_a_bridge_takes_it_in(
    monkeypatch: pytest.MonkeyPatch, topic: str, address: str, headers: dict[str, Value], sent_to: str
) -> None:
    sent: list[Outgoing] = []

    def publish(_: KafkaSink, messages: Sequence[Outgoing]) -> None:
        sent.extend(messages)

    monkeypatch.setattr(KafkaSink, "publish", publish)
    options = Kafka(bootstrap_servers="x:1", delayed_suffix=".late")

    adapter.producer(options, Endpoint(topic=topic)).publish([Outgoing(b"t", address, message(b"hello", headers))])

    assert [each.address for each in sent] == [sent_to]
