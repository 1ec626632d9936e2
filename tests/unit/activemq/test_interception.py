"""What is intercepted on ActiveMQ, and the XML that does it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from delaybridge.adapters.activemq import ActiveMQ, Endpoint, adapter
from delaybridge.adapters.activemq.address import pattern
from delaybridge.adapters.activemq.interception import NAMED, ActiveInterception, overlap, selector
from delaybridge.adapters.activemq.probe import Prober, Way, sibling
from delaybridge.adapters.base import AdapterError, NotConnected
from delaybridge.adapters.preparing import Intercepting
from delaybridge.core.headers import DELAY_NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

NOBODY = ActiveMQ(url=SecretStr("stomp://127.0.0.1:1"), connection_timeout=1)


def composite(*gates: str, queue: str = "DELAYBRIDGE.IN", options: ActiveMQ = NOBODY) -> ActiveInterception:
    return ActiveInterception(options, [Endpoint(queue=queue, gate=gates)])


def virtual(made: ActiveInterception) -> Sequence[ET.Element]:
    return list(ET.fromstring(made.xml())[0][0])


def test_the_adapter_can_intercept() -> None:
    assert isinstance(adapter, Intercepting)
    assert isinstance(adapter.interception(NOBODY, [Endpoint(queue="in")]), ActiveInterception)


def test_each_destination_gets_an_interceptor_of_its_kind_that_sends_on_what_is_not_delayed() -> None:
    queue, topic, *_ = virtual(composite("/queue/orders.>", "/topic/events.*"))
    assert [(queue.tag, queue.get("name")), (topic.tag, topic.get("name"))] == [
        ("compositeQueue", "orders.>,delaybridge.doctor.gate.orders.>"),
        ("compositeTopic", "events.*,delaybridge.doctor.gate.events.*"),
    ]
    for element in (queue, topic):
        assert element.get("sendWhenNotMatched") == "true"
        (filtered,) = element.iter("filteredDestination")
        assert (filtered.get("queue"), filtered.get("selector")) == ("DELAYBRIDGE.IN", selector())


def test_a_plain_name_is_a_queue() -> None:
    assert virtual(composite("bills"))[0].get("name") == "bills,delaybridge.doctor.gate.bills"


def test_the_interceptor_that_activemq_has_by_default_is_among_those_that_replace_it() -> None:
    assert virtual(composite("bills"))[-1].attrib == {"name": "VirtualTopic.>", "prefix": "Consumer.*.", "selectorAware": "false"}


def test_management_messages_are_led_into_a_queue_unless_they_are_switched_off() -> None:
    assert "ActiveMQ.Scheduler.Management" in composite("bills").xml()
    off = NOBODY.model_copy(update={"management": False})
    assert "ActiveMQ.Scheduler.Management" not in composite("bills", options=off).xml()


def test_a_name_with_characters_of_xml_stays_that_name() -> None:
    assert virtual(composite('a&<"b'))[0].get("name") == 'a&<"b,delaybridge.doctor.gate.a&<"b'


def test_the_selector_names_every_delay_header_without_a_hyphen() -> None:
    assert set(NAMED) == {name.decode() for name in DELAY_NAMES if b"-" not in name}
    assert all(f"{name} IS NOT NULL" in selector() for name in NAMED)
    assert {"AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_CRON", "x_delay", "x_delay_cancel"} <= set(NAMED)


@pytest.mark.parametrize(
    ("gate", "because"),
    [
        ("/queue/>", "ingress queue"),
        ("/queue/DELAYBRIDGE.*", "ingress queue"),
        ("DELAYBRIDGE.IN", "ingress queue"),
        ("/topic/VirtualTopic.orders", "/queue/Consumer"),
        ("/topic/>", "cannot be intercepted"),
        ("/topic/ActiveMQ.Scheduler.Management", "ActiveMQ's own"),
        ("/queue/delaybridge.doctor.x", "`doctor`'s"),
    ],
)
def test_what_cannot_be_intercepted_is_refused(gate: str, because: str) -> None:
    with pytest.raises(AdapterError, match=because):
        composite(gate)


def test_gates_that_overlap_are_refused_on_one_route_and_on_two() -> None:
    with pytest.raises(AdapterError, match="overlap"):
        composite("orders.>", "orders.new")
    with pytest.raises(AdapterError, match="overlap"):
        ActiveInterception(NOBODY, [Endpoint(queue="in", gate=("orders.*",)), Endpoint(queue="out", gate=("orders.new",))])


@pytest.mark.parametrize(
    "gates",
    [
        ["/queue/Consumer.*.VirtualTopic.>"],
        ["/queue/Consumer.>"],
        ["/queue/Consumer.A.VirtualTopic.>", "/queue/Consumer.B.VirtualTopic.orders"],
    ],
)
def test_gates_that_lead_copies_of_one_message_into_one_queue_are_refused_because_activemq_keeps_one(gates: list[str]) -> None:
    with pytest.raises(AdapterError, match="with an ingress queue of its own"):
        composite(*gates)


def test_consumers_of_one_virtual_topic_are_intercepted_each_with_a_queue_of_its_own_and_those_of_others_share_one() -> None:
    one, other = "/queue/Consumer.A.VirtualTopic.orders", "/queue/Consumer.B.VirtualTopic.orders"
    assert ActiveInterception(NOBODY, [Endpoint(queue="in.a", gate=(one,)), Endpoint(queue="in.b", gate=(other,))]).plan()
    assert composite(one, "/queue/Consumer.B.VirtualTopic.bills", "/queue/orders.>").plan()


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("/queue/a.>", "/queue/a", True),
        ("/queue/a.>", "/queue/a.b.c", True),
        ("/queue/a.>", "/topic/a.b", False),
        ("/queue/a.*", "/queue/a", False),
        ("/queue/a.*", "/queue/a.b", True),
        ("/queue/a.*", "/queue/a.b.c", False),
        ("/queue/*.b", "/queue/a.*", True),
        ("/queue/a.b", "/queue/ab", False),
        ("/queue/>", "/queue/x.y", True),
    ],
)
def test_two_patterns_overlap_where_one_destination_matches_both(one: str, other: str, expected: bool) -> None:
    assert overlap(one, other) is overlap(other, one) is expected


@pytest.mark.parametrize(
    ("gate", "matched", "not_matched"),
    [
        ("orders.>", ["/queue/orders", "/queue/orders.a", "/queue/orders.a.b"], ["/topic/orders.a", "/queue/orders2"]),
        ("/topic/events.*", ["/topic/events.a"], ["/topic/events", "/topic/events.a.b", "/queue/events.a"]),
        ("/queue/>", ["/queue/a", "/queue/a.b"], ["/topic/a"]),
    ],
)
def test_a_gate_matches_what_activemq_matches(gate: str, matched: list[str], not_matched: list[str]) -> None:
    assert all(pattern(gate).fullmatch(each) for each in matched)
    assert not any(pattern(gate).fullmatch(each) for each in not_matched)


def test_a_wildcard_for_the_rest_stands_at_the_end() -> None:
    with pytest.raises(ValueError, match="at the end"):
        pattern("a.>.b")


def test_doctor_has_a_destination_of_its_own_for_each_gate() -> None:
    for gate in ("/queue/orders.>", "/topic/events.*.x", "/queue/bills"):
        own = f"{gate[:7]}delaybridge.doctor.gate.{gate[7:]}"
        assert pattern(own).fullmatch(sibling(gate))
        assert not pattern(gate).fullmatch(sibling(gate))


def test_without_the_broker_the_xml_is_printed_all_the_same_and_nothing_counts_as_done() -> None:
    made = composite("bills")
    queue, scheduler, interceptors = made.plan()
    assert (queue.done, scheduler.done, interceptors.done) == (True, False, False)
    assert interceptors.command == made.xml()
    assert [step.done for step in made.apply()] == [True, False, False]


def test_without_the_broker_nobody_knows_that_the_interceptors_are_gone() -> None:
    assert [step.done for step in composite("bills").undo()] == [False]


@pytest.mark.parametrize("error", [NotConnected("ActiveMQ: User name or password is invalid"), AdapterError("ActiveMQ refused")])
def test_what_could_not_be_looked_at_says_so_and_why(error: AdapterError, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> bool:
        raise error

    monkeypatch.setattr(Prober, "scheduler_is_off", refused)
    monkeypatch.setattr(Prober, "way", refused)
    made = composite("bills")
    left = [step for step in (*made.plan(), *made.undo()) if not step.done]
    assert len(left) == 3
    assert all(step.what.endswith(f"could not look: {error}") for step in left)


def test_each_gate_is_asked_once_whether_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def gone(_: Prober, gate: str, __: str) -> Way:
        asked.append(gate)
        return Way.STRAIGHT_ON

    monkeypatch.setattr(Prober, "way", gone)
    assert [step.done for step in composite("bills", "orders").undo()] == [True]
    assert asked == ["/queue/bills", "/queue/orders"]


def test_a_route_without_a_gate_needs_nothing() -> None:
    assert [step.done for step in composite().plan()] == [True]
    assert [step.done for step in composite().undo()] == [True]
