"""Where a message goes, and why it cannot."""

from __future__ import annotations

import pytest

from delaybridge.adapters.base import Received, Rejected
from delaybridge.adapters.texts import text_of
from delaybridge.bridge.intake.planner import MAX_HOPS, PlannedRoute, Planner
from delaybridge.core import fields as tables
from delaybridge.core import headers
from delaybridge.core.dead_letters import carrier
from delaybridge.core.fields import Value, plain
from delaybridge.core.message import Message, Properties, message
from delaybridge.core.reasons import Reason
from delaybridge.core.schedule import Limits, Schedule
from delaybridge.core.store import Put, Record, Refuse, Withdraw

NOW = 1_750_000_000_000
GATED = "/exchanges/orders.real/new"


def _route(**changes: object) -> PlannedRoute:
    fields: dict[str, object] = {
        "name": "orders",
        "source_broker": "rabbit",
        "source": "in",
        "lane": "rabbit",
        "probes": ("/queues/delaybridge.doctor.",),
    }
    return PlannedRoute(**(fields | changes))  # type: ignore[arg-type]  # changes are given by the tests below


def _received(headers: dict[str, Value], address: str = "", **more: object) -> Received:
    return Received(message(b"body", headers), address, b"token", **more)  # type: ignore[arg-type]  # as above


def _put(change: object) -> Put:
    assert isinstance(change, Put)
    return change


def _refused(change: object) -> Refuse:
    assert isinstance(change, Refuse)
    return change


def test_a_delay_counts_from_the_bridges_clock_where_the_broker_gives_no_time() -> None:
    change = _put(Planner(_route(), Limits()).plan(_received({"x-delay": 5000}, "/queues/a"), NOW))

    assert change.record.schedule.due == NOW + 5000


def test_a_delay_counts_from_the_moment_at_which_the_broker_took_the_message() -> None:
    change = _put(Planner(_route(), Limits()).plan(_received({"x-delay": 5000}, "/queues/a", sent=NOW - 2000), NOW))

    assert change.record.schedule.due == NOW + 3000


@pytest.mark.parametrize(("days", "believed"), [(30, True), (32, False)])
def test_a_delay_counts_from_when_it_was_sent_also_after_an_outage_longer_than_any_delay(days: int, *, believed: bool) -> None:
    sent = NOW - days * 86_400_000
    change = _put(Planner(_route(), Limits(max_delay=60_000)).plan(_received({"x-delay": 5000}, "/queues/a", sent=sent), NOW))

    assert change.record.schedule.due == (sent if believed else NOW) + 5000


def test_a_delay_counts_from_when_it_was_sent_as_long_ago_as_the_longest_delay() -> None:
    days = 86_400_000
    received = _received({"x-delay": 100 * days}, "/queues/a", sent=NOW - 90 * days)

    assert _put(Planner(_route(), Limits(max_delay=200 * days)).plan(received, NOW)).record.schedule.due == NOW + 10 * days


def test_a_message_goes_back_to_where_its_producer_sent_it() -> None:
    change = _put(Planner(_route(), Limits()).plan(_received({"x-delay": 5000}, "/exchanges/orders/eu"), NOW))

    assert (change.record.lane, change.record.address) == ("rabbit", "/exchanges/orders/eu")


def test_a_message_bears_where_it_came_from_and_when_for_the_ledger() -> None:
    record = _put(Planner(_route(lane="kafka", address="topic"), Limits()).plan(_received({"x-delay": 5000}), NOW)).record

    assert (record.route, record.source_broker, record.source, record.taken) == ("orders", "rabbit", "in", NOW)
    assert record.dialect == "rabbitmq"


def test_a_route_to_another_broker_does_not_reuse_the_sources_address() -> None:
    change = _refused(Planner(_route(lane="kafka"), Limits()).plan(_received({"x-delay": 5000}, "/exchanges/orders/eu"), NOW))

    assert change.reason == "no_destination"


def test_a_fixed_address_of_the_route_goes_before_the_producers() -> None:
    change = _put(Planner(_route(address="reminders"), Limits()).plan(_received({"x-delay": 5000}, "/exchanges/orders/eu"), NOW))

    assert change.record.address == "reminders"


