"""What arrives at a destination, over HTTP: copies for a GET, the messages themselves for a POST."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fake_control import NOW
from structlog.testing import capture_logs

from delaybridge.adapters.base import Received
from delaybridge.core import fields
from delaybridge.core.message import Message, message

if TYPE_CHECKING:
    import httpx
    from fake_control import FakeControl


def test_observed_deliveries_come_one_a_line(client: httpx.Client, control: FakeControl) -> None:
    told: dict[str, fields.Value] = {"x-delay-id": "a", "x-delay-occurrence": 2, "x-delay-due": NOW - 7}
    as_text: dict[str, fields.Value] = {"x_delay_id": "b", "x_delay_occurrence": "1", "x_delay_due": str(NOW)}
    nested = Message(b"\xff", b"\x01nF\0\0\0\0")
    control.arrivals = [
        [Received(message(b"hello", told), "x", b"1")],
        [],
        [Received(message(b"", as_text), "x", b"2"), Received(nested, "x", b"3"), Received(Message(b"", b"\x05broken"), "x", b"4")],
    ]
    response = client.get("/api/v1/observe?broker=rabbit&address=orders")
    assert response.headers["content-type"] == "application/x-ndjson"
    first, second, third, fourth = (json.loads(line) for line in response.text.splitlines())
    assert first == {
        "at": NOW, "address": "orders", "id": "a", "occurrence": 2, "due": NOW - 7, "lateness_ms": 7, "body": "hello", "headers": told,
    }  # fmt: skip
    assert (second["id"], second["occurrence"], second["lateness_ms"]) == ("b", 1, 0)
    assert (third["body_base64"], third["headers"], "id" in third) == ("/w==", {"n": {"base64": ""}}, False)
    assert list(fourth["headers"]) == [""]
    assert control.observing == 0


def test_what_no_bridge_wrote_into_its_headers_is_told_as_a_header_only(client: httpx.Client, control: FakeControl) -> None:
    foreign: dict[str, fields.Value] = {"x-delay-id": 7, "x-delay-occurrence": 0, "x-delay-due": 5}
    control.arrivals = [[Received(Message(None, fields.table(foreign.items())), "x", b"1")]]
    told = client.get("/api/v1/observe?broker=rabbit&address=orders").json()
    assert told == {"at": NOW, "address": "orders", "body": "", "headers": foreign}


def test_what_a_queue_holds_is_taken_away_by_a_post_only_and_the_log_says_from_where(client: httpx.Client, control: FakeControl) -> None:
    asked = {"broker": "rabbit", "address": "/queues/billing"}
    with capture_logs() as logs:
        client.get("/api/v1/observe", params=asked)
        assert client.get("/api/v1/observe", params={**asked, "take": "true"}).status_code == 400
        assert logs == []
        client.post("/api/v1/observe", json=asked)

    assert control.asked == [("observe", *asked.values(), False), ("observe", *asked.values(), True)]
    assert logs == [{"event": "api_call", "log_level": "info", "call": "take", "client": "127.0.0.1", **asked}]
