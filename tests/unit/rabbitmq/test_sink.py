"""The sink's bookkeeping against a scripted broker: which message gets which outcome."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika.exceptions import AMQPError, ChannelClosedByBroker, StreamLostError
from unit.rabbitmq.sink_stage import LIMIT, Stage, word

from delaybridge.adapters.base import NotConnected, Outgoing
from delaybridge.adapters.rabbitmq.sink import _IDLE_ABOVE
from delaybridge.adapters.rabbitmq.wire import Confirmed, Returned, encode
from delaybridge.core import fields
from delaybridge.core.message import NO_PROPERTIES, Message, Properties, message


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_acks_confirm_single_messages_and_all_up_to_one(stage: Stage) -> None:
    stage.publish(*"abcde")
    stage.ack(2)
    assert stage.outcomes == {"b": "confirmed"}
    stage.ack(4, multiple=True)
    assert [tag for tag, _ in stage.heard] == [b"b", b"a", b"c", b"d"]
    stage.ack(5)
    assert stage.outcomes == dict.fromkeys("abcde", "confirmed")


@pytest.mark.parametrize("multiple", [False, True])
def test_an_ack_costs_no_more_than_what_it_settles_however_many_were_settled_before(stage: Stage, multiple: bool) -> None:
    looked_for: list[int] = []

    class Flying(dict[int, Any]):
        def pop(self, number: int, *default: Any) -> Any:
            looked_for.append(number)
            return super().pop(number, *default)

    stage.publish("1")
    stage.session._outlets[b"x"]._flying = Flying(stage.session._outlets[b"x"]._flying)
    stage.publish(*map(str, range(2, 101)))
    for number in range(1, 100):
        stage.ack(number, multiple=multiple)
    stage.ack(100, multiple=True)
    assert looked_for == [*range(1, 101)]


@given(st.data())
def test_each_message_has_one_outcome_whatever_the_order_of_the_acks(data: st.DataObject) -> None:
    stage = Stage()
    tags = [str(number) for number in range(1, data.draw(st.integers(1, 30)) + 1)]
    stage.publish(*tags)
    open_numbers: set[int] = set(range(1, len(tags) + 1))
    more, one_or_all = st.booleans(), st.booleans()
    while open_numbers:
        if not data.draw(more):
            break
        number = data.draw(st.sampled_from(sorted(open_numbers)))
        multiple = data.draw(one_or_all)
        stage.ack(number, multiple=multiple)
        open_numbers = {other for other in open_numbers if other > number} if multiple else open_numbers - {number}
    stage.session.lost(NotConnected("gone"))
    assert Counter(tag.decode() for tag, _ in stage.heard) == Counter(tags)
    assert {tag for tag, word in stage.outcomes.items() if word == "NotConnected"} == {str(number) for number in open_numbers}


def test_a_nack_means_refused_by_the_broker(stage: Stage) -> None:
    stage.publish("a", "b")
    stage.ack(2, multiple=True, ok=False)
    assert stage.outcomes == {"a": "refused_by_broker", "b": "refused_by_broker"}


def returned(tag: str, table: bytes = b"", key: bytes = b"k", channel: int = 1) -> Returned:
    return Returned(channel, "NO_ROUTE", key, encode(NO_PROPERTIES, table), tag.encode())


def test_a_returned_message_is_unroutable_and_its_neighbours_are_not(stage: Stage) -> None:
    stage.publish("a", "b", "c")
    stage.session.heard([returned("b"), Confirmed(1, 3, True, True)])
    assert stage.outcomes == {"a": "confirmed", "b": "unroutable", "c": "confirmed"}


def test_of_equal_bodies_the_one_with_the_returned_headers_is_unroutable(stage: Stage) -> None:
    for tag, number in (("a", 1), ("b", 2)):
        stage.session.submit([Outgoing(tag.encode(), "/exchanges/x/k", message(b"same", {"x-delay-occurrence": number}))])
    stage.run()
    stage.session.heard([returned("same", fields.entry("x-delay-occurrence", 2)), Confirmed(1, 2, True, True)])
    assert stage.outcomes == {"a": "confirmed", "b": "unroutable"}


def test_of_equal_bodies_the_one_with_the_returned_key_is_unroutable(stage: Stage) -> None:
    for tag, key in (("a", "there"), ("b", "nowhere")):
        stage.session.submit([Outgoing(tag.encode(), f"/exchanges/x/{key}", message(b"same"))])
    stage.run()
    stage.session.heard([returned("same", key=b"nowhere"), Confirmed(1, 2, True, True)])
    assert stage.outcomes == {"a": "confirmed", "b": "unroutable"}


def test_a_returned_message_is_found_behind_one_that_was_confirmed_before_those_in_front_of_it(stage: Stage) -> None:
    stage.publish("a", "b", "c")
    stage.ack(2)
    stage.session.heard([returned("c"), Confirmed(1, 3, True, True)])
    assert stage.outcomes == {"a": "confirmed", "b": "confirmed", "c": "unroutable"}


def test_headers_that_the_broker_added_or_took_do_not_hide_a_returned_message(stage: Stage) -> None:
    stage.publish("a", address="/exchanges/x.real/k", BCC="list", own=1)
    stage.session.heard([returned("a", fields.table([("stamp", 5), ("own", 1)])), Confirmed(1, 1, False, True)])
    assert stage.outcomes == {"a": "unroutable"}


@pytest.mark.parametrize(("count", "name"), [(None, b"x-original-cc"), (True, b"CC")])
def test_copies_are_asked_for_where_the_producer_asked_and_not_by_an_exchanges_name(count: bool | None, name: bytes) -> None:
    stage = Stage()
    stage.session.submit([Outgoing(b"a", "/exchanges/x.real/k", Message(b"a", b"\2CCA\0\0\0\0", Properties(copies=count)))])
    stage.run()
    assert bytes((len(name),)) + name + b"A\0\0\0\0" in stage.wire.written[-1]


def test_headers_that_the_broker_wrote_over_or_dropped_do_not_hide_a_returned_message(stage: Stage) -> None:
    """As interceptors of RabbitMQ 4 do, and RabbitMQ 4 itself with a name that stands twice."""
    sent = fields.table([("timestamp_in_ms", 1), ("twice", "a"), ("twice", "b"), ("x-delay-id", "1"), ("x-delay-due", 7)])
    back = fields.table([("timestamp_in_ms", 2), ("twice", "a"), ("x-delay-due", 7), ("x-delay-id", "1")])
    stage.session.submit([Outgoing(b"a", "/exchanges/x/k", Message(b"a", sent))])
    stage.run()
    stage.session.heard([returned("a", back), Confirmed(1, 1, False, True)])
    assert stage.outcomes == {"a": "unroutable"}


def test_every_one_of_many_returned_messages_is_found_once(stage: Stage) -> None:
    stage.publish(*["same"] * 500)
    stage.session.heard([*[returned("same")] * 499, Confirmed(1, 500, True, True)])
    assert Counter(word(error) for _, error in stage.heard) == {"unroutable": 499, "confirmed": 1}


def test_a_return_of_something_unknown_ends_the_connection(stage: Stage) -> None:
    stage.publish("a")
    with pytest.raises(AMQPError, match="not under way"):
        stage.session.heard([returned("other")])


def close(stage: Stage, code: int, channel: int = 1) -> None:
    stage.wire.open[channel].breaks(ChannelClosedByBroker(code, "the broker's words"))


def test_a_missing_exchange_fails_its_own_messages_and_no_others(stage: Stage) -> None:
    stage.publish("a", "b")
    stage.publish("c", address="queue")
    close(stage, 404)
    assert stage.outcomes == {"a": "unroutable", "b": "unroutable"}
    stage.ack(1, channel=2)
    assert stage.outcomes["c"] == "confirmed"


def test_a_missing_exchange_is_tried_again_when_something_is_published_to_it(stage: Stage) -> None:
    stage.publish("a")
    close(stage, 404)
    stage.publish("b")
    stage.ack(1, channel=2)
    assert stage.outcomes == {"a": "unroutable", "b": "confirmed"}


@pytest.mark.parametrize(("code", "word"), [(406, "rejected_by_broker"), (311, "rejected_by_broker"), (403, "refused_by_broker")])
def test_the_culprit_that_closed_a_channel_is_found_by_publishing_one_at_a_time(stage: Stage, code: int, word: str) -> None:
    stage.publish("good", "bad", "late")
    close(stage, code)
    assert stage.outcomes == {}
    stage.publish("later")
    stage.ack(1, channel=2)
    assert stage.outcomes == {"good": "confirmed"}
    close(stage, code, channel=2)
    assert stage.outcomes == {"good": "confirmed", "bad": word}
    stage.ack(1, channel=3)
    stage.ack(2, channel=3)
    assert stage.outcomes == {"good": "confirmed", "bad": word, "late": "confirmed", "later": "confirmed"}
    assert stage.wire.published == 3 + len(("good", "bad", "late", "later"))


def test_after_the_culprit_messages_fly_together_again(stage: Stage) -> None:
    stage.publish("bad", "late")
    close(stage, 406)
    close(stage, 406, channel=2)
    stage.ack(1, channel=3)
    before = stage.wire.published
    stage.publish("x", "y", "z")
    assert stage.wire.published == before + 3


def test_what_came_back_before_its_channel_closed_and_is_taken_afterwards_is_confirmed(stage: Stage) -> None:
    stage.publish("a", "bad")
    stage.session.heard([returned("a")])
    close(stage, 406)
    stage.ack(1, channel=2)
    assert stage.outcomes == {"a": "confirmed"}


def test_an_exchange_has_one_channel_and_after_that_has_closed_all_goes_over_the_new_one(stage: Stage) -> None:
    stage.publish("a")
    stage.publish("b")
    assert stage.wire.opened == 1
    close(stage, 406)
    stage.ack(1, channel=2)
    assert [int.from_bytes(data[1:3], "big") for data in stage.wire.written] == [1, 1, 2, 2]


def test_over_the_channel_that_takes_the_place_of_one_that_closed_numbers_begin_anew(stage: Stage) -> None:
    stage.publish(*"abc")
    stage.ack(3, multiple=True)
    stage.publish("bad")
    close(stage, 406)
    stage.publish("d", "e")
    stage.ack(2, multiple=True, channel=2)
    assert stage.outcomes == dict.fromkeys("abcde", "confirmed") | {"bad": "rejected_by_broker"}


def test_when_an_exchange_turns_out_to_be_missing_nothing_goes_one_at_a_time_any_more(stage: Stage) -> None:
    stage.publish(*"abc")
    close(stage, 406)
    close(stage, 404, channel=2)
    before = stage.wire.published
    stage.publish("x", "y", "z")
    assert stage.wire.published == before + 3


def test_an_idle_channel_that_the_broker_closes_while_we_do_harms_nothing_on_the_next_one(stage: Stage) -> None:
    stage.publish("before")
    stage.ack(1)
    leaving = stage.wire.open[1]
    leaving.close = lambda: setattr(leaving, "is_open", False)  # type: ignore[method-assign]  # the broker's answer is on its way
    stage.session.close_idle()
    stage.publish("after")
    leaving.breaks(ChannelClosedByBroker(406, "it was quicker"))
    stage.session.lost(NotConnected("gone"))
    assert stage.outcomes == {"before": "confirmed", "after": "NotConnected"}


def test_what_comes_back_over_the_channel_that_takes_the_place_of_one_that_closed_is_found(stage: Stage) -> None:
    stage.publish(*"abc")
    stage.session.heard([returned("c"), Confirmed(1, 3, True, True)])
    stage.publish("bad")
    close(stage, 406)
    stage.publish("d")
    stage.session.heard([returned("d", channel=2), Confirmed(2, 1, False, True)])
    assert stage.outcomes["d"] == "unroutable"


def test_each_of_several_culprits_is_found_while_no_other_message_is_on_the_wire(stage: Stage) -> None:
    stage.publish("bad", "good", "bad too", "good too")
    close(stage, 406)
    close(stage, 406, channel=2)
    before = stage.wire.published
    stage.ack(1, channel=3)
    assert stage.wire.published == before + 1
    close(stage, 406, channel=3)
    stage.ack(1, channel=4)
    assert stage.outcomes == {"bad": "rejected_by_broker", "good": "confirmed", "bad too": "rejected_by_broker", "good too": "confirmed"}


def test_what_comes_while_a_channel_is_being_opened_waits_for_it(stage: Stage) -> None:
    stage.wire.opening = []
    stage.publish("a")
    stage.publish("b")
    assert stage.wire.published == 0
    (opened,) = stage.wire.opening
    stage.wire.open[1].is_open = True
    opened()
    stage.ack(2, multiple=True)
    assert stage.outcomes == {"a": "confirmed", "b": "confirmed"}


def test_a_channel_that_is_being_opened_is_not_idle(stage: Stage) -> None:
    stage.wire.opening = []
    stage.publish("a")
    stage.session.close_idle()
    stage.session.lost(NotConnected("gone"))
    assert stage.outcomes == {"a": "NotConnected"}


def test_what_is_more_than_one_write_is_published_once(stage: Stage) -> None:
    large = message(b"x" * 70_000)
    stage.session.submit([Outgoing(b"%d" % number, "/exchanges/x/k", large) for number in range(5)])
    stage.run()
    assert stage.wire.published == 5


def test_a_channel_that_closes_with_nothing_under_way_is_not_opened_for_ever(stage: Stage) -> None:
    stage.publish("a")
    stage.ack(1)
    close(stage, 406)
    assert stage.wire.opened == 1


def test_when_the_connection_breaks_every_message_is_unknown(stage: Stage) -> None:
    stage.publish("a", "b")
    stage.wire.open[1].breaks(StreamLostError("gone"))
    stage.session.lost(NotConnected("gone"))
    assert stage.outcomes == {"a": "NotConnected", "b": "NotConnected"}
    with pytest.raises(NotConnected):
        stage.publish("c")


def test_what_was_handed_over_and_not_published_yet_is_unknown_as_well(stage: Stage) -> None:
    stage.wire.is_open = False
    stage.publish("a")
    assert (stage.outcomes, stage.wire.opened) == ({}, 0)
    stage.session.lost(NotConnected("gone"))
    assert stage.outcomes == {"a": "NotConnected"}


@pytest.mark.parametrize("breaks", ["_prepared", "_outlet"])
def test_what_nobody_foresaw_leaves_no_message_without_its_outcome(stage: Stage, breaks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.publish("sent", "sent too")
    works = getattr(stage.session, breaks)
    calls: list[object] = []

    def breaks_later(*given: Any) -> Any:
        calls.append(given)
        if len(calls) > 1:
            raise RuntimeError("nobody foresaw this")
        return works(*given)

    monkeypatch.setattr(stage.session, breaks, breaks_later)
    for tag in "abc":
        stage.session.submit([Outgoing(tag.encode(), f"/exchanges/{tag}/k", message(b""))])
    with pytest.raises(RuntimeError):
        stage.run()
    stage.session.lost(NotConnected("gone"))
    assert Counter(tag.decode() for tag, _ in stage.heard) == Counter(["sent", "sent too", *"abc"])


def test_without_a_free_channel_the_destination_is_held_back(stage: Stage) -> None:
    stage.wire.channels_left = 1
    stage.publish("a")
    stage.publish("b", address="/exchanges/other/k")
    assert stage.outcomes == {"b": "refused_by_broker"}


def test_where_a_broker_allows_few_channels_an_idle_one_makes_room_for_the_next_try(stage: Stage) -> None:
    stage.wire.channels_left = 1
    stage.publish("a")
    stage.ack(1)
    stage.publish("b", address="/exchanges/other/k")
    stage.publish("b again", address="/exchanges/other/k")
    stage.ack(1, channel=2)
    assert stage.outcomes == {"a": "confirmed", "b": "refused_by_broker", "b again": "confirmed"}


def test_idle_channels_are_given_back_and_busy_ones_kept(stage: Stage) -> None:
    stage.publish("busy", address="/exchanges/busy/k")
    for number in range(_IDLE_ABOVE + 5):
        stage.publish(str(number), address=f"/exchanges/{number}/k")
        stage.ack(1, channel=stage.wire.opened)
    assert len(stage.wire.open) <= _IDLE_ABOVE
    stage.ack(1, channel=1)
    assert stage.outcomes["busy"] == "confirmed"


# --- what is not published at all ---


@pytest.mark.parametrize("user", [b"alice", b"\xff"])
def test_a_foreign_user_id_is_rejected_and_the_own_one_is_not(stage: Stage, user: bytes) -> None:
    stage.publish("alien", properties=Properties(user_id=user))
    stage.publish("own", properties=Properties(user_id=b"guest"))
    stage.ack(1)
    assert stage.outcomes == {"alien": "rejected_by_broker", "own": "confirmed"}


def test_an_impersonator_may_publish_any_user_id() -> None:
    stage = Stage(impersonates=True)
    stage.publish("alien", properties=Properties(user_id=b"alice"))
    stage.ack(1)
    assert stage.outcomes == {"alien": "confirmed"}


def test_headers_must_fit_one_frame(stage: Stage) -> None:
    spare = LIMIT - 12 - 2 - 4 - len(fields.entry("h", ""))
    stage.publish("fits", h="x" * spare)
    stage.publish("too large", h="x" * (spare + 1))
    stage.ack(1)
    assert stage.outcomes == {"fits": "confirmed", "too large": "too_large"}


def test_what_cannot_be_published_holds_up_no_other_message_of_its_batch(stage: Stage) -> None:
    stage.session.submit(
        [
            Outgoing(b"1", "/nowhere", message(b"")),
            Outgoing(b"2", "q", message(b"")),
            Outgoing(b"3", "q", message(b"", properties=Properties(priority=999))),
        ]
    )
    stage.run()
    stage.ack(1)
    assert stage.outcomes == {"1": "bad_destination", "2": "confirmed", "3": "rejected_by_broker"}
