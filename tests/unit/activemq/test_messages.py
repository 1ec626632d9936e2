"""From frames to messages and back, without a broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from delaybridge.adapters.activemq.address import pattern
from delaybridge.adapters.activemq.frames import Frame
from delaybridge.adapters.activemq.incoming import Rules, received
from delaybridge.adapters.activemq.outgoing import asking, headers_of, selectable
from delaybridge.adapters.base import Received, Rejected
from delaybridge.adapters.levelled import SINCE
from delaybridge.core import fields
from delaybridge.core.message import NO_PROPERTIES, Message, Properties, message

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = 1_800_000_000_000
BY_STOMP = b"ID\\chost-1-2-3\\c4\\c-1\\c1\\c5"
BY_JAVA = b"ID\\chost-40001-1700000000000-1\\c1\\c1\\c1\\c7"
BY_JMS = b"ID\\chost-1-2-3\\c4\\c1\\c1\\c5"


def came(body: bytes = b"x", *, sized: bool = False, rules: Rules = Rules(), **headers: bytes) -> Received:  # noqa: B008 - immutable
    given = {b"message-id": BY_STOMP, b"ack": b"a", b"subscription": b"s", b"destination": b"/queue/q"}
    given |= {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return received(Frame(b"MESSAGE", given, body, sized), rules)


def goes(one: Message, *, persistent: bool = True) -> dict[str, str]:
    lines, _ = headers_of(one, NOW, persistent=persistent)
    pairs = [line.partition(":")[::2] for line in lines.decode().splitlines()]
    got = dict(pairs)
    assert len(got) == len(pairs)
    return got


def refused(one: Message) -> str:
    with pytest.raises(Rejected) as error:
        headers_of(one, NOW, persistent=True)
    return error.value.reason


# --- in ---


@pytest.mark.parametrize(("priority", "number"), [(b"high", b"-5"), (b"10", b"9" * 19), (b"x", b"soon")])
def test_a_number_that_is_none_is_ignored_because_a_property_may_stand_in_its_place(priority: bytes, number: bytes) -> None:
    one = came(priority=priority, expires=number, timestamp=number)
    assert (one.sent, one.message.properties.expiration, one.message.properties.priority) == (None, None, 4)


def test_a_message_without_a_time_was_not_sent_in_1970() -> None:
    """JMS producers may leave the time out, and ActiveMQ says 0 then."""
    assert [came(timestamp=b"0", message_id=identity).sent for identity in (BY_STOMP, BY_JAVA)] == [None, None]
    assert came(message_id=BY_JAVA).sent is None


def test_a_message_that_does_not_expire_has_no_time_to_live() -> None:
    assert came(expires=b"0", timestamp=b"5").message.properties.expiration is None


def test_what_has_expired_already_is_no_time_to_live_because_the_broker_hands_out_nothing_that_has() -> None:
    assert came(expires=b"5", timestamp=b"10").message.properties.expiration is None
    assert came(expires=b"5", timestamp=b"5").message.properties.expiration is None
    assert came(expires=b"5").message.properties.expiration is None


def test_no_message_was_sent_before_its_producer_began() -> None:
    assert came(message_id=BY_JAVA, timestamp=b"1700000000000").sent == 1700000000000
    assert came(message_id=BY_JAVA, timestamp=b"1699999999999").sent is None


def test_a_property_that_stands_in_the_place_of_the_message_id_makes_no_message_a_copy_of_another() -> None:
    first, second = (came(message_id=b"order-4711", ack=number).token for number in (b"a-1", b"a-2"))
    assert first != second
    assert came(ack=b"a-1").token == came(ack=b"a-2").token


def test_the_time_of_a_message_that_came_through_a_bridge_is_its_first_one_and_delays_count_from_the_last() -> None:
    one = came(timestamp=b"2000", x_delay_timestamp=b"1000")
    assert (one.sent, one.message.properties.timestamp_ms) == (2000, 1000)


def test_the_id_of_a_message_is_what_it_was_at_first_and_else_the_brokers_own() -> None:
    assert came().message.properties.message_id == b"ID:host-1-2-3:4:-1:1:5"
    assert came(message_id=b"7,2147483661").message.properties.message_id == b"2147483661", "Artemis puts the consumer's number before"
    assert came(x_delay_message_id=b"first").message.properties.message_id == b"first"
    assert came(message_id=b"").message.properties.message_id is None


@pytest.mark.parametrize(
    ("name", "value", "key"),
    [
        (b"x-delay-key", b"a", b"a"),
        (b"x_delay_key", b"a", b"a"),
        (b"x-delay-key_base64", b"/w==", b"\xff"),
        (b"x-delay-key_base64", b"/w==?", None),
        (b"key", b"a", None),
    ],
)
def test_a_key_is_read_however_it_had_to_be_written(name: bytes, value: bytes, key: bytes | None) -> None:
    one = received(Frame(b"MESSAGE", {b"message-id": BY_STOMP, name: value}, b"", sized=True), Rules())
    assert one.message.key == key


def test_a_delivery_mode_is_told() -> None:
    assert came(persistent=b"true").message.properties.delivery_mode == 2
    assert came().message.properties.delivery_mode == 1


def test_the_token_is_the_same_for_a_redelivery_whatever_its_headers_say() -> None:
    assert came().token == came(redelivered=b"true", ack=b"other").token


def test_copies_of_one_message_for_two_destinations_are_two_messages_though_they_share_an_id() -> None:
    def token(origin: bytes) -> bytes:
        return came(original_destination=origin).token

    assert token(b"/queue/orders.a") == token(b"/queue/orders.a") != token(b"/queue/orders.b")


def test_a_header_that_cannot_be_read_is_a_defect_which_is_known_again() -> None:
    one = received(Frame(b"MESSAGE", {b"message-id": BY_JMS, b"persistent": b"true", b"bad\\escape": b""}, b"body", sized=False), Rules())
    assert one.defect is not None
    assert (one.defect.reason, one.message) == ("header_damaged", Message(b"body", b"", Properties(delivery_mode=2)))
    assert (one.token, one.redelivered) == (BY_JMS, True)


def test_of_a_header_whose_name_is_too_long_the_others_tell_whose_message_it_was() -> None:
    given = {b"message-id": BY_JMS, b"type": b"order", b"x-delay-id": b"order-17", b"x-delay-key": b"k", b"n" * 256: b"", b"z": b"1"}
    one = received(Frame(b"MESSAGE", given, b"body", sized=False), Rules())
    assert one.defect is not None
    assert (one.defect.reason, one.token) == ("too_large", BY_JMS)
    assert fields.plain(one.message.headers) == {"x-delay-id": "order-17", "x-delay-key": "k", "z": "1"}
    assert (one.message.body, one.message.key, one.message.properties.type) == (b"body", b"k", b"order")


@pytest.mark.parametrize(
    ("identity", "headers", "carried"),
    [
        (BY_STOMP, {}, True),
        (BY_JMS, {}, False),
        (BY_JMS, {"x_delay_cancel": b"order-17"}, True),
        (BY_JMS, {"x-delay-cancel": b"order-17"}, True),
        (BY_JMS, {"AMQ_SCHEDULER_ACTION": b"REMOVE"}, True),
        (BY_STOMP, {"transformation": b"jms-map-json"}, False),
    ],
)
def test_an_empty_text_is_refused_where_it_may_have_been_an_object(identity: bytes, headers: dict[str, bytes], *, carried: bool) -> None:
    given = {b"message-id": identity} | {name.encode(): value for name, value in headers.items()}
    one = received(Frame(b"MESSAGE", given, b"", sized=False), Rules())
    assert (one.defect is None) is carried


def test_what_is_no_empty_text_is_carried_whoever_sent_it() -> None:
    assert [came(body, sized=sized, message_id=BY_JMS).defect for body, sized in ((b"x", False), (b"", True))] == [None, None]
    assert came(b"", message_id=BY_JMS, rules=Rules(carry_empty=True)).defect is None


def test_each_of_several_gates_is_believed_to_be_where_a_message_was_sent() -> None:
    rules = Rules([pattern("orders.>"), pattern("/topic/bills")])
    sent_to = b"/queue/orders.new", b"/topic/bills", b"/queue/bills"
    assert [came(original_destination=address, rules=rules).address for address in sent_to] == ["/queue/orders.new", "/topic/bills", ""]


def test_a_number_that_artemis_gives_again_after_a_restart_without_a_journal_is_another_message() -> None:
    def token(identity: bytes, at: bytes) -> bytes:
        return came(message_id=identity, timestamp=at).token

    assert token(b"7,2147483661", b"1700000000000") == token(b"9,2147483661", b"1700000000000"), "to another consumer, again"
    assert token(b"7,2147483661", b"1700000000000") != token(b"7,2147483661", b"1700000000001")


# --- out ---


def test_each_type_of_header_becomes_text() -> None:
    nested = fields.table([("a", 1), ("b", "ü"), ("c", b"\xff"), ("d", None)])
    array = fields.entry("", 1)[1:] + fields.entry("", "x")[1:]
    raw = {"T": (5).to_bytes(8, "big"), "D": b"\2" + (-150).to_bytes(4, "big", signed=True)}
    table = b"".join(b"\1" + tag.encode() + tag.encode() + payload for tag, payload in raw.items())
    table += b"\1FF" + len(nested).to_bytes(4, "big") + nested + b"\1AA" + len(array).to_bytes(4, "big") + array
    got = goes(Message(b"", table))
    assert (got["T"], got["D"], json.loads(got["A"].replace("\\c", ":"))) == ("5", "-1.50", [1, "x"])
    assert json.loads(got["F"].replace("\\c", ":")) == {"a": 1, "b": "ü", "c": "/w==", "d": None}


def test_what_is_sent_in_a_producers_place_keeps_the_names_that_ask_for_a_delay_and_no_others_that_steer() -> None:
    given = message(
        b"", {"AMQ_SCHEDULED_DELAY": 5, "_AMQ_SCHED_DELIVERY": 5, "x-delay": 5, "x-delay-id": "a", "destination": "x", "JMSExpiration": 1}
    )

    def names(named: Callable[[bytes, bytes], bytes]) -> set[str]:
        lines, _ = headers_of(given, NOW, persistent=True, named=named)
        return {line.partition(":")[0] for line in lines.decode().splitlines()} - {"persistent", "content-length"}

    kept = {"AMQ_SCHEDULED_DELAY", "_AMQ_SCHED_DELIVERY", "x-delay-id", "x-header-destination", "x-header-JMSExpiration"}
    assert names(asking) == kept | {"x-delay"}
    assert names(selectable) == kept | {"x_delay"}, "a selector cannot name x-delay"


def test_of_repeated_headers_the_last_counts() -> None:
    assert goes(Message(b"", fields.table([("a", "1"), ("b", "2"), ("a", "3")])))["a"] == "3"


def test_a_message_that_has_too_many_headers_says_how_many_it_has_and_how_many_it_may_have() -> None:
    def with_headers(count: int) -> Message:  # `persistent` and `content-length` are two more
        return message(b"", {f"h{number}": "" for number in range(count - 2)})

    assert len(goes(with_headers(985))) == 985
    with pytest.raises(Rejected, match="a message may have 985, this one has 986"):
        headers_of(with_headers(986), NOW, persistent=True)


def test_a_table_that_cannot_be_read_is_rejected() -> None:
    assert refused(Message(b"", b"\5abc")) == "header_damaged"


def test_a_table_that_is_nested_too_deep_is_rejected() -> None:
    table = b""
    for _ in range(2000):
        table = b"\1aF" + len(table).to_bytes(4, "big") + table
    assert refused(Message(b"", table)) == "rejected_by_broker"


def test_a_time_to_live_that_is_no_number_is_rejected() -> None:
    assert refused(message(b"", {}, Properties(expiration=b"soon"))) == "rejected_by_broker"


@pytest.mark.parametrize(("given", "ttl"), [(b"0", 1), (b"1500", 1500), (b"+1500", 1500)])
def test_the_time_to_live_begins_now(given: bytes, ttl: int) -> None:
    got = goes(message(b"", {}, Properties(expiration=given)))
    assert (int(got["timestamp"]), int(got["expires"])) == (NOW, NOW + ttl)


@pytest.mark.parametrize("given", [b"%d" % (2**63 - NOW), b"%d" % 2**63, b"9" * 255, b"9" * 5_000])
def test_a_time_to_live_that_ends_after_the_largest_number_that_activemq_knows_is_none(given: bytes) -> None:
    assert goes(message(b"", {}, Properties(expiration=given))).keys() == {"persistent", "content-length"}


@pytest.mark.parametrize(
    ("given", "expires"), [(b"%d" % (2**63 - 1 - NOW), 2**63 - 1), (b"0" * 5_000 + b"7", NOW + 7), (b"0" * 5_000, NOW + 1)]
)
def test_a_time_to_live_is_a_number_however_it_is_written(given: bytes, expires: int) -> None:
    assert goes(message(b"", {}, Properties(expiration=given)))["expires"] == str(expires)


def test_without_a_time_to_live_the_broker_stamps_the_time() -> None:
    assert goes(message(b"")).keys() == {"persistent", "content-length"}


def test_the_first_time_and_the_first_id_are_told_once() -> None:
    given = message(b"", {"x-delay-timestamp": "7", "x-delay-message-id": "old"}, Properties(timestamp=5, message_id=b"m"))
    got = goes(given)
    assert (got["x-delay-timestamp"], got["x-delay-message-id"]) == ("5000", "m")


@pytest.mark.parametrize(
    ("mode", "persistent", "written"), [(1, True, "true"), (1, False, "false"), (2, False, "true"), (None, False, "true")]
)
def test_messages_are_persistent_unless_the_operator_and_the_producer_agree(mode: int | None, persistent: bool, written: str) -> None:
    assert goes(message(b"", {}, Properties(delivery_mode=mode)), persistent=persistent)["persistent"] == written


@pytest.mark.parametrize(("priority", "written"), [(0, "0"), (9, "9"), (255, "9")])
def test_a_priority_is_at_most_nine(priority: int, written: str) -> None:
    assert goes(message(b"", {}, Properties(priority=priority)))["priority"] == written


def test_the_usual_priority_is_not_said() -> None:
    assert "priority" not in goes(message(b"", {}, Properties(priority=4)))


def test_a_reply_goes_to_no_queue_of_the_bridge() -> None:
    got = goes(message(b"", {}, Properties(reply_to=b"/temp-queue/a")))
    assert (got.get("reply-to"), got["x-header-reply-to"]) == (None, "/temp-queue/a")
    assert goes(message(b"", {}, Properties(reply_to=b"/remote-temp-queue/ID:1")))["reply-to"] == "/remote-temp-queue/ID\\c1"


@pytest.mark.parametrize("kind", ["/queue/", "/topic/", "/remote-temp-queue/", "/remote-temp-topic/"])
@pytest.mark.parametrize(
    "name", ["", " ", ",", " , ", "\x01", "?a=b", " ?", ",?b", "a,", ",a", "a,,b", "a?b=%zz", "queue://", "a,topic:// "]
)
def test_a_reply_goes_to_no_destination_that_activemq_cannot_make(kind: str, name: str) -> None:
    for padded in (f"{kind}{name}", f" \t{kind}{name}"):
        got = goes(message(b"", {}, Properties(reply_to=padded.encode())))
        assert "reply-to" not in got
        assert got["x-header-reply-to"] == padded.replace(":", "\\c")


@pytest.mark.parametrize("said", [" /temp-queue/a", "\t/temp-topic/a"])
def test_a_blank_before_it_makes_no_queue_of_the_bridge_either(said: str) -> None:
    got = goes(message(b"", {}, Properties(reply_to=said.encode())))
    assert (got.get("reply-to"), got["x-header-reply-to"]) == (None, said)


@pytest.mark.parametrize(
    "said", ["/queue/a", "/topic/a.b", "/queue/a,b", "/queue/a?b=c", "/queue/a b", "/queue/a%zz", "replies", "/queue", "/dsub/", ""]
)
def test_a_reply_goes_where_activemq_would_send_it_and_other_text_stays(said: str) -> None:
    assert goes(message(b"", {}, Properties(reply_to=said.encode())))["reply-to"] == said


def test_what_is_no_reply_to_may_look_like_any_destination() -> None:
    got = goes(message(b"", {}, Properties(type=b"/temp-queue/a", correlation_id=b"/queue/")))
    assert (got["type"], got["correlation-id"]) == ("/temp-queue/a", "/queue/")


@pytest.mark.parametrize("key", [b"", b"\xff", b"a\0b"])
def test_a_key_that_is_empty_or_no_text_makes_no_group(key: bytes) -> None:
    assert not [name for name in goes(Message(b"", b"", NO_PROPERTIES, key)) if name.startswith("JMSXGroup")]


def test_a_key_that_is_text_makes_a_group() -> None:
    assert goes(Message(b"", b"", NO_PROPERTIES, b"key"))["JMSXGroupID"] == "key"


@pytest.mark.parametrize(
    ("key", "said"), [(b"new", {"x-delay-key": "new", "JMSXGroupID": "new"}), (b"\xff", {"x-delay-key_base64": "/w=="})]
)
def test_a_key_takes_the_place_of_one_that_an_earlier_broker_had_said(key: bytes, said: dict[str, str]) -> None:
    got = goes(Message(b"", fields.table([("x-delay-key", b"old")]), NO_PROPERTIES, key))
    assert got == {"persistent": "true", "content-length": "0"} | said


def test_what_activemq_has_no_place_for_is_a_header() -> None:
    got = goes(message(b"", {}, Properties(b"text/plain", user_id=b"alice", app_id=b"shop", cluster_id=b"c", content_encoding=b"gzip")))
    assert (got["user-id"], got["app-id"], got["cluster-id"]) == ("alice", "shop", "c")
    assert (got["content-type"], got["content-encoding"]) == ("text/plain", "gzip")


def test_a_header_goes_before_a_property_that_activemq_has_no_place_for() -> None:
    given = message(b"", {"user-id": "bob", "cluster-id": "d"}, Properties(user_id=b"alice", cluster_id=b"c"))
    assert (goes(given)["user-id"], goes(given)["cluster-id"]) == ("bob", "d")


def test_a_property_that_stands_among_the_headers_as_well_is_said_once() -> None:
    texts = {
        "content_type": b"text/x",
        "content_encoding": b"gzip",
        "correlation_id": b"c",
        "reply_to": b"replies",
        "type": b"t",
        "app_id": b"a",
    }
    properties = Properties(**texts, message_id=b"m", priority=3, expiration=b"5")  # type: ignore[arg-type]  # of texts only
    headers: dict[str, fields.Value] = {name.replace("_", "-"): "another" for name in (*texts, "message_id", "priority", "expiration")}
    assert goes(message(b"", headers, properties)) == goes(message(b"", {}, properties))


@pytest.mark.parametrize(("value", "name"), [("5", "JMSXGroupSeq"), ("-1", "JMSXGroupSeq"), ("x", "x-header-JMSXGroupSeq")])
def test_a_group_sequence_is_a_number_or_not_one(value: str, name: str) -> None:
    assert goes(message(b"", {"JMSXGroupSeq": value}))[name] == value


def test_a_group_that_the_message_names_goes_before_its_key() -> None:
    got = goes(Message(b"", fields.table([("JMSXGroupID", "group")]), NO_PROPERTIES, b"key"))
    assert (got["JMSXGroupID"], got["x-delay-key"]) == ("group", "key")


def test_a_message_of_a_level_queue_belongs_to_no_group_so_any_bridge_may_take_it() -> None:
    got = goes(Message(b"", fields.table([(SINCE, NOW)]), NO_PROPERTIES, b"key"))
    assert "JMSXGroupID" not in got
    assert got["delaybridge-since"] == str(NOW)


@pytest.mark.parametrize(
    ("properties", "body", "text"),
    [
        ({"text": True}, b"x", True),
        ({"text": False, "content_type": b"text/plain"}, b"x", False),
        ({"content_type": b"text/plain; charset=utf-8"}, b"x", True),
        ({"content_type": b"TEXT/plain"}, b"x", True),
        ({"content_type": b"application/cloudevents+json"}, b"x", True),
        ({"content_type": b"application/json", "content_encoding": b"gzip"}, b"x", False),
        ({"content_type": b"application/json"}, b"\xff", False),
        ({"content_type": b"application/jsonish"}, b"x", False),
        ({}, b"x", False),
    ],
)
def test_a_body_is_text_where_it_is_known_to_be(properties: dict[str, Any], body: bytes, *, text: bool) -> None:
    assert ("content-length" in goes(message(body, {}, Properties(**properties)))) is not text


def test_a_text_that_holds_nuls_says_how_long_it_is_and_that_it_is_text() -> None:
    got = goes(message(b"a\0b", {}, Properties(text=True)))
    assert got == {"persistent": "true", "content-length": "3", "amq-msg-type": "text"}


def test_a_tombstone_says_that_it_is_one() -> None:
    assert goes(Message(None))["x-delay-tombstone"] == "true"
    assert "x-delay-tombstone" not in goes(Message(b""))
