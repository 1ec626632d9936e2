"""Kafka over TLS and with SASL: a private broker that asks for certificates and passwords."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest
from brokers.kafka import Native, create_topic

from contract.certificates import certificates
from contract.kafka_user import User, bodies, out, private, receive
from delaybridge.adapters.base import NotConnected
from delaybridge.adapters.kafka import Kafka, adapter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"), pytest.mark.usefixtures("collected")]
"""kafka-python leaves a socket whose TLS handshake failed to the garbage collector."""

PASSWORD = "wonder=land,1"  # of a private broker
LISTENERS = {"TLS": "SSL", "PLAIN": "SASL_PLAINTEXT", "SCRAM": "SASL_SSL"}


def config(folder: Path) -> dict[str, str]:
    module = "org.apache.kafka.common.security"
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server.both"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.tls.ssl.client.auth": "required",
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": f'{module}.plain.PlainLoginModule required user_alice="{PASSWORD}";',
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.scram.scram-sha-256.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
        "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
    }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Native, Path]]:
    """A private broker with a listener for each way in, and the folder of its certificates."""
    folder = tmp_path_factory.mktemp("kafka-tls")
    certificates(folder, "DNS:localhost,IP:127.0.0.1")
    (folder / "server.both").write_text((folder / "server.key").read_text() + (folder / "server.pem").read_text())
    users = [f"SCRAM-SHA-{size}=[name=alice,password=wonderland{size}]" for size in (256, 512)]
    with private(config(folder), LISTENERS, users) as broker:
        yield broker, folder


def way(name: str, folder: Path) -> dict[str, Any]:
    trusted = {"ca_file": folder / "ca.pem"}
    ways: dict[str, dict[str, Any]] = {
        "TLS": {"tls": trusted | {"cert_file": folder / "client.pem", "key_file": folder / "client.key"}},
        "PLAIN": {"sasl": "PLAIN", "username": "alice", "password": PASSWORD},
        "SCRAM-SHA-256": {"tls": trusted, "sasl": "SCRAM-SHA-256", "username": "alice", "password": "wonderland256"},
        "SCRAM-SHA-512": {"tls": trusted, "sasl": "SCRAM-SHA-512", "username": "alice", "password": "wonderland512"},
    }
    return ways[name]


def address(broker: Native, name: str) -> str:
    return broker.urls[name.split("-", maxsplit=1)[0]].replace("127.0.0.1", "localhost")


@pytest.mark.parametrize("name", ["TLS", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_messages_pass_by_each_way_in(secured: tuple[Native, Path], name: str) -> None:
    broker, folder = secured
    user = User(broker.url)
    try:
        options = way(name, folder) | {"bootstrap_servers": address(broker, name)}
        user.sink(**options).publish([out("1", user.topic, b"secret")])
        assert user.words(1) == {"1": "confirmed"}
        assert bodies(receive(user.source(**options), 1)) == ["secret"]
    finally:
        user.close()


@pytest.mark.parametrize("name", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_not_connected_and_is_not_shown(secured: tuple[Native, Path], name: str) -> None:
    broker, folder = secured
    wrong = secrets.token_hex(8)
    options = Kafka.model_validate(
        way(name, folder) | {"bootstrap_servers": address(broker, name), "password": wrong, "connection_timeout": 10}
    )
    with pytest.raises(NotConnected) as caught:
        adapter.sink(options).connect(lambda _: None)
    assert "SaslAuthenticationFailed" in str(caught.value)
    assert wrong not in str(caught.value)


def test_a_stranger_s_certificate_is_not_trusted(secured: tuple[Native, Path]) -> None:
    broker, _ = secured
    options = Kafka.model_validate({"bootstrap_servers": address(broker, "TLS"), "tls": True, "connection_timeout": 2})
    with pytest.raises(NotConnected, match="CERTIFICATE_VERIFY_FAILED"):
        adapter.sink(options).connect(lambda _: None)


def test_a_password_may_stand_in_a_file(secured: tuple[Native, Path], tmp_path: Path) -> None:
    broker, _ = secured
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    create_topic(broker.url, "by-file")
    options = {"bootstrap_servers": address(broker, "PLAIN"), "sasl": "PLAIN", "username": "alice", "password_file": file}
    sink = adapter.sink(Kafka.model_validate(options))
    sink.connect(lambda _: None)
    sink.publish(())
    sink.close()
