"""A daemon that is a table of answers, for tests of the command line; and the command line as a function."""

from __future__ import annotations

import json
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import httpx
from typer.testing import CliRunner

from delaybridge.bridge.cli import app

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from typer.testing import Result

MESSAGE = {
    "id": "order-1",
    "occurrence": 1,
    "due": 1_795_507_200_000,
    "kind": "once",
    "dialect": "delaybridge",
    "route": "orders",
    "source": {"broker": "rabbit", "address": "in"},
    "destination": {"broker": "rabbit", "address": "reminders"},
    "state": "waiting",
    "attempts": 0,
    "error": "",
    "size": 12,
}
LETTER = {
    "number": 17,
    "at": 1_795_507_200_000,
    "reason": "bad_duration",
    "detail": "x-delay: 'abc' is not a duration",
    "attempts": 0,
    **{key: value for key, value in MESSAGE.items() if key not in ("state", "error", "attempts")},
}
STATUS = {
    "bridge": "b1",
    "version": "0.1.0",
    "ready": True,
    "started": 1_795_507_200_000,
    "now": 1_795_507_260_000,
    "pending": 3,
    "held": 1,
    "shelved": 0,
    "events": {"scheduled": 4, "delivered": 1},
    "oldest_overdue_ms": 1500,
    "routes": [{"name": "orders", "paused": True, "connected": True, "received": 4, "from": "rabbit queue in", "to": "rabbit"}],
    "lanes": [
        {
            "broker": "rabbit",
            "connected": False,
            "in_flight": 2,
            "published": 1,
            "held": [{"address": "gone", "attempts": 5, "error": "unroutable: no queue", "retry_at": 1_795_507_261_000}],
        }
    ],
    "by_address": [{"broker": "rabbit", "address": "reminders", "pending": 3}],
    "by_hour": [{"hour": 1_795_507_200_000, "pending": 3}],
    "store": {"free_bytes": 2**30, "room": False},
}


MEDIA = {"GET /api/v1/observe": "application/x-ndjson", "GET /api/v1/export": "application/vnd.apache.arrow.stream"}


class Daemon:
    """Answers from a table, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.headers: list[httpx.Headers] = []
        self.patience: dict[str, Any] = {}
        self.answers: dict[str, list[tuple[int, Any]]] = {}

    def instead(self, monkeypatch: pytest.MonkeyPatch) -> Self:
        monkeypatch.setattr("delaybridge.bridge.cli.client.httpx.Client", partial(httpx.Client, transport=httpx.MockTransport(self)))
        return self

    def on(self, request: str, *answers: Any, status: int = 200) -> None:
        self.answers[request] = [(status, answer) for answer in answers]

    def error(self, request: str, status: int, code: str, **told: Any) -> None:
        self.on(request, {"error": {"code": code, "message": f"It is {code}.", **told}}, status=status)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        name = f"{request.method} {request.url.raw_path.decode().partition('?')[0]}"
        self.asked.append((name, dict(request.url.params), json.loads(request.content) if request.content else None))
        self.headers.append(request.headers)
        self.patience = request.extensions["timeout"]
        left = self.answers[name]
        status, answer = left.pop(0) if len(left) > 1 else left[0]
        if not isinstance(answer, bytes | Generator):
            return httpx.Response(status, json=answer)
        return httpx.Response(status, content=answer, headers={"content-type": MEDIA.get(name, "text/html")})


def call(*words: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, list(words), input=stdin)


def alone(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a directory of our own, with nothing in the environment."""
    monkeypatch.chdir(directory)
    for name in ("DELAYBRIDGE_CONFIG", "DELAYBRIDGE_URL", "DELAYBRIDGE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
