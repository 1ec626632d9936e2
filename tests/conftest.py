"""Brokers for all tests: found or started once per session; a missing one skips, or fails where DELAYBRIDGE_TEST_REQUIRE names it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from brokers import rabbitmq as rabbitmq_broker

if TYPE_CHECKING:
    from collections.abc import Iterator


def required(name: str) -> bool:
    return name in os.environ.get("DELAYBRIDGE_TEST_REQUIRE", "").replace(" ", "").split(",")


@pytest.fixture(scope="session")
def rabbitmq(pytestconfig: pytest.Config) -> Iterator[rabbitmq_broker.Broker]:
    """A running RabbitMQ, shared by the session: use queue and exchange names of your own."""
    try:
        with rabbitmq_broker.start() as broker:
            reporter = pytestconfig.pluginmanager.get_plugin("terminalreporter")
            if reporter is not None:
                reporter.write_line(f"RabbitMQ: {broker.provider}")
            yield broker
    except rabbitmq_broker.Unavailable as reason:
        if required("rabbitmq"):
            pytest.fail(str(reason))
        pytest.skip(str(reason))
