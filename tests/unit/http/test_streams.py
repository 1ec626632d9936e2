"""Answers over HTTP that last: where what makes them fails in the middle, and where many are asked for at once."""

from __future__ import annotations

import socket
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest
from fake_control import FakeControl
from structlog.testing import capture_logs
from unit.http.test_server import Endless, serving

from delaybridge.adapters.base import NotConnected, Received
from delaybridge.bridge.config import Http
from delaybridge.bridge.http.streams import STREAMS
from delaybridge.core.message import message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Leaving(FakeControl):
    """A broker that goes away after the first message."""

    @contextmanager
    def observe(self, broker: str, address: str, *, take: bool) -> Iterator[Iterator[Sequence[Received]]]:
        with super().observe(broker, address, take=take):
            yield self._first()

    def _first(self) -> Iterator[Sequence[Received]]:
        yield [Received(message(b"the only one"), "orders", b"1")]
        raise NotConnected("RabbitMQ: stream lost")


def test_an_observation_whose_broker_goes_away_does_not_look_whole_and_the_log_says_why() -> None:
    asked = {"broker": "rabbit", "address": "orders"}
    with (
        capture_logs() as logs,
        serving(Leaving(), Http(port=0)) as (_, client),
        client.stream("GET", "/api/v1/observe", params=asked) as response,
    ):
        lines = response.iter_lines()
        assert '"the only one"' in next(lines)
        with pytest.raises(httpx.RemoteProtocolError):
            next(lines)

    (told,) = [entry for entry in logs if entry["event"] == "stream_broken_off"]
    assert (told["log_level"], told["error"]) == ("warning", "RabbitMQ: stream lost")
    assert not any("exc_info" in entry for entry in logs), "an outage is no fault of the daemon's"


def test_of_streams_that_are_asked_for_at_the_same_moment_those_beyond_the_bound_are_told_so() -> None:
    """Else they wait without an answer until another one ends, and begin to take from a queue then."""
    asked = b"GET /api/v1/observe?broker=rabbit&address=orders HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(Endless(), Http(port=0)) as (server, _), ExitStack() as opened:
        clients = [opened.enter_context(socket.create_connection(("127.0.0.1", server.port), 10)) for _ in range(2 * STREAMS)]
        for each in clients:
            each.sendall(asked)
        answers = [each.recv(12) for each in clients]
    assert (answers.count(b"HTTP/1.1 200"), answers.count(b"HTTP/1.1 429")) == (STREAMS, STREAMS)
