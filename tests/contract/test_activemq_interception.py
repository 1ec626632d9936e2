"""What the interceptors in a real ActiveMQ's XML do, and what `plan` and `doctor` find of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from brokers import activemq as brokers
from pydantic import SecretStr

from contract.activemq_stage import Stage, native, out
from delaybridge.adapters.activemq import ActiveMQ, Endpoint
from delaybridge.adapters.activemq.interception import ActiveInterception

if TYPE_CHECKING:
    from collections.abc import Iterator

GATE = "/queue/orders.>"
ROUTE = Endpoint(queue="IN", gate=(GATE,))
NOBODY = ActiveMQ(url=SecretStr("stomp://127.0.0.1:1"))


@pytest.fixture(scope="module")
def broker() -> Iterator[brokers.Native]:
    """Its XML leads what is delayed into the queue IN."""
    yield from native(xml=ActiveInterception(NOBODY, [ROUTE]).xml())


@pytest.fixture
def stage(broker: brokers.Native) -> Iterator[Stage]:
    one = Stage(broker)
    yield one
    one.close()


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
