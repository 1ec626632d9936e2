"""What every adapter does, in sentences. A new adapter adds itself to `stages.py` and passes them all."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from brokers.common import wait_until

from contract.stages import STAGES, Stage
from delaybridge.adapters import base
from delaybridge.adapters.base import AdapterError, Batch, NotConnected, Outcome, Outgoing, Received, Source
from delaybridge.core import fields
from delaybridge.core.message import Message, Properties, message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@pytest.fixture(params=STAGES)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    one = STAGES[request.param](request)
    one.source().close()  # declares the queue
    yield one
    one.close()


def receive(source: Source, count: int, limit: int = 500, *, ack: bool = False) -> list[Batch]:
    """Batches that hold `count` messages together."""
    batches: list[Batch] = []
    deadline = time.monotonic() + 60
    while (got := sum(len(batch.messages) for batch in batches)) < count:
        assert time.monotonic() < deadline, f"{got} of {count} messages came"
        batch = source.receive(min(limit, count - got), 1)
        if batch is not None:
            batches.append(batch)
            if ack:
                batch.ack()
    return batches


def received(source: Source, count: int) -> list[Received]:
    """That many messages, acknowledged batch by batch."""
    return [one for batch in receive(source, count, ack=True) for one in batch.messages]


def numbered(count: int) -> list[Message]:
    return [message(str(number).encode(), {"number": number}, Properties(delivery_mode=2)) for number in range(count)]


def bodies(messages: Sequence[Received]) -> list[str]:
    return [(one.message.body or b"").decode() for one in messages]


def error_of(outcomes: Sequence[Outcome], tag: bytes) -> AdapterError | None:
    (error,) = [error for heard, error in outcomes if heard == tag]
    return error


# --- messages ---

BODIES = {
    "empty": b"",
    "text": "größe".encode(),
    "binary with zeros": bytes(range(256)) * 3,
    "a byte more than a frame": b"x" * (131064 + 1),
    "5 MiB": secrets.token_bytes(5 << 20),
}


def test_each_body_comes_out_as_it_went_in(stage: Stage) -> None:
    stage.send(*map(Message, BODIES.values()))
    arrived = received(stage.source(), len(BODIES))
    assert [name for name, one in zip(BODIES, arrived, strict=True) if one.message.body != BODIES[name]] == []


HEADERS: dict[str, fields.Value] = {
    "none": None, "true": True, "false": False, "zero": 0, "negative": -(2**63), "large": 2**63 - 1, "float": 1.5, "text": "größe",
    "empty": "", "bytes": b"\x00\xff", "": "no name", "n" * 255: "long name",
}  # fmt: skip


def test_each_header_keeps_its_type_and_value(stage: Stage) -> None:
    sent = {name: message(b"", {name: value}) for name, value in HEADERS.items()}
    stage.send(*sent.values())
    arrived = received(stage.source(), len(sent))
    assert {name: one.message.headers for name, one in zip(sent, arrived, strict=True)} == {
        name: stage.form(one).headers for name, one in sent.items()
    }


def test_all_properties_come_out_as_they_went_in(stage: Stage) -> None:
    properties = Properties(
        content_type=b"application/json", content_encoding=b"gzip", delivery_mode=2, priority=7, correlation_id=b"\xff\x00", reply_to=b"here",
        expiration=b"60000000", message_id=b"m-1", timestamp=1_700_000_000, type=b"order", app_id=b"shop", cluster_id=b"c",
    )  # fmt: skip
    sent = message(b"body", {"a": 1}, properties)
    stage.send(sent)
    (one,) = received(stage.source(), 1)
    assert one.message == stage.form(sent)
    assert one.defect is None


def test_a_message_that_came_straight_to_the_ingress_names_no_destination(stage: Stage) -> None:
    stage.send(message(b""))
    assert received(stage.source(), 1)[0].address == ""


# --- receiving ---


def test_messages_come_in_the_order_in_which_they_were_sent(stage: Stage) -> None:
    stage.send(*numbered(3000))
    assert bodies(received(stage.source(), 3000)) == [str(number) for number in range(3000)]


def test_a_batch_holds_no_more_than_was_asked_for(stage: Stage) -> None:
    stage.send(*numbered(50))
    batches = receive(stage.source(), 50, limit=7)
    assert max(len(batch.messages) for batch in batches) <= 7


def test_asked_for_nothing_a_source_gives_nothing(stage: Stage) -> None:
    stage.send(*numbered(3))
    source = stage.source()
    assert source.receive(0, 0.5) is None
    assert bodies(received(source, 3)) == ["0", "1", "2"]


def test_nothing_to_receive_is_none_after_the_timeout(stage: Stage) -> None:
    source = stage.source()
    began = time.monotonic()
    assert source.receive(10, 0.2) is None
    assert 0.2 <= time.monotonic() - began < 30


def test_a_message_that_arrives_during_the_wait_ends_it(stage: Stage) -> None:
    source = stage.source()
    began = time.monotonic()
    stage.send(message(b"now"))
    assert source.receive(10, 60) is not None
    assert time.monotonic() - began < 30


def test_what_was_acknowledged_never_comes_again(stage: Stage) -> None:
    stage.send(*numbered(10))
    source = stage.source()
    received(source, 10)
    source.connect()
    assert source.receive(10, 0.5) is None


def test_what_was_not_acknowledged_comes_again_in_order_and_is_recognised(stage: Stage) -> None:
    stage.send(*numbered(10))
    source = stage.source()
    first = [one for batch in receive(source, 10) for one in batch.messages]
    source.connect()
    again = received(source, 10)
    assert bodies(again) == bodies(first)
    assert [one.token for one in again] == [one.token for one in first]
    assert [one.message for one in again] == [one.message for one in first]
    assert stage.exact or {one.redelivered for one in first} == {False}
    assert {one.redelivered for one in again} == {True}


def test_messages_that_differ_have_different_tokens(stage: Stage) -> None:
    stage.send(*numbered(20), message(b"same", {"a": 1}), message(b"same", {"a": 2}), message(b"same", {}, Properties(message_id=b"1")))
    assert len({one.token for one in received(stage.source(), 23)}) == 23


def test_tokens_of_a_log_begin_with_its_name_and_rise(stage: Stage) -> None:
    stage.send(*numbered(20))
    came = received(stage.source(), 20)
    assert {bool(one.log) for one in came} == {stage.log}
    assert all(one.token.startswith(one.log) for one in came)
    for log in {one.log for one in came if one.log}:
        tokens = [one.token for one in came if one.log == log]
        assert tokens == sorted(tokens)
        assert len({len(token) for token in tokens}) == 1


def test_another_source_gets_what_a_closed_one_left(stage: Stage) -> None:
    stage.send(*numbered(5))
    source = stage.source()
    receive(source, 5)
    source.close()
    assert bodies(received(stage.source(), 5)) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("order", [(1,), (2, 0), (1, 0), (0, 2)])
def test_acknowledging_some_batches_acknowledges_no_others(stage: Stage, order: tuple[int, ...]) -> None:
    stage.send(*numbered(9))
    source = stage.source()
    thirds = [receive(source, 3) for _ in range(3)]
    for index in order:
        for batch in thirds[index]:
            batch.ack()
    source.connect()
    left = [str(number) for number in range(9) if number // 3 not in order]
    if stage.cumulative and left:
        left = [str(number) for number in range(int(left[0]), 9)]  # what stands behind an unacknowledged message comes again as well
    assert bodies(received(source, len(left))) == left


def test_an_acknowledgement_after_the_connection_is_gone_does_nothing(stage: Stage) -> None:
    stage.send(*numbered(3))
    source = stage.source()
    batches = receive(source, 3)
    source.connect()
    for batch in batches:
        batch.ack()
    source.connect()
    assert sorted(bodies(received(source, 3))) == ["0", "1", "2"]  # of two connections in a row Artemis may mix what it takes back


def test_a_source_that_can_tell_whether_it_still_has_its_messages_has_them_until_it_is_closed(stage: Stage) -> None:
    stage.send(*numbered(2))
    source = stage.source()
    if not isinstance(source, base.Holding):
        pytest.skip("it cannot tell")
    receive(source, 2)
    assert source.affirm(source.tenure())
    source.close()
    with pytest.raises(NotConnected):
        source.tenure()


def test_a_closed_source_is_not_connected_and_may_be_closed_again(stage: Stage) -> None:
    source = stage.source()
    source.close()
    source.close()
    with pytest.raises(NotConnected):
        source.receive(1, 0)


# --- publishing ---


def test_each_message_is_confirmed_exactly_once(stage: Stage) -> None:
    sink = stage.sink()
    for start in range(0, 2000, 100):
        sink.publish([Outgoing(str(start + number).encode(), stage.address, message(b"")) for number in range(100)])
    wait_until(lambda: len(stage.outcomes) >= 2000, "confirms")
    sink.close()
    assert Counter(tag for tag, _ in stage.outcomes) == Counter(str(number).encode() for number in range(2000))
    assert {error for _, error in stage.outcomes} == {None}


def test_messages_of_one_batch_go_out_in_their_order(stage: Stage) -> None:
    sink = stage.sink()
    for start in range(0, 300, 100):
        sink.publish([Outgoing(b"", stage.address, one) for one in numbered(300)[start : start + 100]])
    assert bodies(received(stage.source(), 300)) == [str(number) for number in range(300)]


def test_nothing_is_published_on_a_closed_sink_and_closing_twice_is_fine(stage: Stage) -> None:
    sink = stage.sink()
    sink.close()
    sink.close()
    with pytest.raises(NotConnected):
        sink.publish([Outgoing(b"1", stage.address, message(b""))])
    assert stage.outcomes == []


def test_after_closing_every_published_message_has_had_its_outcome(stage: Stage) -> None:
    sink = stage.sink()
    sink.publish([Outgoing(str(number).encode(), stage.address, message(b"x" * 1000)) for number in range(500)])
    sink.close()
    assert Counter(tag for tag, _ in stage.outcomes) == Counter(str(number).encode() for number in range(500))
    unknown = [error for _, error in stage.outcomes if error is not None]
    assert {type(error) for error in unknown} <= {NotConnected}
    assert len(received(stage.source(), 500 - len(unknown))) == 500 - len(unknown)


@pytest.mark.parametrize("milliseconds", [0, 3, 30, 300])
def test_at_whatever_moment_a_sink_is_closed_each_message_has_had_one_outcome(stage: Stage, milliseconds: int) -> None:
    sink = stage.sink()
    addresses = (stage.address, stage.address + "-missing", "/nowhere/at/all")
    for start in range(0, 300, 3):  # in small pieces, so that some are on their way in each of the adapter's stages
        sink.publish([Outgoing(str(start + number).encode(), address, message(b"")) for number, address in enumerate(addresses)])
    threading.Event().wait(milliseconds / 1000)
    sink.close()
    assert Counter(tag for tag, _ in stage.outcomes) == Counter(str(number).encode() for number in range(300))


def test_a_sink_works_again_after_connecting_again(stage: Stage) -> None:
    sink = stage.sink()
    sink.close()
    sink.connect(stage.outcomes.extend)
    sink.publish([Outgoing(b"1", stage.address, message(b"back"))])
    wait_until(lambda: len(stage.outcomes) == 1, "the confirm")
    assert bodies(received(stage.source(), 1)) == ["back"]


# --- listening ---


def test_an_adapter_of_ours_can_listen_at_a_destination_for_as_long_as_one_likes(stage: Stage) -> None:
    assert isinstance(stage.adapter, base.Observable)
    tap = stage.tap(stage.address)
    for body in ("heard", "and heard", "and heard"):
        stage.send(message(body.encode()))
        assert bodies(received(tap, 1)) == [body]
