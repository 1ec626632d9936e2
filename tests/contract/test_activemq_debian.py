"""Debian's ActiveMQ 5.17.2 where it is installed: the same adapter on an older broker."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
from brokers import activemq as brokers
from brokers.common import wait_until
from brokers.private import running

from contract.taking import until_lost
from delaybridge.adapters.activemq import ActiveMQ, Endpoint, adapter
from delaybridge.adapters.base import Outcome, Outgoing, Rejected
from delaybridge.core.message import Properties, message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delaybridge.core.message import Message


@pytest.fixture
def debian() -> Iterator[brokers.Native]:
    if not brokers.DEBIAN.is_dir():
        pytest.skip("apt install activemq")
    with running(brokers.Native(brokers.DEBIAN)) as broker:
        assert isinstance(broker, brokers.Native)
        yield broker


BODIES = [b"", b"text", "größe".encode(), b"a\0b", bytes(range(256)), secrets.token_bytes(1 << 20), *(str(n).encode() for n in range(500))]


def sent() -> list[Message]:
    return [message(body, {"number": n}, Properties(text=n in {0, 1, 2, 3})) for n, body in enumerate(BODIES)]


def test_messages_pass_and_survive_a_killed_broker(debian: brokers.Native) -> None:
    options = ActiveMQ.model_validate({"url": debian.url})
    outcomes: list[Outcome] = []
    sink, source = adapter.sink(options), adapter.source(options, Endpoint(queue="q"))
    sink.connect(outcomes.extend)
    source.connect()
    sink.publish([Outgoing(str(n).encode(), "q", one) for n, one in enumerate(sent())])
    wait_until(lambda: len(outcomes) == len(BODIES), "the confirms")
    assert {error for _, error in outcomes} == {None}
    debian.kill()
    until_lost(lambda: source.receive(500, 1), timeout=15)
    debian.start()
    source.connect()
    got: list[tuple[bytes | None, bool | None, Rejected | None]] = []
    while len(got) < len(BODIES):
        batch = source.receive(500, 15)
        assert batch is not None
        got += [(one.message.body, one.message.properties.text, one.defect) for one in batch.messages]
        batch.ack()
    assert got == [(one.body, one.properties.text, None) for one in sent()]
    source.close()
    sink.close()
