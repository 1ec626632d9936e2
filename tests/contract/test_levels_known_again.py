"""What a bridge has delivered from level queues, and their broker gives again because it has not heard of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from contract.stores import bodies, delivered, give, record, take

if TYPE_CHECKING:
    from contract.levels_on_brokers import OnBroker
    from delaybridge.core.store import Store

ELSEWHERE = "kafka"
"""The lane of another broker: to its own, Kafka moves messages exactly once."""


@pytest.mark.parametrize("open_store", ["level_queues_rabbitmq", "level_queues_kafka", "level_queues_activemq"], indirect=True)
def test_it_is_not_delivered_again_and_what_was_not_is(store: Store) -> None:
    give(store, *(record(body, lane=ELSEWHERE) for body in "abcd"))
    first, *others = take(store, lane=ELSEWHERE)
    assert len(others) == 3
    cast("OnBroker", store).lose_connections()

    delivered(store, [first])

    assert sorted(bodies(take(store, lane=ELSEWHERE))) == sorted(bodies(others))
