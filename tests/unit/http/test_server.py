"""Who may call the API, what it refuses to read, how it starts and ends, and that its OpenAPI document tells all of it."""

from __future__ import annotations

import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fake_control import NOW, FakeControl, pending
from pydantic import SecretStr
from starlette.routing import Route

from delaybridge.adapters.base import Received
from delaybridge.bridge.config import Http
from delaybridge.bridge.http import OPENAPI, CannotListen, HttpServer, connections, create_app
from delaybridge.bridge.http.connections import CONNECTIONS
from delaybridge.bridge.http.endpoints import ENDPOINTS, SMALL, Api
from delaybridge.bridge.http.openapi import document
from delaybridge.bridge.http.streams import ARROW, NDJSON, STREAMS, Streams
from delaybridge.bridge.metrics import Metrics
from delaybridge.core.message import message
from delaybridge.core.store import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delaybridge.core.store import Answer, Pending

TOKEN = "correct-horse-battery-staple"
PROBES = ("/livez", "/healthz", "/readyz")
PRIVATE = ("/metrics", "/api/v1/status", OPENAPI, "/api/v1/export", "/readyz?verbose", "/nothing")


class Endless(FakeControl):
    """Something arrives all the time, and the backlog has no end, until `over` is set; `closed` tells that an observation ended."""

    def reset(self) -> None:
        super().reset()
        self.over = threading.Event()
        self.closed = threading.Event()

    def _arrive(self) -> Iterator[Sequence[Received]]:
        while not self.over.wait(0.005):
            yield [Received(message(b"tick"), "orders", b"t")]

    @contextmanager
    def observe(self, broker: str, address: str, *, take: bool) -> Iterator[Iterator[Sequence[Received]]]:
        try:
            with super().observe(broker, address, take=take):
                yield self._arrive()
        finally:
            self.closed.set()

    def pending(self) -> Iterator[Pending]:
        return (pending(str(n)) for n in count())


@contextmanager
def serving(control: FakeControl, settings: Http) -> Iterator[tuple[HttpServer, httpx.Client]]:
    server = HttpServer(control, Metrics("0.1.0"), settings, lambda: NOW)
    server.start()
    try:
        with httpx.Client(base_url=server.url, trust_env=False) as client:
            yield server, client
    finally:
        server.stop()


@pytest.fixture(scope="module")
def open_api() -> Iterator[httpx.Client]:
    """On loopback, without a token."""
    with serving(FakeControl(), Http(port=0)) as (_, client):
        yield client


@pytest.fixture(scope="module")
def guarded_api() -> Iterator[httpx.Client]:
    """On every interface, with a token."""
    with serving(FakeControl(), Http(bind="0.0.0.0", port=0, token=SecretStr(TOKEN))) as (_, client):
        yield client


def observing(client: httpx.Client) -> Any:
    return client.stream("GET", "/api/v1/observe?broker=rabbit&address=orders")


@pytest.mark.parametrize("path", PRIVATE)
@pytest.mark.parametrize("authorization", [None, "", "Bearer", f"Bearer {TOKEN}x", f"Bearer x{TOKEN}", TOKEN, f"Basic {TOKEN}", "Bearer ü"])
def test_nothing_is_told_without_the_token(guarded_api: httpx.Client, path: str, authorization: str | None) -> None:
    headers = [] if authorization is None else [(b"Authorization", authorization.encode())]
    response = guarded_api.get(path, headers=headers)
    assert (response.status_code, response.headers["www-authenticate"], response.json()["error"]["code"]) == (401, "Bearer", "unauthorized")


def test_the_token_opens_everything(guarded_api: httpx.Client) -> None:
    for path in PRIVATE[:-1]:
        assert guarded_api.get(path, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert guarded_api.get(path, headers={"Authorization": f"bearer {TOKEN}"}).status_code == 200


@pytest.mark.parametrize("path", PROBES)
def test_probes_need_no_token(guarded_api: httpx.Client, path: str) -> None:
    assert guarded_api.get(path).status_code == 200


@pytest.mark.parametrize("host", ["localhost", "localhost:8470", "127.0.0.1", "127.8.8.8:1", "[::1]:8470", "LOCALHOST"])
def test_on_loopback_its_own_names_are_served(open_api: httpx.Client, host: str) -> None:
    assert open_api.get("/api/v1/status", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8470",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "10.0.0.1",
        "[::2]",
        "a@127.0.0.1.b",
        "[",
        "",
    ],
)
@pytest.mark.parametrize("path", ["/api/v1/status", "/livez"])
def test_on_loopback_a_foreign_host_name_is_refused(open_api: httpx.Client, host: str, path: str) -> None:
    """DNS rebinding: a page of evil.example, whose name now leads to 127.0.0.1."""
    response = open_api.get(path, headers={"Host": host})
    assert (response.status_code, response.json()["error"]["code"]) == (403, "forbidden_host")


