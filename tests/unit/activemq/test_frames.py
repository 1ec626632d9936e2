"""STOMP frames on the wire, without a broker: the bytes are written out here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaybridge.adapters.activemq.frames import Frame, ProtocolError, Reader, escaped, frame, unescaped

MARK = b"0123456789abcdef"


def message(body: bytes, *, sized: bool, number: int = 1, length: int | bytes | None = None, subscription: bytes = MARK) -> bytes:
    said = length if isinstance(length, bytes) else b"%d" % (len(body) if length is None else length)
    size = b"content-length:%b\n" % said if sized else b""
    return b"MESSAGE\n" + size + b"message-id:%d\nsubscription:%b\nack:a\n\n" % (number, subscription) + body + b"\0\n"


def read(*chunks: bytes) -> list[Frame]:
    reader = Reader(MARK)
    return [one for chunk in chunks for one in reader.feed(chunk)]


def bodies(*chunks: bytes) -> list[bytes]:
    return [one.body for one in read(*chunks)]


RECEIPT = b"RECEIPT\nreceipt-id:1\n\n\0\n"
FORGED = (
    b"\0",
    b"a\0b",
    b"a\0\n",
    b"a\0\nb",
    b"\0\n\0\n",
    b"x\0\nMESSAGE\nsubscription:1\nack:1\n\ny",
    b"x\0\nMESSAGE\nnonsense",
    b"x\0\nHELLO\n\n",
    b"x\0\nMESS",
)


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("body", [b"", b"text", b"\n\n", *FORGED])
def test_a_body_ends_where_the_next_frame_begins(body: bytes, *, sized: bool) -> None:
    frames = read(message(body, sized=sized) + message(b"next", sized=False) + RECEIPT)
    assert [(one.command, one.body) for one in frames] == [(b"MESSAGE", body), (b"MESSAGE", b"next"), (b"RECEIPT", b"")]
    assert frames[0].sized is sized


def test_a_text_ends_where_a_message_begins_whose_header_has_an_end_of_line_in_its_name() -> None:
    """ActiveMQ escapes no names, and lets a JMS producer have any."""
    strange = b"MESSAGE\nmessage-id:2\na\nb:v\nsubscription:%b\nack:a\n\nstrange\0\n" % MARK
    assert bodies(message(b"text", sized=False) + strange + RECEIPT) == [b"text", b"strange", b""]


ALWAYS = b"subscription:%b\nmessage-id:2\nack:a\nexpires:0\ndestination:/queue/a\npriority:4\ntimestamp:1" % MARK


@pytest.mark.parametrize("blank", [b"a\n\nb:v", b"a\n\n\nb:v", b"\n\n:v", b"a:\n\nb:v"])
@pytest.mark.parametrize("before", range(7))
def test_a_name_with_a_blank_line_in_it_spoils_neither_the_text_before_it_nor_its_own_body(blank: bytes, before: int) -> None:
    lines = ALWAYS.split(b"\n")
    strange = b"MESSAGE\n" + b"\n".join([*lines[:before], blank, *lines[before:]]) + b"\n\nstrange\n\n\0\n"
    wire = message(b"te\n\nxt", sized=False) + strange + message(b"next", sized=False) + RECEIPT

    frames = read(wire)

    assert [one.body for one in frames] == [b"te\n\nxt", b"strange\n\n", b"next", b""]
    assert [one.broken for one in frames] == [False, True, False, False]
    assert frames[1].headers[b"ack"] == b"a"
    assert read(*(wire[at : at + 1] for at in range(len(wire)))) == frames


def test_a_name_with_a_blank_line_in_it_behind_all_that_each_message_has_is_seen_too() -> None:
    (one, _) = read(b"MESSAGE\n" + ALWAYS + b"\na\n\nb:v\n\nstrange\0\n" + RECEIPT)
    assert (one.body, one.broken) == (b"b:v\n\nstrange", True)


def test_one_connection_may_have_several_subscriptions() -> None:
    wire = message(b"one\0\n", sized=False, subscription=MARK + b"-1") + message(b"two", sized=False, subscription=MARK + b"-2") + RECEIPT
    assert bodies(wire) == [b"one\0\n", b"two", b""]


@given(st.lists(st.tuples(st.binary(max_size=40), st.booleans()), max_size=5), st.lists(st.integers(0, 600), max_size=12))
def test_it_does_not_matter_how_the_network_cuts_frames(messages: list[tuple[bytes, bool]], cuts: list[int]) -> None:
    wire = b"".join(b"\n" + message(body if sized else body.replace(b"\0", b""), sized=sized) for body, sized in messages) + RECEIPT
    places = sorted(min(cut, len(wire)) for cut in cuts)
    chunks = [wire[start:end] for start, end in zip([0, *places], [*places, len(wire)], strict=True)]
    frames = read(*chunks)
    assert [(one.body, one.sized) for one in frames[:-1]] == [
        (body if sized else body.replace(b"\0", b""), sized) for body, sized in messages
    ]
    assert frames[-1].command == b"RECEIPT"


@pytest.mark.parametrize("body", [body for body in FORGED if body != b"a\0\n"])
def test_a_text_with_zeros_is_one_text_even_byte_by_byte(body: bytes) -> None:
    wire = message(body, sized=False) + RECEIPT
    if b"\0\n" in body:  # a cut right behind these two cannot be told from the end
        assert bodies(wire)[0] == body
    else:
        assert bodies(*(wire[at : at + 1] for at in range(len(wire))))[0] == body


PADDED = b"one\0\0\0\ntwo\0\0\0\nthree\0\n"


@pytest.mark.parametrize("cut", range(len(message(PADDED, sized=False)) + 1))
def test_a_text_whose_lines_are_filled_up_with_nuls_is_whole_wherever_the_network_cuts_it(cut: int) -> None:
    wire = message(PADDED, sized=False)
    assert bodies(wire[:cut], wire[cut:], RECEIPT) == [PADDED, b""]


def test_a_reader_is_unsure_while_a_text_with_nuls_may_have_ended_until_a_frame_or_heartbeats_follow() -> None:
    for following in (RECEIPT[:1], b"\n"):
        reader = Reader(MARK)
        assert reader.feed(message(b"text", sized=False)) != []
        assert not reader.unsure
        assert reader.feed(message(PADDED, sized=False)) == []
        assert reader.unsure
        reader.feed(following)
        assert reader.feed(RECEIPT[1:] if following != b"\n" else b"\n")[0].body == PADDED
        assert not reader.unsure


@pytest.mark.parametrize("length", [0, 1, 4, 50, 80, 10_000])
def test_a_length_that_is_none_makes_the_body_a_text_and_swallows_nothing(length: int) -> None:
    wire = message(b"abc", sized=True, length=length) + message(b"next", sized=False, number=2) + RECEIPT
    frames = read(wire)
    assert [(one.body, one.sized) for one in frames[:2]] == [(b"abc", False), (b"next", False)]
    assert bodies(wire[:70], wire[70:]) == [b"abc", b"next", b""]


def test_a_length_that_ends_where_the_next_message_does_swallows_it_neither() -> None:
    following = message(b"next", sized=False, number=2)
    wire = message(b"abc", sized=True, length=len(b"abc\0\n" + following) - len(b"\0\n"))
    assert bodies(wire + following + RECEIPT) == [b"abc", b"next", b""]


@pytest.mark.parametrize("length", [b"9" * 11, b"9" * 4_301, b"-1", b"1.5", b"", "\N{ARABIC-INDIC DIGIT ONE}".encode()])
def test_what_cannot_be_a_length_is_none_so_the_last_frame_of_a_stream_waits_for_nothing(length: bytes) -> None:
    (one,) = read(message(b"abc", sized=True, length=length))
    assert (one.body, one.sized) == (b"abc", False)


@pytest.mark.parametrize("beats", [2, 3, 100])
def test_heartbeats_behind_the_last_frame_tell_that_its_length_was_none(beats: int) -> None:
    reader = Reader(MARK)
    wire = message(b"a\0b", sized=True, length=1000)
    came = [one.body for at in range(beats) for one in reader.feed(wire if at == 0 else b"\n")]
    assert came == [b"a\0b"] * (beats > 2)
    assert [one.body for one in reader.feed(b"\n" + message(b"next", sized=False))] == [b"a\0b"] * (beats == 2) + [b"next"]


def test_heartbeats_make_no_end_where_there_is_none() -> None:
    reader = Reader(MARK)
    body = b"a\0b" + b"\n" * 20 + b"c"
    wire = message(body, sized=True)
    at = wire.index(b"b" + b"\n" * 20) + 1
    assert [reader.feed(piece) for piece in (wire[:at], *[b"\n"] * 20)] == [[]] * 21
    assert [one.body for one in reader.feed(wire[at + 20 :])] == [body]


def test_a_length_that_is_none_swallows_no_message_that_comes_after_a_long_silence() -> None:
    silence = [b"\n\n"] * 60
    wire = message(b"abc", sized=True, length=10_000)
    assert bodies(wire, *silence, message(b"next", sized=False, number=2)) == [b"abc", b"next"]


def test_a_large_body_that_comes_in_pieces_is_whole() -> None:
    body = bytes(range(256)) * 4000
    wire = message(body, sized=True)
    assert bodies(*(wire[at : at + 65536] for at in range(0, len(wire), 65536))) == [body]


def test_of_repeated_headers_the_first_counts_and_heartbeats_are_nothing() -> None:
    (one,) = read(b"\n\r\n\n", b"RECEIPT\na:1\na:2\n\n\0", b"\n\n")
    assert one.headers == {b"a": b"1"}


@pytest.mark.parametrize("wire", [b"HTTP/1.1 400 Bad Request\r\n", b"\x15\x03\x01\x00\x02\x02", b"MESSAGEX\n"])
def test_what_is_no_stomp_is_said_so(wire: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(wire)


@given(st.binary().filter(lambda raw: b"\0" not in raw))
def test_what_is_escaped_comes_back(raw: bytes) -> None:
    assert unescaped(escaped(raw)) == raw
    assert not set(escaped(raw)) & set(b"\r\n:")


@pytest.mark.parametrize("raw", [b"a\\t", b"a\\", b"\\x", b"\\\\\\"])
def test_an_unknown_escape_is_an_error(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        unescaped(raw)


def test_values_are_escaped_in_a_frame() -> None:
    assert frame(b"SUBSCRIBE", (b"id", b"a:b\n")) == b"SUBSCRIBE\nid:a\\cb\\n\n\n\0"
