"""Messages of AMQP 1.0 clients, which ActiveMQ gives to a STOMP client as an encoded whole, with notes among the headers that say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delaybridge.adapters.activemq.frames import Frame
from delaybridge.adapters.activemq.incoming import Rules, received
from delaybridge.adapters.activemq.outgoing import asking, harmless, headers_of, selectable
from delaybridge.core.message import Message, message

if TYPE_CHECKING:
    from delaybridge.adapters.base import Received

NOW = 1_800_000_000_000
ENCODED = b"\0SpE\0Sw\xa1\x05hello"
NOTES = {
    b"JMS_AMQP_NATIVE": b"true",
    b"JMS_AMQP_HEADER": b"true",
    b"JMS_AMQP_ContentType": b"text/plain",
    b"JMS_AMQP_MA_x-opt-colour": b"red",
}


def taken(body: bytes = ENCODED, notes: dict[bytes, bytes] = NOTES, **more: bytes) -> Received:
    given = {b"message-id": b"ID\\chost-1-2-3\\c4\\c1\\c1\\c5", b"ack": b"a", b"subscription": b"s", b"destination": b"/queue/q"}
    given |= notes | {name.replace("_id", "-id").encode(): value for name, value in more.items()}
    return received(Frame(b"MESSAGE", given, body, sized=True), Rules(), NOW)


def came(**more: bytes) -> Message:
    return taken(ENCODED, NOTES, **more).message


@pytest.mark.parametrize("named", [harmless, asking, selectable])
def test_what_the_amqp_connector_noted_comes_back_to_it_so_that_it_can_read_the_message(named: object) -> None:
    lines, body = headers_of(came(), NOW, persistent=True, named=named)  # type: ignore[arg-type]
    assert body == ENCODED
    assert {b"%b:%b" % note for note in NOTES.items()} <= set(lines.split(b"\n"))


def test_the_delay_of_an_amqp_producer_is_not_shown_to_the_consumer_as_one_of_this_message() -> None:
    lines, _ = headers_of(came(**{"JMS_AMQP_MA_x-opt-delivery-delay": b"500"}), NOW, persistent=True)
    assert b"\nx-header-JMS_AMQP_MA_x-opt-delivery-delay:500\n" in lines


def test_nobody_on_another_broker_makes_a_body_pass_for_an_encoded_message() -> None:
    lines, _ = headers_of(message(b"x", {"JMS_AMQP_NATIVE": "true"}), NOW, persistent=True)
    assert b"\nx-header-JMS_AMQP_NATIVE:true\n" in lines


@pytest.mark.parametrize("notes", [NOTES, {}])
def test_a_message_whose_id_activemq_cannot_acknowledge_is_known_again_when_it_is_given_again(notes: dict[bytes, bytes]) -> None:
    """Qpid JMS makes such ids: ActiveMQ fails to read the number at their end, closes the connection, redelivers. `transformer=jms` makes no notes."""
    chosen = b"ID\\c99daa45e-12a1\\c1\\c1\\c2-1"
    first, again, other = (
        taken(notes=notes, message_id=chosen, ack=ack, timestamp=time).token
        for ack, time in ((b"7", b"1800"), (b"9", b"1800"), (b"7", b"1801"))
    )
    assert first == again
    assert first != other, "a producer may give one id to several messages"
    assert first != taken(b"another", notes, message_id=chosen, ack=b"8", timestamp=b"1800").token, "also within a millisecond"
    assert first != taken(notes=notes, message_id=chosen, ack=b"8", timestamp=b"1800", x_delay=b"5000").token


def test_messages_of_no_time_to_which_their_producer_gave_one_id_are_not_taken_for_one() -> None:
    """As a producer of ticks may, with `transport.transformer=jms`: what is delivered twice is better than what is lost."""
    one, next_one = (taken(message_id=b"tick", ack=ack, timestamp=b"0").token for ack in (b"7", b"8"))
    assert one != next_one


def test_a_time_to_live_holds_also_where_nothing_says_when_the_message_was_sent() -> None:
    """The connector with `transport.transformer=jms` gives the time 0 to what has no creation-time."""
    expires = b"%d" % (NOW + 60_000)
    assert came(expires=expires, timestamp=b"0").properties.expiration == b"60000"
    assert came(expires=expires, timestamp=b"%d" % (NOW - 5_000)).properties.expiration == b"65000"
    assert came(expires=b"%d" % (NOW - 1), timestamp=b"0").properties.expiration is None
