"""The brokers that are tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from crash.ends_activemq import ActiveEnds
from crash.ends_kafka import KafkaEnds
from crash.ends_rabbitmq import RabbitEnds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crash.traffic import Ends

ENDS: dict[str, type[Ends]] = {"rabbitmq": RabbitEnds, "kafka": KafkaEnds, "activemq": ActiveEnds}


@pytest.fixture
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    """Both ends of the bridge on the broker that the test's parameter names."""
    made = ENDS[request.param](request.getfixturevalue(request.param))
    yield made
    made.close()
