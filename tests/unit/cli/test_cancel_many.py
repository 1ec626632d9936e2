"""Cancelling many at once: what `delaybridge cancel` asks and tells, and what the API answers."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fake_control import NOW, FakeControl
from fake_daemon import Daemon, call
from structlog.testing import capture_logs

from delaybridge.adapters.base import NotConnected
from delaybridge.bridge.config import Http
from delaybridge.bridge.http import HttpServer
from delaybridge.bridge.metrics import Metrics
from delaybridge.core.store import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("alone")


def answer(id_: str, **told: Any) -> dict[str, Any]:
    """One of the answers to several cancellations."""
    return {"id": id_, "outcome": "done", "event": None, "at": None, "code": None, "message": None} | told


def test_several_are_cancelled_each_with_its_answer(daemon: Daemon) -> None:
    both = {"answers": [answer("a"), answer("c")]}
    three = {"answers": [answer("a"), answer("b 1", outcome="unknown"), answer("c")]}
    daemon.on("POST /api/v1/cancellations", three, three, both)

    told = call("cancel", "a", "-", stdin=b"b 1\n\nc\r\n")
    rows = json.loads(call("cancel", "a", "b 1", "c", "-o", "json").stdout)

    assert (told.exit_code, told.stdout) == (1, "a: done\nc: done\n")
    assert told.stderr == "b 1: unknown: the daemon never heard of this id, or has forgotten it\n"
    assert [(row["id"], row["outcome"]) for row in rows] == [("a", "done"), ("b 1", "unknown"), ("c", "done")]
    assert call("cancel", "a", "c").exit_code == 0
    assert [body for _, _, body in daemon.asked] == [{"ids": ["a", "b 1", "c"]}, {"ids": ["a", "b 1", "c"]}, {"ids": ["a", "c"]}]


def test_a_request_cancels_a_hundred(daemon: Daemon) -> None:
    ids = [f"order-{number}" for number in range(201)]
    requests = [ids[:100], ids[100:200], ids[200:]]
    daemon.on("POST /api/v1/cancellations", *({"answers": [answer(id_) for id_ in some]} for some in requests))

    told = call("cancel", "-", stdin="\n".join(ids).encode())

    assert told.stdout.splitlines() == [f"{id_}: done" for id_ in ids]
    assert [body["ids"] for _, _, body in daemon.asked] == requests


@pytest.mark.parametrize("code", ["store_failed", "unsupported_in_level_queues"])
def test_an_id_for_which_the_daemon_refuses_does_not_keep_the_others_from_being_cancelled(daemon: Daemon, code: str) -> None:
    refused = answer("b", outcome="refused", code=code, message=f"It is {code}.")
    daemon.on("POST /api/v1/cancellations", {"answers": [answer("a"), refused, answer("c")]})

    told = call("cancel", "-", stdin=b"a\nb\nc\n")
    as_json = call("cancel", "a", "b", "c", "-o", "json")

    assert (told.exit_code, told.stdout, told.stderr) == (1, "a: done\nc: done\n", f"b: refused: It is {code}.\n")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout) == [
        {"id": "a", "outcome": "done", "event": None, "at": None},
        {"id": "b", "outcome": "refused", "code": code, "message": f"It is {code}."},
        {"id": "c", "outcome": "done", "event": None, "at": None},
    ]


@pytest.mark.parametrize(
    ("status", "code", "exit_code"), [(503, "not_connected", 69), (401, "unauthorized", 1), (403, "forbidden_host", 1)]
)
def test_what_the_daemon_would_answer_to_every_id_ends_the_run(daemon: Daemon, status: int, code: str, exit_code: int) -> None:
    daemon.error("POST /api/v1/cancellations", status, code)

    told = call("cancel", "a", "b")

    assert (told.exit_code, told.stderr.startswith(f"It is {code}."), len(daemon.asked)) == (exit_code, True, 1)


def test_a_broker_that_is_not_connected_ends_the_run_after_what_was_done_before(daemon: Daemon) -> None:
    away = answer("b", outcome="refused", code="not_connected", message="No broker.")
    daemon.on("POST /api/v1/cancellations", {"answers": [answer("a"), away, answer("c")]})

    told = call("cancel", "a", "b", "c")

    assert (told.exit_code, told.stdout, told.stderr) == (69, "a: done\n", "No broker.\n")


def test_input_that_is_no_text_is_refused_before_anything_is_cancelled(daemon: Daemon) -> None:
    told = call("cancel", "a", "-", stdin=b"b\n\xff\nc\n")

    assert told.exit_code == 2
    assert "standard input is not UTF-8: invalid start byte at byte 2" in told.stderr
    assert daemon.asked == []


def test_a_line_that_is_too_long_for_an_id_is_named_before_anything_is_cancelled(daemon: Daemon) -> None:
    """As of a file whose lines end in another way, or that holds no ids."""
    told = call("cancel", "-", stdin=b"a\n\n" + b"x" * 256 + b"\nc\n")

    assert (told.exit_code, daemon.asked) == (2, [])
    assert "id 2 on standard input has 256 bytes, and an id has at most 255" in " ".join(told.stderr.split())


@pytest.mark.parametrize("stdin", [b"", b"\n\r\n"])
def test_input_without_an_id_is_told_and_is_no_failure(daemon: Daemon, stdin: bytes) -> None:
    told = call("cancel", "-", stdin=stdin)

    assert (told.exit_code, told.stdout, told.stderr, daemon.asked) == (0, "", "no id on standard input\n", [])
    assert json.loads(call("cancel", "-", "-o", "json", stdin=stdin).stdout) == []


@contextmanager
def served(control: FakeControl) -> Iterator[httpx.Client]:
    """A client of an API that asks this control."""
    server = HttpServer(control, Metrics("0.1.0"), Http(port=0), lambda: NOW)
    server.start()
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        yield client
    server.stop()


class Waiting(FakeControl):
    """One that answers no cancel before so many are under way at once."""

    def reset(self) -> None:
        super().reset()
        self.together = threading.Barrier(5)

    def cancel(self, id: str) -> Answer:  # noqa: A002 - the field's own word
        self.together.wait(5)
        return Answer("unknown") if id == "c" else super().cancel(id)


def test_several_are_cancelled_at_once_and_answered_in_the_order_of_their_ids() -> None:
    with served(Waiting()) as client, capture_logs() as lines:
        answers = client.post("/api/v1/cancellations", json={"ids": list("edcba")}).json()["answers"]

    assert [(each["id"], each["outcome"]) for each in answers] == [
        ("e", "done"),
        ("d", "done"),
        ("c", "unknown"),
        ("b", "done"),
        ("a", "done"),
    ]
    assert [(line["call"], line["ids"]) for line in lines if line["event"] == "api_call"] == [("cancel_messages", list("edcba"))]


def test_each_of_several_that_fails_bears_the_code_that_it_would_have_alone() -> None:
    control = FakeControl()
    control.failure = NotConnected("no broker at 127.0.0.1:1")

    with served(control) as client:
        (told,) = client.post("/api/v1/cancellations", json={"ids": ["a"]}).json()["answers"]

    assert (told["outcome"], told["code"], told["message"]) == ("refused", "not_connected", "no broker at 127.0.0.1:1")


@pytest.mark.parametrize("body", [{}, {"ids": "a"}, {"ids": [1]}, {"ids": ["a"] * 101}])
def test_several_that_cannot_be_read_cancel_nothing(body: object) -> None:
    control = FakeControl()

    with served(control) as client:
        told = client.post("/api/v1/cancellations", json=body)

    assert (told.status_code, told.json()["error"]["code"]) == (400, "bad_request")
    assert control.asked == []
