"""Whether a bridge still has what it read from ActiveMQ is what ActiveMQ says when it is asked over the same connection: see base.Holding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from contract.activemq_stage import Stage, drained, out
from contract.proxy import Proxy
from contract.taking import batches
from delaybridge.adapters.base import NotConnected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.activemq import Broker


@pytest.fixture
def stage(activemq: Broker) -> Iterator[Stage]:
    one = Stage(activemq)
    yield one
    one.close()


def test_each_batch_is_affirmed_while_its_consumer_has_it(stage: Stage) -> None:
    sink, source = stage.sink(), stage.source()
    sink.publish([out(str(number), stage.queue) for number in range(2)])
    stage.words(2)
    source.connect()
    with pytest.raises(NotConnected, match="closed"):
        source.tenure()
    batches(source, 1, 1)
    first = source.tenure()
    assert source.affirm(first)
    batches(source, 1, 1)
    assert source.affirm(source.tenure())
    assert not source.affirm(first), "the second may have come from another consumer since"


def test_what_another_consumer_has_by_now_is_not_affirmed(stage: Stage) -> None:
    """Our side hears nothing: neither heartbeats, nor that ActiveMQ missed ours and closed the connection."""
    with Proxy(stage.broker.url) as proxy:
        source, other = stage.source(url=proxy.url, heartbeat=1, connection_timeout=2), stage.source()
        stage.sink().publish([out("0", stage.queue, b"0")])
        source.connect()
        batches(source, 1, 1)
        tenure = source.tenure()
        proxy.freeze()
        other.connect()
        assert drained(other, 1) == [0]
        with pytest.raises(NotConnected):
            source.affirm(tenure)
