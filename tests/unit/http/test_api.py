"""What each endpoint answers, over HTTP on loopback, with a control that remembers what it was asked."""

from __future__ import annotations

import base64
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
import pyarrow as pa
import pytest
from fake_control import NOW, FakeControl, pending
from structlog.testing import capture_logs

from delaybridge.adapters.base import BackOff, NotConnected, Rejected
from delaybridge.bridge.config import Http
from delaybridge.bridge.http import HttpServer, convert
from delaybridge.bridge.metrics import Metrics
from delaybridge.bridge.views import Check, NotKnownError, NotPossibleError, WouldBeRefusedError
from delaybridge.core import fields
from delaybridge.core.message import Message, Properties, message
from delaybridge.core.reasons import Reason
from delaybridge.core.store import Answer, Query, StoreClosed, StoreError, StoreFull

if TYPE_CHECKING:
    from typing import Any


def error_of(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    body: dict[str, Any] = response.json()
    assert list(body) == ["error"]
    error: dict[str, Any] = body["error"]
    return error


@pytest.mark.parametrize("path", ["/livez", "/healthz"])
def test_liveness_follows_the_process_and_not_the_brokers(client: httpx.Client, control: FakeControl, path: str) -> None:
    control.check_list = [Check("broker rabbit", False, "connection refused")]
    assert client.get(path).json() == {"alive": True}
    control.well = False
    assert (client.get(path).status_code, client.get(path).json()) == (503, {"alive": False})


def test_readiness_names_what_is_missing_only_when_asked(client: httpx.Client, control: FakeControl) -> None:
    assert client.get("/readyz").json() == {"ready": True}
    control.check_list.append(Check("broker amq", False, "connection refused"))
    assert (client.get("/readyz").status_code, client.get("/readyz").json()) == (503, {"ready": False})
    checks = client.get("/readyz?verbose").json()["checks"]
    assert checks[-1] == {"name": "broker amq", "ok": False, "detail": "connection refused"}


def test_metrics_are_served_as_text(client: httpx.Client) -> None:
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'delaybridge_build_info{version="0.1.0"} 1.0' in response.text


def test_status_speaks_the_names_of_the_configuration(client: httpx.Client) -> None:
    status = client.get("/api/v1/status").json()
    assert status["routes"][0] == {
        "name": "main", "paused": False, "connected": True, "received": 5, "from": "rabbit delaybridge.in", "to": "rabbit", "error": "",
    }  # fmt: skip
    assert status["lanes"][0]["held"] == [
        {"address": "slow", "attempts": 2, "error": "no-route", "retry_at": NOW + 1000, "partition": None}
    ]


def test_a_listing_hands_its_filter_on_and_shows_no_bodies(client: httpx.Client, control: FakeControl) -> None:
    asked: dict[str, str | int] = {
        "broker": "rabbit",
        "address": "orders",
        "id_prefix": "te",
        "due_from": str(NOW),
        "due_to": "1h",
        "limit": 1,
        "cursor": "c",
    }
    page = client.get("/api/v1/messages", params=asked).json()
    query = Query(lane="rabbit", address="orders", id_prefix="te", due_from=NOW, due_to=NOW + 3_600_000)
    assert control.asked == [("messages", query, 1, "c")]
    assert page["cursor"] == "more"
    assert page["items"] == [
        {
            "id": "a", "occurrence": 1, "due": NOW + 60_000, "kind": "period", "dialect": "delaybridge", "route": "main",
            "source": {"broker": "rabbit", "address": "delaybridge.in"}, "destination": {"broker": "rabbit", "address": "orders"},
            "state": "waiting", "attempts": 0, "error": "", "size": control.waiting["a"].record.message.size,
        }
    ]  # fmt: skip
    assert "secret" not in json.dumps(page)


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "due_from=yesterday", "due_to=5", f"due_to={10**30}", "cursor=garbage", "colour=blue"]
)
def test_a_bad_filter_is_refused_with_the_reason(client: httpx.Client, query: str) -> None:
    error = error_of(client.get(f"/api/v1/messages?{query}"), 400)
    assert error["code"] == "bad_request"
    assert error["message"]


def test_one_message_is_shown_with_all_but_its_body(client: httpx.Client, control: FakeControl) -> None:
    shown = client.get("/api/v1/messages/a").json()
    assert shown["headers"] == {"colour": "blue", "weight": 3, "raw": {"base64": "/wA="}}
    assert shown["properties"] == {"content_type": "text/plain", "priority": 4}
    assert shown["recurrence"] == {"start": NOW, "delay": 60_000, "period": 60_000, "repeat": 9, "cron": "", "zone": "UTC"}
    assert shown["next"] == [NOW + 60_000 * n for n in range(1, 6)]
    assert shown["waits_for"] == "route main is paused"
    assert "body" not in shown
    control.waiting["b"] = pending("b", properties=Properties(type=b"\xff"))
    assert client.get("/api/v1/messages/b").json()["properties"] == {"type": "\ufffd"}