def test_other_machines_may_use_any_name(guarded_api: httpx.Client) -> None:
    assert guarded_api.get("/livez", headers={"Host": "bridge.internal"}).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:3000", "file://", "http://[", ""])
def test_pages_of_another_origin_are_refused(open_api: httpx.Client, guarded_api: httpx.Client, origin: str) -> None:
    for client in (open_api, guarded_api):
        response = client.post("/api/v1/routes/main/pause", headers={"Origin": origin, "Authorization": f"Bearer {TOKEN}"})
        assert (response.status_code, response.json()["error"]["code"]) == (403, "forbidden_origin")


def test_what_a_page_elsewhere_embeds_is_refused_though_it_bears_no_origin(open_api: httpx.Client) -> None:
    sites = ("cross-site", "same-site", "same-origin", "none")
    assert [open_api.get("/api/v1/status", headers={"Sec-Fetch-Site": site}).status_code for site in sites] == [403, 403, 200, 200]


def test_its_own_origin_is_served(open_api: httpx.Client) -> None:
    headers = {"Host": "localhost:8470", "Origin": "http://localhost:8470"}
    assert open_api.post("/api/v1/routes/main/pause", headers=headers).status_code == 200


def test_a_body_beyond_the_limit_is_not_read(open_api: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        yield from [b" " * 1024] * (SMALL // 1024)
        yield b" "

    for body in (b" " * (SMALL + 1), chunks()):
        response = open_api.post("/api/v1/messages/a/reschedule", content=body)
        assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")


def test_a_client_that_goes_away_amid_its_request_is_no_mistake_of_the_bridge(caplog: pytest.LogCaptureFixture) -> None:
    control = FakeControl()
    with serving(control, Http(port=0)) as (server, _), socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b'POST /api/v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"bo')
        client.shutdown(socket.SHUT_WR)
        while client.recv(4096):
            pass

    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
    assert control.sent == []


def test_other_machines_are_not_served_without_a_token() -> None:
    settings = Http(port=0).model_copy(update={"bind": "0.0.0.0"})
    with pytest.raises(ValueError, match="a token is needed"):
        HttpServer(FakeControl(), Metrics("0.1.0"), settings)


def test_a_port_that_is_taken_is_said_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = HttpServer(FakeControl(), Metrics("0.1.0"), Http(port=taken.getsockname()[1]))
        with pytest.raises(OSError, match="in use"):
            server.start()


@pytest.mark.parametrize("bind", ["0.0.0..0", "a" * 64])
def test_a_name_that_no_host_can_have_is_said_like_one_that_none_has(bind: str) -> None:
    server = HttpServer(FakeControl(), Metrics("0.1.0"), Http(bind=bind, token=SecretStr(TOKEN)))
    with pytest.raises(CannotListen, match=f"http cannot listen on {bind}:8470: .*set another http.bind"):
        server.bind()


def test_requests_are_answered_as_soon_as_it_has_started_and_not_after_it_stopped() -> None:
    with serving(FakeControl(), Http(port=0)) as (server, client):
        assert client.get("/livez").status_code == 200
        server.stop()
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/livez", trust_env=False)
        server.stop()


def test_an_observation_ends_well_when_the_daemon_stops() -> None:
    control = Endless()
    with serving(control, Http(port=0)) as (server, client), observing(client) as response:
        lines = response.iter_lines()
        assert '"body":"tick"' in next(lines)
        server.stop()
        assert all('"body":"tick"' in line for line in lines)
    assert control.observing == 0


def test_an_observation_ends_when_the_client_goes_away() -> None:
    control = Endless()
    with serving(control, Http(port=0)) as (_, client):
        with observing(client) as response:
            next(response.iter_lines())
        assert control.closed.wait(5)


def test_an_export_that_the_stop_cuts_off_does_not_look_whole() -> None:
    with serving(Endless(), Http(port=0)) as (server, client), client.stream("GET", "/api/v1/export") as response:
        pieces = response.iter_raw()
        next(pieces)
        threading.Thread(target=server.stop).start()  # the client reads on: else a full connection may outlast the server
        with pytest.raises(httpx.RemoteProtocolError):
            for _ in pieces:
                pass


def test_streams_are_bounded_and_leave_the_rest_of_the_api_alone() -> None:
    with serving(Endless(), Http(port=0)) as (_, client), ExitStack() as open_streams:
        for _ in range(STREAMS):
            open_streams.enter_context(observing(client))
        busy = client.get("/api/v1/observe?broker=rabbit&address=orders")
        assert (busy.status_code, busy.json()["error"]["code"]) == (429, "busy")
        assert client.get("/api/v1/status").status_code == 200


def test_connections_on_which_no_request_comes_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else sixty-four of them have the bridge restarted, for its probes are answered 503."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 1)
    with serving(FakeControl(), Http(port=0)) as (server, client), ExitStack() as opened:
        asked_before = opened.enter_context(httpx.Client(base_url=server.url, trust_env=False))
        assert asked_before.get("/livez").status_code == 200
        silent = [opened.enter_context(socket.create_connection(("127.0.0.1", server.port), 10)) for _ in range(CONNECTIONS)]
        for half in silent[::2]:
            half.sendall(b"GET /livez HTTP/1.1\r\n")
        assert [each.recv(1) for each in silent] == [b""] * CONNECTIONS
        assert client.get("/livez").status_code == 200


def test_where_there_are_too_many_connections_the_first_ones_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 3)
    with serving(FakeControl(), Http(port=0)) as (server, _), ExitStack() as opened:
        clients = [opened.enter_context(httpx.Client(base_url=server.url, trust_env=False)) for _ in range(5)]
        for _ in range(2):
            assert [client.get("/livez").status_code for client in clients] == [200, 200, 200, 503, 503]