def test_a_destination_header_is_followed_where_the_route_allows_it() -> None:
    planner = Planner(_route(address="reminders", allow_to=("mail-*",)), Limits())

    allowed = _put(planner.plan(_received({"x-delay": 5000, "x-delay-to": "mail-eu"}), NOW))
    refused = _refused(planner.plan(_received({"x-delay": 5000, "x-delay-to": "secrets"}), NOW))

    assert allowed.record.address == "mail-eu"
    assert refused.reason == "destination_not_allowed"


def test_the_doctors_probes_are_allowed_on_every_route() -> None:
    change = _put(Planner(_route(), Limits()).plan(_received({"x-delay": 300, "x-delay-to": "/queues/delaybridge.doctor.1"}), NOW))

    assert change.record.address == "/queues/delaybridge.doctor.1"


def test_a_message_without_a_delay_is_due_at_once_and_unchanged() -> None:
    received = _received({"tenant": "a"}, "/queues/a")

    record = _put(Planner(_route(), Limits()).plan(received, NOW)).record

    assert (record.kind, record.schedule.due, record.message) == ("pass_through", NOW, received.message)


def test_a_cancellation_withdraws_its_id() -> None:
    assert Planner(_route(), Limits()).plan(_received({"x-delay-cancel": "order-1"}), NOW) == Withdraw("order-1")


def test_a_cancellation_is_refused_where_nobody_can_find_the_message_but_of_a_probe_nothing_is_made() -> None:
    planner = Planner(_route(), Limits(), cancels=False)

    assert _refused(planner.plan(_received({"x-delay-cancel": "order-1"}), NOW)).reason == "unsupported_in_level_queues"
    assert planner.plan(_received({"x-delay-cancel": "delaybridge.doctor.1"}), NOW) == Withdraw("delaybridge.doctor.1")


def test_what_cannot_be_read_is_refused_with_its_headers_as_they_came() -> None:
    received = _received({"x-delay": "soon"}, "/queues/a")

    change = _refused(Planner(_route(), Limits()).plan(received, NOW))

    assert change.reason == "bad_duration"
    assert change.record.message == received.message
    assert change.forward is None


@pytest.mark.parametrize(
    ("headers", "id_"),
    [
        ({"x-delay": "soon", "x-delay-id": "order-1"}, "order-1"),
        ({"x-delay": 5, "x_delay_id": 7, "x-delay-to": "secrets"}, "7"),
        ({"x-delay": 5, "x-delay-id": ""}, ""),
        ({"x-delay": "soon", "x-delay-id": "of-a-delivery", "x-delay-occurrence": 1}, ""),
        ({"x-delay": "soon"}, ""),
    ],
)
def test_a_refused_message_bears_its_producers_id_where_that_can_be_read(headers: dict[str, Value], id_: str) -> None:
    assert _refused(Planner(_route(), Limits()).plan(_received(headers, "/queues/a"), NOW)).record.id == id_


def test_a_refused_message_whose_headers_are_damaged_has_no_id() -> None:
    change = _refused(Planner(_route(), Limits()).plan(Received(Message(b"", b"\x07x"), "/queues/a", b"token"), NOW))

    assert (change.reason, change.record.id) == ("header_damaged", "")


def test_a_dead_letter_address_gets_the_message_with_its_reason() -> None:
    change = _refused(Planner(_route(dead_letter="dead"), Limits()).plan(_received({"x-delay": "soon", "tenant": "a"}, "/queues/a"), NOW))

    assert change.forward is not None
    assert change.forward.address == "dead"
    headers = plain(change.forward.message.headers)
    assert (headers["tenant"], headers["x-delay"], headers["x-delay-reason"]) == ("a", "soon", "bad_duration")


