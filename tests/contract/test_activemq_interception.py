"""What the interceptors in a real ActiveMQ's XML do, and what `plan` and `doctor` find of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from brokers import activemq as brokers
from brokers.activemq import Client
from pydantic import SecretStr

from contract.activemq_stage import Stage, native, out
from delaybridge.adapters.activemq import ActiveMQ, Endpoint, adapter
from delaybridge.adapters.activemq.interception import ActiveInterception
from delaybridge.adapters.base import Outgoing
from delaybridge.core.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

GATE = "/queue/orders.>"
ROUTE = Endpoint(queue="IN", gate=(GATE,))
NOBODY = ActiveMQ(url=SecretStr("stomp://127.0.0.1:1"))


CONSUMERS = [Endpoint(queue=f"IN.{name}", gate=(f"/queue/Consumer.{name}.VirtualTopic.>",)) for name in "AB"]


@pytest.fixture(scope="module")
def broker() -> Iterator[brokers.Native]:
    """Its XML leads what is delayed into the queue IN, and for each of two consumers of virtual topics into a queue of its own."""
    yield from native(xml=ActiveInterception(NOBODY, [ROUTE, *CONSUMERS]).xml())


@pytest.fixture
def stage(broker: brokers.Native) -> Iterator[Stage]:
    one = Stage(broker)
    yield one
    one.close()


GRANTED = {
    "queue IN": ("bridge", "bridge", "bridge"),
    "queue orders.&gt;": ("app", "app,bridge", "app,bridge"),
    "queue ActiveMQ.Scheduler.Management": ("bridge", "app", "bridge"),
    "topic ActiveMQ.Scheduler.Management": ("bridge", "app", "bridge"),
    "queue delaybridge.doctor.&gt;": ("bridge", "bridge", "bridge"),
    "topic delaybridge.doctor.&gt;": ("bridge", "bridge", "bridge"),
    "queue &gt;": ("root", "root", "root"),
    "topic &gt;": ("root", "root", "root"),
}
"""Read, write and admin as docs/interception.md has it, and nothing else."""


@pytest.fixture
def guarded() -> Iterator[brokers.Native]:
    users = "".join(f'<authenticationUser username="{name}" password="{name}" groups="{name}"/>' for name in ("bridge", "app"))
    entries = "".join(
        '<authorizationEntry {}="{}" read="{}" write="{}" admin="{}"/>'.format(*what.split(), *who) for what, who in GRANTED.items()
    )
    plugins = (
        f'<simpleAuthenticationPlugin anonymousAccessAllowed="true" anonymousGroup="nobody"><users>{users}</users></simpleAuthenticationPlugin>'
        f"<authorizationPlugin><map><authorizationMap><authorizationEntries>{entries}</authorizationEntries></authorizationMap></map></authorizationPlugin>"
    )
    yield from native(xml=f"{ActiveInterception(NOBODY, [ROUTE]).xml()}<plugins>{plugins}</plugins>")


def test_the_permissions_that_the_documentation_lists_are_all_that_the_bridge_needs(guarded: brokers.Native) -> None:
    stage = Stage(guarded)
    options = stage.options(username="bridge", password="bridge")
    interception = ActiveInterception(options, [ROUTE])
    assert [each for each in interception.check() if not each.ok] == []
    for management in adapter.management(options):
        management.connect()
        management.close()
    app = Client(guarded.url, "login:app", "passcode:app")
    app.subscribe("/queue/orders.new")
    source = adapter.source(options, ROUTE)
    source.connect()
    assert app.ask(b"SEND\ndestination:/queue/orders.new\nAMQ_SCHEDULED_DELAY:5\nreceipt:1\n\nlater\0").startswith(b"RECEIPT")
    batch = source.receive(1, 15)
    assert batch is not None
    stage.sink(username="bridge", password="bridge").publish([Outgoing(b"1", batch.messages[0].address, Message(b"due"))])
    assert app.frame().endswith(b"due")
    batch.ack()
    source.close()
    app.close()
    stage.close()


def found(stage: Stage, route: Endpoint) -> list[tuple[bool, str]]:
    """What `doctor` says of its gate."""
    gate: Any = ActiveInterception(stage.options(), [route]).check()[1]
    return [(gate.ok, gate.what)]


WELL = [(True, f"what is sent to `{GATE}` goes to the bridge when it is delayed, and straight on when it is not")]


@pytest.mark.parametrize("running", [False, True])
def test_an_xml_that_leads_to_another_queue_than_the_route_reads_is_found(stage: Stage, *, running: bool) -> None:
    other = Endpoint(queue="BAD.IN", gate=(GATE,))
    for route in (ROUTE, other):
        if running:
            stage.queue = route.queue
            stage.source().connect()
    assert found(stage, ROUTE) == WELL
    ((ok, what),) = found(stage, other)
    assert not ok
    assert "goes elsewhere than to `BAD.IN`" in what
    assert [step.done for step in ActiveInterception(stage.options(), [other]).plan()] == [True, True, False]
    assert [step.done for step in ActiveInterception(stage.options(), [ROUTE]).plan()] == [True, True, True]


def test_a_queue_in_which_more_waits_than_activemq_looks_through_is_no_other_queue(stage: Stage) -> None:
    sink = stage.sink()
    sink.publish([out(str(number), "IN") for number in range(1000)])
    assert set(stage.words(1000).values()) == {"confirmed"}
    assert found(stage, ROUTE) == WELL


def origins(stage: Stage, *routes: Endpoint, silence: float = 1) -> list[str]:
    """Where what lies in the ingress queues of these was sent; there is something in each."""
    found: list[str] = []
    for route in routes:
        source = adapter.source(stage.options(), route)
        source.connect()
        patience = 60.0
        while (batch := source.receive(10, patience)) is not None:
            batch.ack()
            found += [each.address for each in batch.messages]
            patience = silence
        source.close()
    return found


def test_of_a_delayed_message_to_several_destinations_one_ingress_queue_keeps_one_copy(stage: Stage) -> None:
    """ActiveMQ's doing, which docs/interception.md tells: the copies share an id."""
    stage.sink().publish([out("last", "IN")])
    origins(stage, ROUTE, silence=5)  # what others have left
    stage.user().ask(b"SEND\ndestination:/queue/orders.a,/queue/orders.b\npersistent:true\nx_delay:5\nreceipt:1\n\nx\0")
    assert len(origins(stage, ROUTE)) == 1


def test_each_consumer_of_a_virtual_topic_with_an_ingress_queue_of_its_own_has_its_copy(stage: Stage) -> None:
    stage.user().subscribe("/queue/Consumer.A.VirtualTopic.orders")
    stage.user().subscribe("/queue/Consumer.B.VirtualTopic.orders")
    stage.user().ask(b"SEND\ndestination:/topic/VirtualTopic.orders\npersistent:true\nx_delay:5\nreceipt:1\n\nx\0")
    assert origins(stage, *CONSUMERS) == ["/queue/Consumer.A.VirtualTopic.orders", "/queue/Consumer.B.VirtualTopic.orders"]