@pytest.mark.parametrize("path", ["/api/v1/observe?broker=rabbit&address=orders", "/api/v1/export"])
def test_whoever_asks_only_for_the_head_of_a_stream_has_it_and_takes_nothing_away(path: str) -> None:
    """To observe a queue is to take its messages, and HEAD promises to change nothing."""
    control = Endless()
    with serving(control, Http(port=0)) as (_, client):
        head = client.head(path, timeout=5)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"] in (ARROW, NDJSON)
    assert not control.closed.is_set()


def operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


class Waiting(FakeControl):
    """A cancellation waits until `over` is set, and says that it does."""

    def reset(self) -> None:
        super().reset()
        self.over = threading.Event()
        self.waiting_now = threading.Semaphore(0)

    def cancel(self, id: str) -> Answer:  # noqa: A002 - the field's own word
        self.waiting_now.release()
        self.over.wait(30)
        return super().cancel(id)


def test_probes_and_metrics_are_answered_while_all_who_cancel_wait_for_what_is_in_flight() -> None:
    """Else the bridge is restarted, or an alert says that it is down, just while a destination is slow to confirm."""
    control = Waiting()
    with serving(control, Http(port=0)) as (server, client), ThreadPoolExecutor(45) as pool:
        try:
            for _ in range(45):
                pool.submit(httpx.post, f"{server.url}/api/v1/messages/a/cancel", trust_env=False, timeout=30)
            for _ in range(40):  # as many threads as anyio gives to all
                assert control.waiting_now.acquire(timeout=30)
            assert [client.get(path, timeout=5).status_code for path in (*PROBES, "/metrics", "/api/v1/status")] == [200] * 5
        finally:
            control.over.set()


def test_every_route_is_in_the_openapi_document(open_api: httpx.Client) -> None:
    schema = open_api.get(OPENAPI).json()
    app: Any = create_app(Api(FakeControl(), Metrics("0.1.0"), lambda: NOW, Streams()), None, loopback=True)
    served = {
        (re.sub(r":\w+}", "}", route.path), method.lower())
        for route in app._app.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert served - {(OPENAPI, "get")} == {(path, method) for path, method, _ in operations(schema)}


def test_the_openapi_document_is_sound() -> None:
    """OpenAPI 3.1: references resolve, path parameters are declared, operation ids are unique, every answer is described."""
    schema = document(ENDPOINTS, "0.1.0")
    assert schema["openapi"].startswith("3.1.")
    for reference in references(schema):
        kind, _, name = reference.removeprefix("#/components/").partition("/")
        assert name in schema["components"][kind], reference
    found = list(operations(schema))
    assert len({operation["operationId"] for _, _, operation in found}) == len(found)
    for path, method, operation in found:
        assert operation["summary"].endswith("."), path
        declared = {parameter["name"] for parameter in operation.get("parameters", []) if parameter["in"] == "path"}
        assert declared == set(re.findall(r"{(\w+)}", path))
        assert all(answer["description"] for answer in operation["responses"].values())
        assert ("requestBody" in operation) <= (method == "post")


def test_the_openapi_document_says_what_level_queues_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise Unsupported("it needs a time index")

    for name in ("messages", "find", "pending", "cancel", "reschedule", "release", "dead_letters", "retry_dead_letter", "drop_dead_letter"):
        monkeypatch.setattr(FakeControl, name, refuse)
    asked = {"id": "order-1", "number": "1", "name": "orders"}
    with serving(FakeControl(), Http(port=0)) as (_, client):
        for path, method, operation in operations(document(ENDPOINTS, "0.1.0")):
            answer = client.request(method, path.format_map(asked), json={"due": "1h"} if path.endswith("reschedule") else None)
            assert (answer.status_code == 501) == ("501" in operation["responses"]), (method, path)
