"""What ActiveMQ keeps for a subscriber of a topic that is slower than what comes, with the policy of its own activemq.xml, and what keeps all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from contract.activemq_stage import Stage, named, native, out
from delaybridge.adapters.activemq import adapter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.activemq import Native

KEPT = 1000
"""As in the activemq.xml that ActiveMQ brings."""

POLICY = f"""
    <destinationPolicy><policyMap><policyEntries>
      <policyEntry topic="&gt;"><pendingMessageLimitStrategy><constantPendingMessageLimitStrategy limit="{KEPT}"/></pendingMessageLimitStrategy></policyEntry>
      <policyEntry topic="unlimited.&gt;"/>
    </policyEntries></policyMap></destinationPolicy>"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Native]:
    yield from native(xml=POLICY)


@pytest.mark.parametrize(("kind", "seen"), [("limited", KEPT + 100), ("unlimited", 3000)])
def test_an_observer_of_a_topic_that_takes_less_than_comes_has_it_all_only_where_no_policy_limits_what_waits(
    broker: Native, kind: str, seen: int
) -> None:
    stage = Stage(broker)
    address = f"/topic/{named(kind)}"
    tap = adapter.tap(stage.options(prefetch=100), address)
    tap.connect()
    stage.sink().publish([out(str(number), address) for number in range(3000)])
    stage.words(3000)
    found = 0
    while batch := tap.receive(1000, 1):
        found += len(batch.messages)
        batch.ack()
    tap.close()
    stage.close()
    assert found == seen


def test_requests_of_management_that_the_bridge_has_no_time_for_are_dropped_in_a_topic_and_wait_in_the_queue(broker: Native) -> None:
    stage = Stage(broker)
    found = []
    for management, address in zip(adapter.management(stage.options()), ("/topic/", "/queue/"), strict=True):
        management.connect()
        stage.outcomes.clear()
        stage.sink().publish(
            [
                out(str(number), f"{address}ActiveMQ.Scheduler.Management", AMQ_SCHEDULER_ACTION="REMOVE", scheduledJobId=str(number))
                for number in range(1500)
            ]
        )
        stage.words(1500)
        count = 0
        while asked := management.receive(1):
            count += 1
            asked.ack()
        management.close()
        found.append(count)
    stage.close()
    assert found == [KEPT + 10, 1500]
