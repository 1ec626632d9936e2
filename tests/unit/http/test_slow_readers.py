"""Clients that do not read what they are answered, and such as read it slowly."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from brokers.common import wait_until
from fake_control import FakeControl
from unit.http.test_server import serving

from delaybridge.bridge.config import Http
from delaybridge.bridge.http import OPENAPI, HttpServer, connections

if TYPE_CHECKING:
    from collections.abc import Iterator

_OFTEN = 2_000


@pytest.fixture
def asked_often(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[HttpServer, socket.socket]]:
    """A connection on which so much is asked for that the answers do not fit into the system's buffers; READ_SECONDS is the parameter."""
    monkeypatch.setattr(connections, "READ_SECONDS", request.param)
    monkeypatch.setattr(connections, "HEAD_SECONDS", 1_000_000)  # what is asked for has come
    ask = f"GET {OPENAPI} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * _OFTEN
    with serving(FakeControl(), Http(port=0)) as (server, _), closing(socket.socket()) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(30)
        client.connect(("127.0.0.1", server.port))
        client.sendall(ask)
        yield server, client


@pytest.mark.parametrize("asked_often", [0.5], indirect=True)
def test_a_connection_on_which_no_answer_is_read_is_given_up(asked_often: tuple[HttpServer, socket.socket]) -> None:
    """Else a few of them keep the probes out, for as long as they like."""
    server, client = asked_often
    assert client.recv(1)
    assert server._server is not None
    state = server._server.server_state

    wait_until(lambda: not state.connections, "the end of the connection", 30)


@pytest.mark.parametrize("asked_often", [3600], indirect=True)
def test_a_connection_on_which_answers_are_read_slowly_has_all_of_them(
    asked_often: tuple[HttpServer, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something is read only when the server cannot write any more, and it all takes longer than one may read nothing, by the server's clock."""
    server, client = asked_often
    assert server._server is not None
    state = server._server.server_state
    wait_until(lambda: bool(state.connections), "the connection")
    loop = next(iter(state.connections)).loop
    began = now = loop.time()

    def stuck() -> bool:
        return state.total_requests == _OFTEN or any(each.transport.get_write_buffer_size() for each in state.connections)

    answers, rest = 0, b""
    with monkeypatch.context() as clock:
        clock.setattr(loop, "time", lambda: now)
        while answers < _OFTEN:
            wait_until(stuck, "the server to wait for its client")
            received = client.recv(1 << 16)
            assert received, f"the connection ended after {answers} of {_OFTEN} answers"
            rest += received
            answers += rest.count(b"HTTP/1.1 200 OK")
            rest = rest[-14:]
            now += connections.READ_SECONDS / 1000
            loop.call_soon_threadsafe(lambda: None)  # the loop looks at its clock
    assert now - began > connections.READ_SECONDS
