"""ActiveMQ over TLS: a private broker that asks for client certificates."""

from __future__ import annotations

import contextlib
import secrets
import socket
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pytest
from brokers import activemq as brokers
from brokers.common import Unavailable, free_port, listens, wait_until
from brokers.private import running
from conftest import unavailable
from pydantic import SecretStr

from contract.certificates import certificates, serving, tls
from delaybridge.adapters.activemq import ActiveMQ, Endpoint, adapter
from delaybridge.adapters.activemq import sink as sink_module
from delaybridge.adapters.base import NotConnected, Outcome, Outgoing
from delaybridge.adapters.tls import Tls
from delaybridge.core.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from delaybridge.adapters.activemq.source import ActiveSource


@pytest.fixture(scope="module")
def tls_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """A private broker with a TLS connector, the folder of its certificates, and its port."""
    try:
        libraries = brokers.libraries()
    except Unavailable as reason:
        unavailable("activemq", reason)
    folder, port = tmp_path_factory.mktemp("tls"), free_port()
    certificates(folder)
    identity = ["-in", "server.pem", "-inkey", "server.key", "-out", "server.p12"]
    key_store = ["openssl", "pkcs12", "-export", *identity, "-passout", "pass:secret"]
    trust_store = ["keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", "ca.pem", "-keystore", "ca.p12", "-storepass", "secret"]
    for command in (key_store, trust_store):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    xml = (
        f'<sslContext><sslContext keyStore="{folder}/server.p12" keyStoreType="PKCS12" keyStorePassword="secret" keyStoreKeyPassword="secret" '
        f'trustStore="{folder}/ca.p12" trustStoreType="PKCS12" trustStorePassword="secret"/></sslContext>'
    )
    broker = brokers.Native(libraries, xml=xml, connectors=f'<transportConnector uri="stomp+ssl://localhost:{port}?needClientAuth=true"/>')
    with running(broker):  # which waits for the other connector only
        wait_until(lambda: listens(f"stomp+ssl://localhost:{port}"), "the TLS connector", 60)
        yield folder, port


def over_tls(port: int, settings: Tls, host: str = "localhost") -> ActiveSource:
    options = ActiveMQ(url=SecretStr(f"stomp+ssl://{host}:{port}"), tls=settings, connection_timeout=60)
    return adapter.source(options, Endpoint(queue="tls"))


def test_tls_with_a_client_certificate_carries_messages_both_ways_at_once(tls_broker: tuple[Path, int]) -> None:
    folder, port = tls_broker
    source = over_tls(port, tls(folder))
    source.connect()
    outcomes: list[Outcome] = []
    sink = adapter.sink(ActiveMQ(url=SecretStr(f"stomp+ssl://localhost:{port}"), tls=tls(folder), connection_timeout=60))
    sink.connect(outcomes.extend)
    body = secrets.token_bytes(3_000_000)
    sink.publish([Outgoing(b"large", "tls", Message(body))])
    for start in range(0, 3000, 100):
        sink.publish([Outgoing(str(n).encode(), "tls", Message(str(n).encode())) for n in range(start, start + 100)])
    bodies: list[bytes | None] = []
    while len(bodies) < 3001:
        batch = source.receive(500, 60)
        assert batch is not None
        bodies += [one.message.body for one in batch.messages]
        batch.ack()
    assert bodies == [body, *(str(n).encode() for n in range(3000))]
    wait_until(lambda: len(outcomes) == 3001, "the confirms", 60)
    assert {error for _, error in outcomes} == {None}
    source.close()
    sink.close()


def test_a_connection_over_tls_lasts_for_as_long_as_each_side_sends_its_heartbeats(tls_broker: tuple[Path, int]) -> None:
    folder, port = tls_broker
    options = ActiveMQ(url=SecretStr(f"stomp+ssl://localhost:{port}"), tls=tls(folder), connection_timeout=60, heartbeat=3)
    source, sink = adapter.source(options, Endpoint(queue="lasting")), adapter.sink(options)
    source.connect()
    sink.connect(lambda _: None)
    assert source.receive(1, 7) is None  # more than two intervals, in which nothing but heartbeats comes
    sink.publish([Outgoing(b"1", "lasting", Message(b"x"))])
    batch = source.receive(1, 30)
    assert batch is not None
    batch.ack()
    source.close()
    sink.close()


@contextlib.contextmanager
def deaf(folder: Path) -> Iterator[int]:
    """A server that lets one client in, sends heartbeats, and reads nothing more; gives its port."""
    context = serving(folder)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError), context.wrap_socket(server.accept()[0], server_side=True) as client:
                client.recv(65536)
                client.sendall(b"CONNECTED\nversion:1.2\nheart-beat:1000,1000\n\n\0\n")
                while True:
                    time.sleep(0.5)  # within the second that it has promised
                    client.sendall(b"\n")

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def test_a_broker_that_reads_nothing_more_is_given_up_however_much_waits_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_module, "STALL", 1.0)
    certificates(tmp_path)
    outcomes: list[Outcome] = []
    with deaf(tmp_path) as port:
        options = ActiveMQ(url=SecretStr(f"stomp+ssl://localhost:{port}"), tls=tls(tmp_path), heartbeat=10)
        sink = adapter.sink(options)
        sink.connect(outcomes.extend)
        taken = 0
        with contextlib.suppress(NotConnected):
            while taken < 10_000:  # each goes alone, as nobody knows its destination yet
                sink.publish([Outgoing(b"%d" % taken, f"queue.{taken}", Message(b"x" * 10_000))])
                taken += 1
                time.sleep(0.002)  # the first second, after which it is given up, is over long before all 10,000 are in memory
        wait_until(lambda: len(outcomes) >= taken, "outcomes", 20)
        sink.close()
    assert len(outcomes) == taken < 10_000
    assert {str(error) for _, error in outcomes} == {"ActiveMQ took nothing for 1 s"}


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
