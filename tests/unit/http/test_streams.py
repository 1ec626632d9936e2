"""Answers over HTTP that last, where what makes them fails in the middle."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest
from fake_control import FakeControl
from structlog.testing import capture_logs
from unit.http.test_server import serving

from delaybridge.adapters.base import NotConnected, Received
from delaybridge.bridge.config import Http
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
