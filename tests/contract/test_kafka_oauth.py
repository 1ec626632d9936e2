"""Kafka with bearer tokens (OAUTHBEARER): a private broker that reads unsigned tokens, from a file and from a token endpoint."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest
from brokers.common import free_port
from brokers.kafka import Native

from contract.certificates import certificates, serving
from contract.kafka_user import User, bodies, out, private, receive
from delaybridge.adapters.base import NotConnected
from delaybridge.adapters.kafka import Endpoint, Kafka, adapter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("collected")

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
CONFIG = {
    "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
    "listener.name.oauth.oauthbearer.sasl.jaas.config": f'{MODULE} required unsecuredLoginStringClaim_sub="broker";',
}
SECRET = "down+the/rabbit hole"


def token(life: float = 3600) -> str:
    """An unsigned token, valid for that many seconds from now."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": "alice", "iat": now - 1, "exp": now + life})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


class Endpoint_(ThreadingHTTPServer):  # noqa: N801 - Endpoint is the route's
    """A token endpoint (RFC 6749, 4.4). `answers` are given out in turn, the last one for good."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.url = f"http://127.0.0.1:{self.server_port}/token"
        self.answers: list[tuple[int, Any]] = []
        self.asked: list[tuple[str, dict[str, list[str]]]] = []


class Answering(BaseHTTPRequestHandler):
    server: Endpoint_

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
        credentials = base64.b64decode(self.headers["authorization"].removeprefix("Basic ")).decode()
        self.server.asked.append((credentials, form))
        status, answer = self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint_]:
    with Endpoint_() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def broker() -> Iterator[Native]:
    with private(CONFIG, {"OAUTH": "SASL_PLAINTEXT"}) as broker:
        yield broker


def options(broker: Native, **oauth: Any) -> dict[str, Any]:
    return {"bootstrap_servers": broker.urls["OAUTH"], "sasl": "OAUTHBEARER", "oauth": oauth, "connection_timeout": 5}


def passes(broker: Native, given: dict[str, Any]) -> None:
    """A message goes in and out with these options."""
    user = User(broker.url)
    try:
        user.sink(**given).publish([out("1", user.topic, b"secret")])
        assert user.words(1) == {"1": "confirmed"}
        assert bodies(receive(user.source(**given), 1)) == ["secret"]
    finally:
        user.close()


def refused(given: dict[str, Any]) -> str:
    """What both ends say."""
    validated = Kafka.model_validate(given)
    with pytest.raises(NotConnected) as by_source:
        adapter.source(validated, Endpoint(topic="t")).connect()
    with pytest.raises(NotConnected) as by_sink:
        adapter.sink(validated).connect(lambda _: None)
    assert type(by_source.value) is type(by_sink.value)
    return str(by_sink.value)


def test_a_token_file_is_read_at_each_connection(broker: Native, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token(-60))
    given = options(broker, token_file=file)
    assert "SaslAuthenticationFailed" in refused(given), "it has expired"
    file.write_text(token() + "\n")
    passes(broker, given)


def test_a_token_is_fetched_for_client_credentials_and_used_again(broker: Native, endpoint: Endpoint_) -> None:
    endpoint.answers = [(200, {"access_token": token(), "expires_in": 3600, "token_type": "Bearer"})]
    passes(broker, options(broker, token_url=endpoint.url, client_id="bridge", client_secret=SECRET, scope="kafka"))
    assert len(endpoint.asked) == 2, "once for the sink, once for the source, however many connections each has"
    assert endpoint.asked[0] == (f"bridge:{SECRET}", {"grant_type": ["client_credentials"], "scope": ["kafka"]})


def test_a_token_endpoint_is_trusted_by_the_authorities_of_the_machine(
    broker: Native, endpoint: Endpoint_, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates(tmp_path, "IP:127.0.0.1")
    endpoint.socket = serving(tmp_path).wrap_socket(endpoint.socket, server_side=True)
    endpoint.answers = [(200, {"access_token": token(), "expires_in": 3600})]
    given = options(broker, token_url=endpoint.url.replace("http:", "https:"), client_id="bridge", client_secret=SECRET)

    assert "CERTIFICATE_VERIFY_FAILED" in refused(given)
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda context, _: context.load_verify_locations(tmp_path / "ca.pem"))
    passes(broker, given)


def test_a_connection_outlives_its_token(broker: Native, endpoint: Endpoint_) -> None:
    endpoint.answers = [(200, {"access_token": token(2), "expires_in": 2}), (200, {"access_token": token(), "expires_in": 3600})]
    user = User(broker.url)
    try:
        sink = user.sink(**options(broker, token_url=endpoint.url, client_id="bridge", client_secret=SECRET))
        sink.publish([out("1", user.topic)])
        user.words(1)
        ends = time.monotonic() + 3  # the broker closes connections whose token has expired
        while time.monotonic() < ends:
            sink.publish([out(f"at {time.monotonic()}", user.topic)])
            user.words(len(user.outcomes))
            threading.Event().wait(0.1)
        count = len(user.outcomes) + 1
        sink.publish([out("last", user.topic)])
        assert set(user.words(count).values()) == {"confirmed"}
        assert len(endpoint.asked) >= 2
    finally:
        user.close()


@pytest.mark.parametrize(
    ("status", "answer", "says"),
    [
        (401, {"error": "invalid_client"}, "401"),
        (200, {"error": "none today"}, "holds no access_token"),
        (200, b"<html>", "holds no access_token"),
        (200, [], "holds no access_token"),
    ],
)
def test_an_endpoint_that_gives_no_token_is_told_without_the_secret(
    broker: Native, endpoint: Endpoint_, status: int, answer: Any, says: str
) -> None:
    endpoint.answers = [(status, answer)]
    told = refused(options(broker, token_url=endpoint.url, client_id="bridge", client_secret=SECRET))
    assert says in told
    assert endpoint.url in told
    assert SECRET not in told


def test_an_endpoint_that_is_down_is_told(broker: Native) -> None:
    url = f"http://127.0.0.1:{free_port()}/token"
    told = refused(options(broker, token_url=url, client_id="bridge", client_secret=SECRET))
    assert told.startswith(f"no bearer token from {url}: ConnectError")


def test_a_token_file_that_is_missing_or_empty_is_told(broker: Native, tmp_path: Path) -> None:
    file = tmp_path / "token"
    assert str(file) in refused(options(broker, token_file=file))
    file.write_text("\n")
    assert refused(options(broker, token_file=file)) == f"no bearer token: {file} is empty"
