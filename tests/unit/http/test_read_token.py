"""The token that only reads: what it opens, and what is said where it does not suffice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from fake_control import NOW, FakeControl
from pydantic import SecretStr

from delaybridge.bridge.cli.client import ApiError, Client
from delaybridge.bridge.config import Http
from delaybridge.bridge.http import OPENAPI, HttpServer
from delaybridge.bridge.http.endpoints import ENDPOINTS
from delaybridge.bridge.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN, READS = "a-token-of-length", "a-token-that-only-reads"
CHANGING = sorted((each.method, each.path) for each in ENDPOINTS if each.method != "GET")


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    server = HttpServer(FakeControl(), Metrics("0.1.0"), Http(port=0, token=SecretStr(TOKEN), read_token=SecretStr(READS)), lambda: NOW)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def reader(server: HttpServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False, headers={"Authorization": f"Bearer {READS}"}) as client:
        yield client


@pytest.mark.parametrize(
    "path",
    [
        OPENAPI,
        "/metrics",
        "/readyz?verbose",
        "/api/v1/status",
        "/api/v1/messages",
        "/api/v1/messages/a",
        "/api/v1/dead-letters",
        "/api/v1/export",
    ],
)
def test_it_reads_what_changes_nothing(reader: httpx.Client, path: str) -> None:
    assert (reader.get(path).status_code, reader.head(path).status_code) == (200, 200)


@pytest.mark.parametrize(("method", "path"), CHANGING)
def test_whatever_changes_something_is_refused_with_the_reason(reader: httpx.Client, method: str, path: str) -> None:
    """Also what would take a queue's messages away, and whatever is wrong with the request itself."""
    answer = reader.request(method, path.replace(":path}", "}").replace("{number:number}", "1"))

    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "read_only")
    assert "http.token" in answer.json()["error"]["message"]


def test_a_method_that_no_path_has_is_refused_as_well(reader: httpx.Client) -> None:
    assert [reader.request(method, "/api/v1/messages").status_code for method in ("PUT", "PATCH", "OPTIONS")] == [403] * 3


def test_the_other_token_opens_everything_as_before(server: HttpServer) -> None:
    with httpx.Client(base_url=server.url, trust_env=False, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        assert client.get("/api/v1/status").status_code == 200
        assert client.post("/api/v1/routes/main/pause").status_code == 200


@pytest.mark.parametrize("authorization", [f"Bearer {READS}x", f"Basic {READS}", READS, "Bearer", ""])
def test_what_is_neither_token_is_told_nothing(server: HttpServer, authorization: str) -> None:
    answer = httpx.get(f"{server.url}/api/v1/status", headers={"Authorization": authorization}, trust_env=False)

    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")


@pytest.fixture
def command(server: HttpServer) -> Iterator[Client]:
    client = Client(server.url, READS)
    yield client
    client._http.close()


def test_a_command_that_changes_something_says_which_token_it_needs_and_where_to_give_it(command: Client) -> None:
    with pytest.raises(ApiError, match=r"only reads.*the one of http\.token; give that one in DELAYBRIDGE_TOKEN or --token-file"):
        command.turn("main", "pause")


def test_what_else_is_forbidden_speaks_of_no_token(command: Client) -> None:
    command._http.headers["Origin"] = "http://evil.example"

    with pytest.raises(ApiError) as told:
        command.status()

    assert str(told.value) == "Pages of another origin may not call the bridge."
