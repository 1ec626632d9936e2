"""What RabbitMQ makes of messages that come from other brokers."""

from __future__ import annotations

import pytest

from delaybridge.adapters.rabbitmq.foreign import is_foreign, key_of, native
from delaybridge.core import fields
from delaybridge.core.message import Message, Properties

NEW = Properties(timestamp_ms=1_700_000_000_123)
ENDLESS = Properties(expiration=b"9" * 200)


def test_a_message_of_rabbitmqs_own_is_left_alone() -> None:
    assert not is_foreign(Message(b"body", fields.table([("a", 1)]), Properties(delivery_mode=1, timestamp=5)))


@pytest.mark.parametrize("one", [Message(b"", properties=NEW), Message(b"", key=b""), Message(None), Message(b"", properties=ENDLESS)])
def test_a_time_in_milliseconds_a_key_a_tombstone_and_a_time_to_live_beyond_rabbitmqs_are_each_of_another_broker(one: Message) -> None:
    assert is_foreign(one)


def test_what_has_no_time_in_milliseconds_keeps_its_properties() -> None:
    given = Properties(delivery_mode=1, timestamp=5, expiration=b"600000")
    assert native(Message(b"", properties=given, key=b"k")).properties == given


def test_what_came_from_a_durable_broker_is_persistent_and_bears_its_time_in_seconds() -> None:
    properties = native(Message(b"", properties=NEW)).properties
    assert (properties.delivery_mode, properties.timestamp) == (2, 1_700_000_000)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [(b"1000", b"1000"), (b"315360000000", b"315360000000"), (b"315360000001", None), (b"9" * 200, None), (b"soon", b"soon"), (None, None)],
)
def test_a_time_to_live_that_rabbitmq_cannot_count_never_ends(sent: bytes | None, kept: bytes | None) -> None:
    for stamp in (1, None):  # records of old Kafka producers have no time
        assert native(Message(b"", properties=Properties(timestamp_ms=stamp, expiration=sent))).properties.expiration == kept


@pytest.mark.parametrize(("key", "tag"), [(b"customer-7", "S"), (b"\xff\x00", "x"), (b"", "S")])
def test_a_key_travels_as_a_header_and_is_a_key_again(key: bytes, tag: str) -> None:
    for others in ([], [("a", 1)], [("note", "x-delay-key")]):
        sent = native(Message(b"", fields.table(others), NEW, key))
        assert [field.tag for field in fields.fields(sent.headers) if field.name == b"x-delay-key"] == [tag]
        assert key_of(sent.headers) == key
        assert native(sent).headers == sent.headers


@pytest.mark.parametrize("said", [[b"old"], ["old"], [7], ["old", b"older"]])
def test_a_key_takes_the_place_of_one_that_an_earlier_broker_had_said(said: list[str | bytes | int]) -> None:
    sent = native(Message(b"", fields.table([*(("x-delay-key", one) for one in said), ("a", 1)]), NEW, b"new"))
    assert sent.headers == fields.table([("a", 1), ("x-delay-key", "new")])


def test_a_message_without_that_header_has_no_key() -> None:
    assert key_of(fields.table([("note", "x-delay-key"), ("x-delay-key", 7.5)])) is None


@pytest.mark.parametrize(("said", "key"), [("l" + "\0" * 7 + "\7", b"7"), ("b\x85", b"-123"), ("i\xff\xff\xff\xff", b"4294967295")])
def test_a_whole_number_of_any_type_is_a_key_by_its_decimal_text(said: str, key: bytes) -> None:
    table = b"\x0bx-delay-key" + said.encode("latin-1")
    assert key_of(table) == key
    assert native(Message(b"", table, NEW, key)).headers == table


def test_a_tombstone_is_an_empty_body_that_says_so() -> None:
    sent = native(Message(None, properties=NEW))
    assert (sent.body, fields.plain(sent.headers)) == (b"", {"x-delay-tombstone": True})


def test_a_tombstone_says_so_once_because_rabbitmq_keeps_only_the_first_of_headers_of_one_name() -> None:
    sent = native(Message(None, fields.table([("x-delay-tombstone", b"false"), ("a", 1)]), NEW))
    assert sent.headers == fields.table([("a", 1), ("x-delay-tombstone", True)])