@pytest.mark.parametrize("path", ["tenant/7/b", "tenant%2F7%2Fb"])
def test_an_id_may_hold_slashes(client: httpx.Client, control: FakeControl, path: str) -> None:
    assert client.get(f"/api/v1/messages/{path}").json()["id"] == "tenant/7/b"
    client.post(f"/api/v1/messages/{path}/cancel")
    assert control.asked[-1] == ("cancel", "tenant/7/b")


def test_an_id_may_end_like_a_verb(client: httpx.Client, control: FakeControl) -> None:
    client.post("/api/v1/messages/x/cancel/release")
    assert control.asked[0] == ("release", "x/cancel")


def test_a_message_that_is_gone_is_told_of(client: httpx.Client, control: FakeControl) -> None:
    control.answer = Answer("too_late", "delivered", NOW)
    error = error_of(client.get("/api/v1/messages/gone"), 404)
    assert (error["code"], error["event"], error["at"]) == ("too_late", "delivered", NOW)
    assert error["message"].startswith("Not pending any more: delivered at 20")
    control.answer = Answer("unknown")
    assert error_of(client.get("/api/v1/messages/gone"), 404)["code"] == "unknown"


@pytest.mark.parametrize(("verb", "body"), [("cancel", None), ("release", None), ("reschedule", {"due": "90s"})])
@pytest.mark.parametrize(
    ("answer", "status"),
    [(Answer("too_late", "delivered", NOW), 409), (Answer("too_late"), 409), (Answer("in_flight"), 409), (Answer("unknown"), 404)],
)
def test_every_answer_is_definite(client: httpx.Client, control: FakeControl, verb: str, body: object, answer: Answer, status: int) -> None:
    control.answer = answer
    response = client.post(f"/api/v1/messages/a/{verb}", json=body)
    assert error_of(response, status)["code"] == answer.outcome
    assert ("retry-after" in response.headers) == (answer.outcome == "in_flight")


def test_what_was_asked_for_is_done(client: httpx.Client, control: FakeControl) -> None:
    assert client.post("/api/v1/messages/a/cancel").json() == {"outcome": "done", "event": "cancelled", "at": NOW}
    assert control.asked == [("cancel", "a")]


@pytest.mark.parametrize(("verb", "body"), [("release", None), ("reschedule", {"due": "0s"})])
def test_what_was_moved_is_done_and_says_what_it_waits_for(client: httpx.Client, control: FakeControl, verb: str, body: object) -> None:
    control.answer = Answer("done")

    assert client.post(f"/api/v1/messages/a/{verb}", json=body).json() == {
        "outcome": "done", "event": None, "at": None, "waits_for": "route main is paused"
    }  # fmt: skip
    assert client.post(f"/api/v1/messages/delivered-by-now/{verb}", json=body).json()["waits_for"] == ""


def test_what_changes_something_is_logged_by_its_caller_and_its_id(client: httpx.Client, control: FakeControl) -> None:
    with capture_logs() as lines:
        client.get("/api/v1/messages/a")
        client.post("/api/v1/messages/a/cancel")
        control.answer = Answer("unknown")
        client.post("/api/v1/messages/b/cancel")
    assert lines == [{"event": "api_call", "log_level": "info", "call": "cancel_message", "client": "127.0.0.1", "id": "a"}]


@pytest.mark.parametrize(
    ("due", "meant"),
    [(NOW + 5, NOW + 5), (str(NOW + 5), NOW + 5), ("2025-06-15T15:06:41Z", NOW + 1000), ("90s", NOW + 90_000), ("PT1M", NOW + 60_000)],
)
def test_a_new_due_time_is_an_instant_or_a_duration_from_now(client: httpx.Client, control: FakeControl, due: object, meant: int) -> None:
    assert client.post("/api/v1/messages/a/reschedule", json={"due": due}).status_code == 200
    assert control.asked[0] == ("reschedule", "a", meant)


@pytest.mark.parametrize(
    "body", ["", "{", "[]", "{}", '{"due": null}', '{"due": "soon"}', '{"due": 5}', '{"due": 1e400}', '{"due": "1s", "x": 1}']
)
def test_a_due_time_that_cannot_be_read_moves_nothing(client: httpx.Client, control: FakeControl, body: str) -> None:
    assert error_of(client.post("/api/v1/messages/a/reschedule", content=body), 400)["code"] == "bad_request"
    assert control.asked == []


