"""The command line's view of a running daemon: its HTTP API, as plain data."""

from __future__ import annotations

import ssl
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

from ..text import without_login

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PAGE = 1000
_CANCELLED_AT_ONCE = 100
_READ, _WORK = 10, 30
"""Seconds that an answer may take: of what only looks, and of what waits for a broker."""
_NOT_DONE = ("too_late", "in_flight", "unknown")
_JSON, _LINES, _ARROW = "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"
"""What a daemon answers with, by the name that it gives it."""


class UnreachableError(Exception):
    """No daemon answers there."""


class ApiError(Exception):
    """The daemon answered, and refused. `code` is its stable word for why, `event` what became of a message that is gone, where that is known."""

    def __init__(self, status: int, code: str, text: str, event: str | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.event = event


class Client:
    """One daemon. Every method may raise UnreachableError and ApiError; what they return is the API's JSON."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url = without_login(url)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # No proxy and no .netrc: the daemon is beside us, and the token is for nobody else. httpx's own authorities lack those of a company.
        with self._reachable():
            self._http = httpx.Client(base_url=url, headers=headers, trust_env=False, verify=ssl.create_default_context())

    def status(self) -> dict[str, Any]:
        """The whole daemon at one glance."""
        return self._object("GET", "/status", "routes")

    def messages(self, limit: int, **query: str | int | None) -> Iterator[dict[str, Any]]:
        """At most `limit` pending messages that match the filter, page by page."""
        wanted = {name: value for name, value in query.items() if value is not None}
        cursor: str | None = ""
        while limit > 0 and cursor is not None:
            page = self._object("GET", "/messages", "items", params={**wanted, "limit": min(limit, _PAGE), "cursor": cursor})
            yield from page["items"]
            limit -= len(page["items"])
            cursor = page["cursor"] or None

    def message(self, id_: str) -> dict[str, Any]:
        """Everything about one pending message but its body."""
        return self._object("GET", f"/messages/{_segment(id_)}", "id")

    def ask(self, verb: str, id_: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Cancel, reschedule or release: `outcome` is done, too_late (`event` happened `at` epoch ms), in_flight or unknown."""
        response = self._request("POST", f"/messages/{_segment(id_)}/{verb}", json=body)
        error = _error(response)
        if error.get("code") in _NOT_DONE:
            return {"outcome": error["code"], "event": error.get("event"), "at": error.get("at")}
        return self._answer(response, "outcome")

    def cancel(self, ids: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Cancel several, some with each request. For each its `id` and what `ask` returns, in their order; or `outcome` refused, with `code` and `message`."""
        rest = iter(ids)
        while some := list(islice(rest, _CANCELLED_AT_ONCE)):
            for answer in self._object("POST", "/cancellations", "answers", json={"ids": some})["answers"]:
                told = ("code", "message") if answer["outcome"] == "refused" else ("event", "at")
                yield {name: answer[name] for name in ("id", "outcome", *told)}

    def send(self, message: dict[str, Any]) -> dict[str, Any]:
        """Publish to a route's source, as a producer would."""
        return self._object("POST", "/messages", "outcome", json=message)

    def dead_letters(self, limit: int) -> Iterator[dict[str, Any]]:
        """At most `limit` messages from the shelf, oldest first."""
        after = 0
        while limit > 0:
            items = self._object("GET", "/dead-letters", "items", params={"limit": min(limit, _PAGE), "after": after})["items"]
            yield from items
            if not items:
                return
            limit -= len(items)
            after = items[-1]["number"]

    def dead_letter(self, id_: str) -> dict[str, Any] | None:
        """The last dead letter with this id, among the oldest on the shelf: a look at all of them may take long."""
        return next((letter for letter in reversed(list(self.dead_letters(_PAGE))) if letter["id"] == id_), None)

    def retry_dead_letter(self, number: int) -> None:
        """Schedule a shelved message again: due now, or as its headers say if it was refused on arrival."""
        self._object("POST", f"/dead-letters/{number}/retry", "outcome")

    def drop_dead_letter(self, number: int) -> None:
        """Forget a shelved message."""
        self._object("DELETE", f"/dead-letters/{number}", "outcome")

    def turn(self, route: str, verb: str) -> None:
        """Pause or resume a route."""
        self._object("POST", f"/routes/{_segment(route)}/{verb}", "outcome")

    @contextmanager
    def observe(self, broker: str, address: str) -> Iterator[Iterator[str]]:
        """Deliveries at a destination as lines of JSON, for as long as the context is open."""
        with self._stream("/observe", _LINES, {"broker": broker, "address": address}) as response, self._reachable():
            yield _lines(response.iter_bytes())

    @contextmanager
    def export(self) -> Iterator[Iterator[bytes]]:
        """All pending messages as an Arrow IPC stream, in pieces."""
        with self._stream("/export", _ARROW, {}, read=_WORK) as response, self._reachable():
            yield response.iter_bytes()

    @contextmanager
    def _stream(self, path: str, media: str, params: dict[str, str], read: float | None = None) -> Iterator[httpx.Response]:
        """A response that lasts. `read`: seconds from one piece to the next, at most; None for one that may be silent for as long as it likes."""
        timeout = httpx.Timeout(5, read=read)
        with self._reachable(), self._http.stream("GET", f"/api/v1{path}", params=params, timeout=timeout) as response:
            self._raise_for(response, media)
            yield response

    def _object(self, method: str, path: str, holds: str, **arguments: Any) -> dict[str, Any]:
        return self._answer(self._request(method, path, **arguments), holds)

    def _answer(self, response: httpx.Response, holds: str) -> dict[str, Any]:
        """What a daemon answers holds this; what something else answers does not."""
        self._raise_for(response)
        found = _json(response)
        if holds not in found:
            raise ApiError(response.status_code, "", self._stranger(response))
        return found

    def _stranger(self, response: httpx.Response) -> str:
        return f"{self._url} answered {response.status_code}: is it a delaybridge?"

    def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        with self._reachable():
            return self._http.request(
                method, f"/api/v1{path}", timeout=httpx.Timeout(5, read=_READ if method == "GET" else _WORK), **arguments
            )

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            yield
        except (httpx.TransportError, httpx.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise UnreachableError(
                f"no daemon answers at {self._url} ({reason}); start it with `delaybridge run`, or name it with --url"
            ) from error

    def _raise_for(self, response: httpx.Response, media: str = _JSON) -> None:
        """Raise for anything but a daemon's success: its refusal, or another server's answer, which may be a redirection or a page."""
        if response.is_success and response.headers.get("content-type", "").partition(";")[0] == media:
            return
        error = {}
        if response.is_error:
            response.read()
            error = _error(response)
        which = "its token" if response.status_code == httpx.codes.UNAUTHORIZED else "that one" if error.get("code") == "read_only" else ""
        hint = f"; give {which} in DELAYBRIDGE_TOKEN or --token-file" if which else ""
        text = error.get("message") or self._stranger(response)
        raise ApiError(response.status_code, error.get("code", ""), text + hint, error.get("event"))


def _segment(name: str) -> str:
    """A name as one part of a path, so that the daemon reads it as it is. `.` and `..` would be taken for steps in the path, by httpx first."""
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")


def _lines(pieces: Iterator[bytes]) -> Iterator[str]:
    r"""The lines of NDJSON. They end with "\n" and nothing else: text in JSON may hold whatever else Unicode takes for a line's end."""
    line: list[bytes] = []
    for piece in pieces:
        rest, *others = piece.split(b"\n")
        line.append(rest)
        for rest in others:
            yield b"".join(line).decode()
            line = [rest]


def _error(response: httpx.Response) -> dict[str, Any]:
    found = _json(response).get("error")
    return found if isinstance(found, dict) else {}


def _json(response: httpx.Response) -> dict[str, Any]:
    try:
        found = response.json() if response.content else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
