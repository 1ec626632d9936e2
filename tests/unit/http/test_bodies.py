"""Requests over HTTP that need a body, and what the OpenAPI document says of requests that fail."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from fake_control import FakeControl
from unit.http.test_server import operations, serving

from delaybridge.adapters.base import Rejected
from delaybridge.bridge import http
from delaybridge.bridge.config import Http
from delaybridge.bridge.http.endpoints import ENDPOINTS
from delaybridge.bridge.http.openapi import document
from delaybridge.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from delaybridge.adapters.base import Received


@pytest.mark.parametrize("path", ["messages", "messages/a/reschedule", "cancellations"])
def test_a_request_without_its_body_is_told_that_this_is_what_is_missing(path: str) -> None:
    with serving(FakeControl(), Http(port=0)) as (_, client):
        answer = client.post(f"/api/v1/{path}")

    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("the body is empty, and must be a JSON object")


def test_the_document_says_that_a_body_may_come_too_slowly_or_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_SECONDS", 0.1)
    with serving(FakeControl(), Http(port=0)) as (server, _), socket.create_connection(("127.0.0.1", server.port), 10) as slow:
        slow.sendall(b"POST /api/v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
        assert slow.recv(12) == b"HTTP/1.1 408"

    for path, method, operation in operations(document(ENDPOINTS, "0.1.0")):
        assert ({"408", "413"} <= set(operation["responses"])) == ("requestBody" in operation), (method, path)


def test_the_document_says_what_becomes_of_an_observation_at_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> AbstractContextManager[Iterator[Sequence[Received]]]:
        raise Rejected(Reason.BAD_DESTINATION, "no address of RabbitMQ")

    monkeypatch.setattr(FakeControl, "observe", refuse)
    with serving(FakeControl(), Http(port=0)) as (_, client):
        answer = client.get("/api/v1/observe?broker=rabbit&address=x")

    observe = document(ENDPOINTS, "0.1.0")["paths"]["/api/v1/observe"]["get"]
    assert str(answer.status_code) in observe["responses"], answer.text


def test_the_document_says_that_anything_may_meet_a_bug() -> None:
    assert all("500" in operation["responses"] for _, _, operation in operations(document(ENDPOINTS, "0.1.0")))