def test_a_message_is_sent_as_it_is_described(client: httpx.Client, control: FakeControl) -> None:
    asked = {
        "route": "main", "body_base64": base64.b64encode(b"\x00\xff").decode(), "address": "orders",
        "headers": {"x-delay": 500, "text": "ü", "flag": True, "half": 0.5, "none": None, "raw": {"base64": "AP8="}},
        "properties": {"content_type": "text/plain", "priority": 4, "type": "t" * 255},
    }  # fmt: skip
    assert client.post("/api/v1/messages", json=asked).status_code == 202
    headers: dict[str, fields.Value] = {"x-delay": 500, "text": "ü", "flag": True, "half": 0.5, "none": None, "raw": b"\x00\xff"}
    properties = Properties(content_type=b"text/plain", priority=4, type=b"t" * 255)
    assert control.sent == [("main", message(b"\x00\xff", headers, properties), "orders")]


def test_a_message_beyond_the_limit_is_too_large(client: httpx.Client, control: FakeControl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "MESSAGE_LIMIT", 3)
    assert client.post("/api/v1/messages", json={"body": "abc"}).status_code == 202
    assert error_of(client.post("/api/v1/messages", json={"body": "abcd"}), 413)["code"] == "too_large"
    assert len(control.sent) == 1


def test_a_message_needs_nothing_but_braces(client: httpx.Client, control: FakeControl) -> None:
    assert client.post("/api/v1/messages", content="{}").status_code == 202
    assert control.sent == [(None, Message(b""), "")]


@pytest.mark.parametrize(
    "body",
    [
        {"body": "a", "body_base64": "YQ=="}, {"body": 5}, {"body_base64": "%"}, {"headers": {"n" * 256: 1}}, {"headers": {"n": 2**63}},
        {"headers": {"n": [1]}}, {"properties": {"colour": "blue"}}, {"properties": {"priority": 256}}, {"properties": {"type": "ü" * 128}},
        {"properties": {"timestamp": 2**63}}, {"properties": {"timestamp_ms": 2**64}}, {"properties": {"partition": 2**63}},
    ],
)  # fmt: skip
def test_a_message_that_cannot_be_made_is_refused(client: httpx.Client, control: FakeControl, body: object) -> None:
    assert error_of(client.post("/api/v1/messages", json=body), 400)["message"]
    assert control.sent == []


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (NotConnected("no broker at 127.0.0.1:1"), 503, "not_connected"),
        (BackOff(Reason.REFUSED_BY_BROKER, "memory"), 503, "refused_by_broker"),
        (Rejected(Reason.UNROUTABLE, "no such exchange"), 422, "unroutable"),
        (NotKnownError("no route is called 'x'"), 404, "unknown"),
        (NotPossibleError("name a route: a, b"), 409, "not_possible"),
        (StoreFull("0 bytes left"), 503, "store_full"),
        (StoreClosed("the store is closed"), 503, "stopping"),
        (StoreError("corrupt"), 503, "store_failed"),
        (ZeroDivisionError("oops"), 500, "internal"),
    ],
)
def test_every_failure_has_its_code_and_the_one_shape(
    client: httpx.Client, control: FakeControl, failure: Exception, status: int, code: str
) -> None:
    control.failure = failure
    error = error_of(client.post("/api/v1/messages", json={}), status)
    assert error["code"] == code
    assert "oops" not in error["message"]


def test_dead_letters_are_listed_retried_and_dropped_by_number(client: httpx.Client, control: FakeControl) -> None:
    (letter,) = client.get("/api/v1/dead-letters?limit=5&after=3").json()["items"]
    assert (letter["number"], letter["reason"], letter["detail"], letter["id"]) == (7, "no_destination", "there is no queue", "bad")
    assert client.post("/api/v1/dead-letters/7/retry").status_code == 200
    assert client.delete("/api/v1/dead-letters/7").status_code == 200
    assert control.asked == [("dead_letters", 5, 3), ("retry", 7), ("drop", 7)]
    assert error_of(client.post("/api/v1/dead-letters/8/retry"), 404)["code"] == "unknown"
    assert error_of(client.delete("/api/v1/dead-letters/8"), 404)["code"] == "unknown"
    assert error_of(client.delete(f"/api/v1/dead-letters/{10**30}"), 404)["code"] == "unknown"


def test_a_number_of_more_digits_than_python_reads_is_no_mistake_of_the_bridge(client: httpx.Client, control: FakeControl) -> None:
    assert error_of(client.delete(f"/api/v1/dead-letters/{'9' * 5000}"), 404)["code"] == "not_found"
    assert error_of(client.post(f"/api/v1/dead-letters/{'9' * 5000}/retry"), 404)["code"] == "not_found"
    assert control.asked == []


