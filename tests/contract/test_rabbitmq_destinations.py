"""What `doctor` is told of the places on RabbitMQ where routes lead."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from integration.rabbit import Rabbit

from delaybridge.adapters.preparing import Finding
from delaybridge.adapters.rabbitmq import adapter
from delaybridge.adapters.rabbitmq.options import RabbitMQ

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def rabbit(rabbitmq: Any) -> Iterator[Rabbit]:
    with contextlib.closing(Rabbit(rabbitmq.url)) as made:
        yield made


def found(rabbit: Rabbit, *addresses: str) -> list[Finding]:
    return adapter.standstills(RabbitMQ.model_validate({"url": rabbit.url}), [], addresses, [])


def test_queues_and_exchanges_that_are_there_are_no_finding(rabbit: Rabbit) -> None:
    rabbit.queue("orders")
    exchange = rabbit.exchange("events", "topic")
    assert found(rabbit, rabbit.address("orders"), rabbit.name("orders"), f"/exchanges/{exchange}/any.key", "/queues/%FF") == []
    assert found(rabbit) == []


def test_each_that_is_missing_is_told(rabbit: Rabbit) -> None:
    missing = [f"/exchanges/{rabbit.name('gone')}/key", rabbit.address("typo")]
    told = found(rabbit, *missing, rabbit.address("typo"))
    assert told == [
        Finding(False, f"a route leads to `{address}`, which is not there", "declare it, or correct the route") for address in missing
    ]
