"""Messages as Artemis gives them: each with its length, that of bytes first and that of a text last, and maps and streams cut down to a piece of them."""

from __future__ import annotations

import pytest

from delaybridge.adapters.activemq.frames import Reader
from delaybridge.adapters.activemq.incoming import Rules, received
from delaybridge.adapters.activemq.outgoing import headers_of
from delaybridge.adapters.base import Received

MARK = b"0123456789abcdef"
SAID = b"message-id:%b\ndestination:in\nack:280\nexpires:0\npriority:4\npersistent:true\ntimestamp:1795978188823\n%b"


def came(body: bytes, *, text: bool, message_id: bytes = b"280,232", more: bytes = b"") -> Received:
    length, said = b"content-length:%d\n" % len(body), SAID % (message_id, more)
    head = said + length if text else length + said
    [frame] = Reader(MARK).feed(b"MESSAGE\nsubscription:%b\n%b\n%b\0\n" % (MARK, head, body))
    return received(frame, Rules())


@pytest.mark.parametrize("text", [True, False])
def test_a_text_of_artemis_goes_on_as_a_text_and_bytes_as_bytes(*, text: bool) -> None:
    one = came("hällo".encode(), text=text)
    assert (one.defect, one.message.properties.text) == (None, text)
    lines, body = headers_of(one.message, 0, persistent=True)
    assert (b"content-length" not in lines, body) == (text, "hällo".encode())


def test_where_activemq_puts_the_length_says_nothing() -> None:
    assert came(b"x", text=True, message_id=b"ID\\chost-1-2-3\\c4\\c-1\\c1\\c5").message.properties.text is False


def test_a_text_with_nuls_that_the_bridge_sent_as_bytes_is_a_text_still() -> None:
    one = came(b"\0x", text=False, more=b"amq-msg-type:text\n")
    assert (one.defect, one.message.properties.text) == (None, True)


@pytest.mark.parametrize("piece", [b"\0", b"\0" + "ࠀkey".encode()])
def test_a_piece_of_a_map_is_refused(piece: bytes) -> None:
    """As Artemis 2.55 gives maps of two and of ten fields; one of a single field is empty."""
    defect = came(piece, text=True).defect
    assert defect is not None
    assert defect.reason == "unsupported_body"
    assert came(piece, text=False).defect is None, "bytes may begin with anything"
