"""What ActiveMQ does to slow consumers by its policies: what is lost, or stands still, without a word, and what helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from contract.activemq_stage import Stage, named, native, out
from contract.taking import taken
from delaybridge.adapters.activemq import adapter
from delaybridge.adapters.base import NotConnected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.activemq import Native

KEPT = 1000
"""As in the activemq.xml that ActiveMQ brings."""

SLOW = """
      <policyEntry queue="{}.&gt;"><slowConsumerStrategy>
        <abortSlowAckConsumerStrategy maxTimeSinceLastAck="1000" maxSlowDuration="500" checkPeriod="250" abortConnection="{}"/>
      </slowConsumerStrategy></policyEntry>"""

POLICY = f"""
    <destinationPolicy><policyMap><policyEntries>
      <policyEntry topic="&gt;"><pendingMessageLimitStrategy><constantPendingMessageLimitStrategy limit="{KEPT}"/></pendingMessageLimitStrategy></policyEntry>
      <policyEntry topic="unlimited.&gt;"/>
      {SLOW.format("silently", "false")}
      {SLOW.format("openly", "true")}
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


@pytest.mark.parametrize("how", ["silently", "openly"])
def test_a_bridge_that_did_not_acknowledge_for_too_long_is_told_that_it_gets_nothing_more_only_where_that_ends_its_connection(
    broker: Native, how: str
) -> None:
    stage = Stage(broker)
    stage.queue = named(how)
    consumers = stage.user()
    consumers.subscribe(f"/topic/ActiveMQ.Advisory.Consumer.Queue.{stage.queue}")
    source = stage.source()
    source.connect()
    sink = stage.sink()
    sink.publish([out("first", stage.queue)])
    batch = source.receive(10, 10)
    assert batch is not None
    while b"consumerCount:0" not in consumers.frame():
        pass
    batch.ack()
    sink.publish([out("second", stage.queue)])
    stage.words(2)
    if how == "silently":
        assert source.receive(10, 2) is None
    else:
        with pytest.raises(NotConnected):
            source.receive(10, 20)
    source.connect()
    assert len(taken(source, lambda found: len(found) >= 2)) == 2
    stage.close()