@pytest.mark.parametrize("spelled", ["x-delay-{}", "x_delay_{}"])
def test_a_dead_letter_bears_its_own_id_and_occurrence_once_whatever_delivery_it_was_before(spelled: str) -> None:
    """A consumer sent a delivered message again, with a delay that cannot be read; its reader may take the first of two headers, or the last."""
    before: dict[str, Value] = {
        spelled.format("id"): "before",
        spelled.format("occurrence"): 3,
        spelled.format("due"): NOW - 1,
        "tenant": "a",
    }
    planner = Planner(_route(dead_letter="dead"), Limits())
    forward = _refused(planner.plan(_received(before | {"x-delay": "soon"}, "/queues/a"), NOW)).forward
    assert forward is not None
    arrived = headers.delivered(forward.message.headers, "of the bridge", 1, NOW)

    assert [field.name for field in tables.fields(arrived)] == [
        b"tenant", b"x-delay", b"x-delay-reason", b"x-delay-detail", b"x-delay-id", b"x-delay-occurrence", b"x-delay-due",
    ]  # fmt: skip


def test_a_dead_letter_bears_its_producers_id_once_or_the_one_that_cannot_be_read_as_well() -> None:
    def ids(chosen: str) -> list[Value]:
        refused = _refused(
            Planner(_route(dead_letter="dead"), Limits()).plan(_received({"x-delay-id": chosen, "x-delay": "soon"}, "/queues/a"), NOW)
        )
        assert refused.forward is not None
        arrived = headers.delivered(refused.forward.message.headers, refused.forward.id or "of the bridge", 1, NOW)
        return [tables.value_of(field) for field in tables.fields(arrived) if field.name == b"x-delay-id"]

    assert ids("order-17") == ["order-17"]
    assert ids("a\tb") == ["a\tb", "of the bridge"]


def test_a_dead_letter_that_comes_back_and_is_refused_again_does_not_go_round() -> None:
    planner = Planner(_route(dead_letter="dead"), Limits())
    first = _refused(planner.plan(_received({"x-delay": "soon"}, "/queues/a"), NOW)).forward
    assert first is not None

    again = _refused(planner.plan(Received(first.message, "dead", b"token"), NOW))

    assert (again.forward, again.reason) == (None, "bad_duration")


def test_a_message_that_only_speaks_of_a_dead_letters_reason_is_none_that_comes_back() -> None:
    planner = Planner(_route(dead_letter="dead"), Limits())

    change = _refused(planner.plan(_received({"x-delay": "soon", "note": "see x-delay-reason"}, "/queues/a"), NOW))

    assert change.forward is not None


def test_a_dead_letter_has_one_reason_however_often_it_was_one() -> None:
    once = carrier(_put(Planner(_route(), Limits()).plan(_received({}, "/queues/a"), NOW)).record, "dead", NOW, "expired", "late")
    twice = carrier(once, "dead", NOW, "delivery_failed", "no such queue")

    assert len(tables.named(twice.message.headers, {headers.REASON})) == 1
    assert plain(twice.message.headers)["x-delay-reason"] == "delivery_failed"


def test_what_the_adapter_could_not_carry_is_refused_for_the_adapters_reason() -> None:
    defect = Rejected(Reason.HEADER_DAMAGED, "cut off")

    change = _refused(Planner(_route(dead_letter="dead"), Limits()).plan(_received({}, "/queues/a", defect=defect), NOW))

    assert change.reason == "header_damaged"


@pytest.mark.parametrize(("said", "mode"), [(None, 2), (1, 1), (2, 2)])
def test_a_dead_letter_whose_properties_could_not_be_read_outlasts_a_restart_of_its_broker(said: int | None, mode: int) -> None:
    received = Received(Message(b"body", b"", Properties(delivery_mode=said)), "", b"t", defect=Rejected(Reason.HEADER_DAMAGED, "a flag"))
    change = _refused(Planner(_route(dead_letter="dead"), Limits()).plan(received, NOW))
    assert change.forward is not None
    assert change.forward.message.properties.delivery_mode == mode


