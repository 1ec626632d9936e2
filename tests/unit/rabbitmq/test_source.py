"""From a raw delivery to a message, without a broker."""

from __future__ import annotations

import struct

import pytest
from msgspec.structs import replace

from delaybridge.adapters.base import NotConnected, Received, Rejected
from delaybridge.adapters.rabbitmq.source import Ingress, RabbitSource
from delaybridge.adapters.rabbitmq.wire import Delivery, encode
from delaybridge.core import fields
from delaybridge.core.message import NO_PROPERTIES, Message, Properties

PROPERTIES = Properties(content_type=b"t", delivery_mode=2, message_id=b"1")
COPIES = b"\2CCA\0\0\0\x07S\0\0\0\2us"


def received(
    table: bytes = b"",
    *,
    properties: Properties = PROPERTIES,
    redelivered: bool = False,
    key: bytes = b"k",
    body: bytes = b"b",
    stamped: bool = False,
) -> Received:
    return read(Delivery(1, redelivered, b"x", key, encode(properties, table), body), stamped=stamped)


def read(delivery: Delivery, *, stamped: bool = False) -> Received:
    return RabbitSource(list, Ingress("q", create=True), prefetch=1, timeout=1, gated=["gated"], stamped=stamped)._received(delivery)


def test_body_headers_and_properties_are_those_of_the_delivery() -> None:
    table = fields.table([("a", 1), ("b", None)])
    assert received(table).message == Message(b"b", table, PROPERTIES)
    assert received(table).address == "/exchanges/x/k"


def test_equal_deliveries_have_equal_tokens_and_any_difference_shows() -> None:
    table = fields.entry("a", 1)
    variants = [
        received(table), received(fields.entry("a", 2)), received(table, key=b"other"), received(table, body=b"other"),
        received(table, properties=NO_PROPERTIES), received(table, properties=Properties(content_type=b"t", delivery_mode=2, message_id=b"2")),
    ]  # fmt: skip
    assert len({one.token for one in variants}) == len(variants)
    assert received(table).token == variants[0].token


@pytest.mark.parametrize("name", ["x-delivery-count", "x-acquired-count"])
@pytest.mark.parametrize("own", [b"", fields.entry("a", 1)], ids=["no headers", "headers"])
def test_a_counter_that_a_redelivery_brought_is_taken_off_and_the_token_stays(name: str, own: bytes) -> None:
    first, again = received(own), received(own + fields.entry(name, 1), redelivered=True)
    assert again.message == first.message
    assert again.token == first.token
    assert (first.redelivered, again.redelivered) == (False, True)


def test_the_order_into_which_rabbitmq_puts_headers_where_it_adds_a_counter_leaves_the_token_as_it_was() -> None:
    first = received(fields.table([("x-delay-period", 300), ("x-delay-repeat", 2), ("a", "x")]))
    again = received(fields.table([("a", "x"), ("x-delay-period", 300), ("x-delay-repeat", 2), ("x-delivery-count", 1)]), redelivered=True)
    assert again.token == first.token


def test_a_message_with_an_empty_table_is_known_again_whether_rabbitmq_leaves_that_or_not() -> None:
    properties = Properties(content_type=b"t")
    first = read(Delivery(1, False, b"x", b"k", b"\xa0\0\x01t\0\0\0\0", b"b"))
    counted = received(fields.entry("x-delivery-count", 1), properties=properties, redelivered=True)
    without = received(properties=properties, redelivered=True)
    assert first.token == counted.token == without.token


def test_a_counter_that_the_producer_sent_stays() -> None:
    table = fields.entry("x-delivery-count", 7)
    assert received(table).message.headers == table


def test_a_counter_of_a_type_in_which_rabbitmq_does_not_count_is_the_producers_also_when_it_comes_again() -> None:
    """A consumer that sends again what it got from a quorum queue copies it, and all that a lost connection had fetched comes again."""
    table = fields.entry("a", 1) + b"\x10x-delivery-countI\0\0\0\x07"
    first, again = received(table), received(table, redelivered=True)
    assert first.message.headers == again.message.headers == table
    assert first.token == again.token == received(fields.entry("a", 1)).token


@pytest.mark.parametrize(("exchange", "table", "count"), [(b"gated", COPIES, True), (b"x.real", COPIES, None), (b"gated", b"", None)])
def test_a_producers_copies_count_if_it_sent_them_through_a_gate(exchange: bytes, table: bytes, count: bool | None) -> None:
    one = read(Delivery(1, False, exchange, b"k", encode(PROPERTIES, table), b"b"))
    assert one.message == Message(b"b", table, replace(PROPERTIES, copies=count))


def test_a_name_within_a_value_is_no_stamp() -> None:
    assert received(fields.entry("a", "timestamp_in_ms"), stamped=True).sent is None


def test_a_stamp_that_a_producer_may_have_written_is_no_time() -> None:
    """A consumer that sends a message again, with the headers that it got, would get it early."""
    table = fields.entry("timestamp_in_ms", 1_700_000_000_123)
    assert received(table).sent is None
    assert received(table, stamped=True).sent == 1_700_000_000_123


@pytest.mark.parametrize("table", [fields.entry("timestamp_in_ms", 5) + b"\x01", b"\x10x-delivery-countS\xff\xff\xff\xff"])
def test_a_damaged_table_is_a_defect(table: bytes) -> None:
    one = received(table)
    assert isinstance(one.defect, Rejected)
    assert one.defect.reason == "header_damaged"
    assert one.message.body == b"b"


def test_a_damaged_content_header_is_a_defect_with_a_token() -> None:
    damaged = [read(Delivery(1, False, b"", b"q", b"\x00\x02", body)) for body in (b"1", b"2")]
    assert [one.defect.reason for one in damaged if one.defect] == ["header_damaged"] * 2
    assert damaged[0].token != damaged[1].token
    again = read(Delivery(7, True, b"", b"q", b"\x00\x02", b"1"))
    assert again.redelivered, "else it would be dead-lettered twice"
    assert again.token == damaged[0].token


def test_a_table_nested_deep_is_no_defect() -> None:
    inner = b"".join(b"\x01aF" + struct.pack(">I", 7 * level) for level in range(4999, -1, -1))
    table = b"\x01nF" + struct.pack(">I", len(inner)) + inner
    assert received(table).defect is None
    assert received(table).message.headers == table


def test_a_source_that_never_connected_is_not_connected() -> None:
    with pytest.raises(NotConnected):
        RabbitSource(list, Ingress("q", create=True), prefetch=1, timeout=1).receive(1, 0)