def test_routes_are_paused_and_resumed_by_name(client: httpx.Client, control: FakeControl) -> None:
    assert client.post("/api/v1/routes/main/pause").status_code == client.post("/api/v1/routes/main/resume").status_code == 200
    assert control.asked == [("pause", "main"), ("resume", "main")]
    for other in ("other", "main%2Fother"):
        assert error_of(client.post(f"/api/v1/routes/{other}/pause"), 404)["code"] == "unknown"


def test_observing_what_is_not_there_is_an_error_not_an_empty_stream(client: httpx.Client) -> None:
    assert error_of(client.get("/api/v1/observe?broker=nowhere&address=x"), 404)["code"] == "unknown"
    assert error_of(client.get("/api/v1/observe?broker=rabbit"), 400)["code"] == "bad_request"


def _as_numbers(schema: pa.Schema, first: int) -> pa.Schema:
    instant = pa.timestamp("ms", "UTC")
    return pa.schema([field.with_type(pa.int64()) if field.type == instant else field for field in list(schema)[first:]])


@pytest.mark.parametrize("rows", [0, 3, 10_000])
def test_the_backlog_is_exported_whole(client: httpx.Client, control: FakeControl, rows: int) -> None:
    control.backlog = rows
    table = pa.ipc.open_stream(client.get("/api/v1/export").content).read_all()
    assert table.column_names[:10] == ["id", "occurrence", "due", "kind", "dialect", "route", "lane", "address", "size", "state"]
    assert (
        table.slice(0, 1).select(table.column_names[10:]).cast(_as_numbers(table.schema, 10)).to_pylist()
        == [
            {"ends": None, "misfire": "fire", "tie": 0, "moved_from": None}
            | {"start": NOW, "delay": 60_000, "period": 60_000, "repeat": 9, "cron": "", "zone": "UTC"}
            | {"missed": False, "resumes": None, "bridge": "b1", "exported": NOW}
        ][:rows]
    )
    assert table.schema.field("due").type == pa.timestamp("ms", "UTC")
    assert table.column("id").to_pylist() == [f"m{n}" for n in range(rows)]
    assert table.column("due").cast(pa.int64()).to_pylist() == [NOW + n for n in range(rows)]


def test_a_store_that_fails_fails_the_export(client: httpx.Client, control: FakeControl) -> None:
    control.failure = StoreError("corrupt")
    assert error_of(client.get("/api/v1/export"), 503)["code"] == "store_failed"


def test_unknown_paths_and_methods_have_the_one_error_shape(client: httpx.Client) -> None:
    assert error_of(client.get("/api/v1/nothing"), 404)["code"] == "not_found"
    assert "/api/v1/openapi.json" in error_of(client.get("/"), 404)["message"]
    assert error_of(client.post("/api/v1/status"), 405)["code"] == "method_not_allowed"


def test_a_method_that_is_not_allowed_is_told_all_that_are(client: httpx.Client) -> None:
    allowed = client.put("/api/v1/messages").headers["allow"]
    assert set(allowed.split(", ")) == {"GET", "HEAD", "POST"}


def test_headers_of_every_wire_type_are_shown() -> None:
    """A timestamp, a decimal and a nested table show as the bytes they are; nothing of a readable table is left out."""
    table = b"\x01tT" + bytes(8) + b"\x01dD" + bytes(5) + fields.entry("s", "x") + b"\x01\xffV"
    assert list(convert.header_values(table)) == ["t", "d", "s", "b'\\xff'"]


def test_a_message_that_would_be_dead_lettered_is_refused_with_the_reason_and_what_to_do(
    client: httpx.Client, control: FakeControl
) -> None:
    control.failure = WouldBeRefusedError("bad_duration", "x-delay: 'soon'")

    error = error_of(client.post("/api/v1/messages", json={"body": "a", "headers": {"x-delay": "soon"}}), 422)

    assert error["code"] == "bad_duration"
    assert "would be dead-lettered: bad_duration: x-delay: 'soon'. Send milliseconds" in error["message"]
    assert control.asked == [("send", False)]


class Slow(FakeControl):
    """One that answers no cancel until it is `over`."""

    def reset(self) -> None:
        super().reset()
        self.asked_for, self.over = threading.Event(), threading.Event()

    def cancel(self, id: str) -> Answer:  # noqa: A002 - the field's own word
        self.asked_for.set()
        self.over.wait()
        return super().cancel(id)


def test_a_request_that_the_stop_cuts_off_is_told_so() -> None:
    control = Slow()
    server = HttpServer(control, Metrics("0.1.0"), Http(port=0), lambda: NOW)
    server.start()
    with ThreadPoolExecutor() as pool, httpx.Client(base_url=server.url, trust_env=False) as client:
        answered = pool.submit(client.post, "/api/v1/messages/a/cancel")
        assert control.asked_for.wait(5)
        server.stop(2)
        control.over.set()
        answer = answered.result()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "stopping")
