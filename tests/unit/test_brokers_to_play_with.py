"""The configuration that `make brokers` prints."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from brokers import activemq, people

from delaybridge.bridge.config.file import load

if TYPE_CHECKING:
    from pathlib import Path

BROKERS: dict[str, Any] = {
    "RabbitMQ": SimpleNamespace(url="amqp://guest:guest@127.0.0.1:5672/%2F", management_url="http://127.0.0.1:15672"),
    "Kafka": SimpleNamespace(url="127.0.0.1:9092"),
}


@pytest.mark.parametrize("native", [True, False])
def test_what_make_brokers_prints_can_be_used_and_gates_where_the_broker_was_told_so(tmp_path: Path, native: bool) -> None:
    amq = activemq.Native(tmp_path) if native else SimpleNamespace(url="stomp://127.0.0.1:61613")
    file = tmp_path / "delaybridge.yaml"
    file.write_text(people.configuration(BROKERS | {"ActiveMQ": amq}))

    assert [route.source.endpoint.gate for route in load(file).routes if route.name == "activemq"] == [
        people.DIVERTED.gate if native else ()
    ]