def test_a_dead_letter_whose_headers_are_damaged_travels_without_them_and_stays_whole_itself() -> None:
    """No broker takes a table that cannot be read."""
    damaged = Message(b"body", b"\x07x")

    change = _refused(Planner(_route(dead_letter="dead"), Limits()).plan(Received(damaged, "/queues/a", b"token"), NOW))

    assert change.forward is not None
    assert plain(change.forward.message.headers).keys() == {"x-delay-reason", "x-delay-detail"}
    assert change.record.message == damaged


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({"x-delay": 5000}, "once"),
        ({"x-delay-period": 5000, "x-delay-repeat": 3}, "period"),
        ({"x-delay-cron": "0 8 * * *"}, "cron"),
    ],
)
def test_the_ledger_is_told_what_kind_of_schedule_a_message_has(headers: dict[str, Value], kind: str) -> None:
    assert _put(Planner(_route(), Limits()).plan(_received(headers, "/queues/a"), NOW)).record.kind == kind


def _handed_back(broker: str, table: bytes) -> bytes:
    """A delivered message's headers as the broker gives them to a consumer."""
    if broker == "rabbitmq":
        return table
    texts = [(field.name, text_of(field) or b"") for field in tables.fields(table)]
    return tables.table(texts if broker == "kafka" else [(name, text.decode()) for name, text in texts])


@pytest.mark.parametrize("broker", ["rabbitmq", "kafka", "activemq"])
@pytest.mark.parametrize(("passes", "outcome"), [(1, Put), (MAX_HOPS, Put), (MAX_HOPS + 1, Refuse)])
def test_a_message_that_keeps_coming_back_undelayed_is_a_loop(broker: str, passes: int, outcome: type) -> None:
    """A destination that leads into the bridge again would otherwise turn one message into an endless stream."""
    planner = Planner(_route(), Limits())
    received = _received({"x-delay-occurrence": 1, "x-delay-due": NOW, "x-delay-id": "a"}, "/exchanges/e/k")

    for _ in range(passes):
        change = planner.plan(received, NOW)
        if isinstance(change, Put):
            table = headers.delivered(change.record.message.headers, "a", 1, NOW)
            received = Received(Message(b"body", _handed_back(broker, table)), "/exchanges/e/k", b"token")

    assert type(change) is outcome


def test_a_message_that_comes_back_keeps_its_own_headers_and_has_one_counter() -> None:
    received = _received({"tenant": "a", "x-delay-hops": 2, "x-delay-occurrence": 1}, "/exchanges/e/k")

    change = _put(Planner(_route(), Limits()).plan(received, NOW))

    assert list(tables.fields(change.record.message.headers)) == list(tables.fields(tables.table([("tenant", "a"), ("x-delay-hops", 3)])))


@pytest.mark.parametrize("forged", [2**63 - 1, "9" * 19, b"9" * 19, b"\x7f" + b"\xff" * 7])
def test_a_hop_counter_that_a_producer_made_too_high_is_a_loop(forged: Value) -> None:
    received = _received({"x-delay-occurrence": 1, "x-delay-hops": forged}, "/exchanges/e/k")

    assert _refused(Planner(_route(), Limits()).plan(received, NOW)).reason == "loop"


@pytest.mark.parametrize("forged", [-(2**63), "-1", "many", b"\xff", b"\xff" * 8, None, True, 1.5])
def test_a_hop_counter_that_is_no_count_counts_as_none(forged: Value) -> None:
    received = _received({"x-delay-occurrence": 1, "x-delay-hops": forged}, "/exchanges/e/k")

    assert plain(_put(Planner(_route(), Limits()).plan(received, NOW)).record.message.headers) == {"x-delay-hops": 1}


def test_what_rabbitmq_dead_letters_again_and_again_is_tried_again_on_purpose_and_no_loop() -> None:
    """A queue with a dead-letter exchange that leads to a gated exchange: each nack brings the message back, with another entry in `x-death`."""
    planner, table = Planner(_route(), Limits()), message(b"", {"x-delay-occurrence": 1}).headers
    for retry in range(3 * MAX_HOPS):
        died = tables.without(table, tables.named(table, {b"x-death"})) + tables.entry("x-death", b"%d" % retry)
        table = _put(planner.plan(Received(Message(b"body", died), "/exchanges/e/k", b"token"), NOW)).record.message.headers
        table = headers.delivered(table, "a", 1, NOW)


