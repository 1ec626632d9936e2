"""RabbitMQ over TLS: a private broker that asks for client certificates."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
from brokers.common import free_port, listens, wait_until
from brokers.private import running
from brokers.rabbitmq import SERVER, Native
from conftest import unavailable
from pydantic import SecretStr

from contract.certificates import certificates, tls
from delaybridge.adapters.base import NotConnected, Outcome, Outgoing
from delaybridge.adapters.rabbitmq import Endpoint, RabbitMQ, adapter
from delaybridge.adapters.tls import Tls
from delaybridge.core.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from delaybridge.adapters.rabbitmq.source import RabbitSource


@pytest.fixture(scope="module")
def tls_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """A private broker with a TLS listener, the folder of its certificates, and its port."""
    if not SERVER.exists():
        unavailable("rabbitmq", "needs the system's rabbitmq-server")
    folder, port = tmp_path_factory.mktemp("tls"), free_port()
    certificates(folder)
    config = (
        f"listeners.ssl.1 = 127.0.0.1:{port}\nssl_options.cacertfile = {folder}/ca.pem\nssl_options.certfile = {folder}/server.pem\n"
        f"ssl_options.keyfile = {folder}/server.key\nssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true\n"
    )
    with running(Native(config)):  # which waits for the other listener only
        wait_until(lambda: listens(f"amqps://localhost:{port}"), "the TLS listener", 60)
        yield folder, port


def over_tls(port: int, settings: Tls, host: str = "localhost") -> RabbitSource:
    options = RabbitMQ(url=SecretStr(f"amqps://guest:guest@{host}:{port}/%2F"), tls=settings, connection_timeout=60)
    return adapter.source(options, Endpoint(queue="tls"))


def test_tls_with_a_client_certificate_carries_messages(tls_broker: tuple[Path, int]) -> None:
    folder, port = tls_broker
    source = over_tls(port, tls(folder))
    source.connect()
    outcomes: list[Outcome] = []
    sink = adapter.sink(RabbitMQ(url=SecretStr(f"amqps://guest:guest@localhost:{port}/%2F"), tls=tls(folder)))
    sink.connect(outcomes.extend)
    body = secrets.token_bytes(3_000_000)
    sink.publish([Outgoing(b"1", "tls", Message(body))])
    batch = source.receive(1, 30)
    assert batch is not None
    assert batch.messages[0].message.body == body
    batch.ack()
    source.close()
    sink.close()


@pytest.mark.parametrize(
    "changes", [{"ca_file": None}, {"cert_file": None, "key_file": None}], ids=["unknown authority", "no client certificate"]
)
def test_a_certificate_that_one_side_does_not_accept_means_not_connected(tls_broker: tuple[Path, int], changes: dict[str, None]) -> None:
    folder, port = tls_broker
    with pytest.raises(NotConnected):
        over_tls(port, tls(folder, **changes)).connect()


def test_a_certificate_for_another_name_is_refused_unless_verification_is_off(tls_broker: tuple[Path, int]) -> None:
    folder, port = tls_broker
    with pytest.raises(NotConnected, match=r"(?i)certificate|mismatch"):
        over_tls(port, tls(folder), host="127.0.0.1").connect()
    source = over_tls(port, tls(folder, verify=False), host="127.0.0.1")
    source.connect()
    source.close()
