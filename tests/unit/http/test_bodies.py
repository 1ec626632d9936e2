"""Requests over HTTP that need a body."""

from __future__ import annotations

import pytest
from fake_control import FakeControl
from unit.http.test_server import serving

from delaybridge.bridge.config import Http


@pytest.mark.parametrize("path", ["messages", "messages/a/reschedule", "cancellations"])
def test_a_request_without_its_body_is_told_that_this_is_what_is_missing(path: str) -> None:
    with serving(FakeControl(), Http(port=0)) as (_, client):
        answer = client.post(f"/api/v1/{path}")

    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("the body is empty, and must be a JSON object")