def test_what_was_dead_lettered_once_and_goes_round_since_is_a_loop() -> None:
    planner, table = Planner(_route(), Limits()), message(b"", {"x-delay-occurrence": 1, "x-death": "once"}).headers
    for _ in range(MAX_HOPS):
        table = _put(planner.plan(Received(Message(b"body", table), "/exchanges/e/k", b"token"), NOW)).record.message.headers
        table = headers.delivered(table, "a", 1, NOW)
    assert _refused(planner.plan(Received(Message(b"body", table), "/exchanges/e/k", b"token"), NOW)).reason == "loop"


def test_a_dead_letter_does_not_expire_where_it_goes() -> None:
    received = Received(message(b"body", {"x-delay": "soon"}, Properties(expiration=b"500")), "/queues/a", b"token")
    forward = _refused(Planner(_route(dead_letter="/queues/dead"), Limits()).plan(received, NOW)).forward
    assert forward is not None
    assert (forward.message.properties.expiration, plain(forward.message.headers)["x-delay-expiration"]) == (None, "500")


def test_a_dead_letter_carries_no_user_id_that_only_that_user_may_publish() -> None:
    received = Received(message(b"body", {"x-delay": "soon"}, Properties(user_id=b"alice")), "/queues/a", b"token")
    forward = _refused(Planner(_route(dead_letter="/queues/dead"), Limits()).plan(received, NOW)).forward
    assert forward is not None
    assert (forward.message.properties.user_id, plain(forward.message.headers)["x-delay-user-id"]) == (None, "alice")


@pytest.mark.parametrize("stamp", [2**60, NOW + 1, NOW // 1000, 0, -5])
def test_a_stamp_that_no_broker_can_have_given_is_not_believed(stamp: int) -> None:
    """Where the broker stamps nothing, the header is a producer's: it must neither stop the bridge nor make a message early."""
    change = _put(Planner(_route(), Limits()).plan(_received({"x-delay": 5000}, "/queues/a", sent=stamp), NOW))

    assert change.record.schedule.due == NOW + 5000


def test_a_partition_is_kept_for_the_topic_it_was_chosen_for_and_for_no_other() -> None:
    sent = Received(Message(b"", tables.table([("x-delay", 5)]), Properties(partition=3)), "orders", b"token")
    assert _put(Planner(_route(), Limits()).plan(sent, NOW)).record.message.properties.partition == 3
    assert _put(Planner(_route(address="bills"), Limits()).plan(sent, NOW)).record.message.properties.partition is None
    assert _put(Planner(_route(address="orders", lane="another"), Limits()).plan(sent, NOW)).record.message.properties.partition is None


@pytest.mark.parametrize(
    ("route", "headers", "count"),
    [
        ({}, {}, True),
        ({"allow_to": ("*",)}, {"x-delay-to": "/exchanges/orders.real/public"}, None),
        ({"address": "/exchanges/bills.real/new"}, {}, None),
        ({"address": GATED, "lane": "another"}, {}, None),
    ],
)
def test_copies_are_sent_only_from_the_exchange_at_which_the_producer_asked_for_them(
    route: dict[str, object],
    headers: dict[str, Value],
    count: bool | None,
) -> None:
    sent = Received(message(b"", headers | {"x-delay": 5}, Properties(copies=True)), GATED, b"token")
    assert _put(Planner(_route(**route), Limits()).plan(sent, NOW)).record.message.properties.copies is count


def test_no_copies_of_a_dead_letter_are_sent() -> None:
    sent = Received(message(b"", {"x-delay": "soon"}, Properties(copies=True)), GATED, b"token")
    refused = _refused(Planner(_route(dead_letter="/exchanges/orders.real/dead"), Limits()).plan(sent, NOW))
    assert refused.record.message.properties.copies is True, "on the shelf it stays as it came"
    assert refused.forward is not None
    assert refused.forward.message.properties.copies is None


def test_a_dead_letter_goes_to_the_partition_that_its_key_says() -> None:
    """The partition that it had is another topic's."""
    came = Message(b"body", properties=Properties(partition=1), key=b"key-7")
    kept = Record(message=came, schedule=Schedule(due=NOW), lane="kafka", address="orders", route="r")

    forward = carrier(kept, "orders.dead", NOW, "bad_duration", "")

    assert (forward.message.key, forward.message.properties.partition) == (b"key-7", None)
