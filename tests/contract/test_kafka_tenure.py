"""Whether a bridge still has what it read from Kafka is what its group's coordinator says, when it is asked: see base.Holding."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from brokers.common import wait_until

from contract.test_kafka_joined import Door, received
from delaybridge.adapters.base import NotConnected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.kafka import Broker

    from delaybridge.adapters.kafka.level_queues.joined import JoinedSource


@pytest.fixture
def door(kafka: Broker) -> Iterator[Door]:
    with contextlib.closing(Door(kafka.url)) as made:
        yield made


def deaf(bridge: JoinedSource) -> None:
    """From now on it stands still, as its group sees it; and it does not hear from the group."""
    assert bridge.poller is not None
    bridge.poller._stopping.set()
    bridge.poller._thread.join()
    bridge.poller.consumer._coordinator._close_heartbeat()


def test_a_tenure_lasts_from_batch_to_batch_and_the_group_affirms_it(door: Door) -> None:
    door.fill(10)
    bridge = door.bridge()
    door.pass_on(bridge, 2)
    first = bridge.tenure()
    assert bridge.affirm(first)
    received(bridge, 2)
    assert bridge.tenure() == first
    assert bridge.affirm(first)


def test_another_one_begins_when_partitions_go_and_this_bridge_keeps_the_rest(door: Door) -> None:
    door.fill(100, partition=0)
    door.fill(100, partition=1)
    bridge = door.bridge()
    door.pass_on(bridge, 1)
    before = bridge.tenure()

    other = door.bridge("other")

    received(other, 1)
    wait_until(lambda: (door.pass_on(bridge, 1), bridge.tenure())[1] != before, "it to hear of the other one")
    wait_until(lambda: bridge.affirm(bridge.tenure()), "the group to come to rest")
    received(bridge, 1)
    assert not bridge.affirm(before)


def test_a_bridge_that_stood_still_for_longer_than_its_session_is_told_that_it_has_nothing(door: Door) -> None:
    door.fill(2)
    bridge = door.bridge(session_timeout=1.5)
    received(bridge, 2)
    tenure = bridge.tenure()
    deaf(bridge)
    other = door.bridge("other")
    received(other, 2)
    assert bridge.tenure() == tenure, "it knows of nothing"
    with pytest.raises(NotConnected, match="has forgotten this bridge"):
        bridge.affirm(tenure)
    assert other.affirm(other.tenure())


def test_nor_does_one_have_anything_whose_group_went_on_without_it(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its session lasts, but it did not join the next generation in time, and does not hear of it."""
    door.fill(2)
    bridge = door.bridge(connection_timeout=5)
    received(bridge, 2)
    tenure = bridge.tenure()
    monkeypatch.setattr(bridge, "tenure", lambda: tenure)
    monkeypatch.setattr("delaybridge.adapters.kafka.sources.source.present", lambda *_: False)
    with pytest.raises(NotConnected, match="has gone on without this bridge"):
        bridge.affirm(tenure)


def test_what_went_to_another_bridge_and_what_was_closed_has_no_tenure(door: Door) -> None:
    door.fill(2)
    bridge = door.bridge()
    with pytest.raises(NotConnected, match="closed"):
        bridge.tenure()
    received(bridge, 2)
    tenure = bridge.tenure()
    assert bridge.poller is not None
    bridge.poller.drop(set(bridge.poller.consumer.assignment()))
    with pytest.raises(NotConnected, match="another bridge"):
        bridge.tenure()
    bridge.close()
    with pytest.raises(NotConnected, match="closed"):
        bridge.affirm(tenure)
