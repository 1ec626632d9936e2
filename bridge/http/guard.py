"""Who may use the API: the tokens, and on loopback the defence against web pages (DNS rebinding, cross-site requests)."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from ..loopback import is_loopback
from .errors import Problem, problem

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Receive, Scope, Send

_READING = ("GET", "HEAD")
_READ_ONLY = "This token only reads: the request needs the one of http.token"


class Guard:
    """Refuses what may not pass, before anything of the request but its head is read.

    token       None: no token is asked for (loopback only)
    read_token  another one, which opens what changes nothing: GET and HEAD
    probes      paths that need no token, unless a query (`?verbose`) asks them for more
    loopback    the server is bound to loopback: then `Host` must say so, or a page of a foreign name could reach it through the browser
    """

    def __init__(self, app: ASGIApp, token: str | None, read_token: str | None, probes: Collection[str], *, loopback: bool) -> None:
        self._app = app
        self._token = None if token is None else token.encode()
        self._read_token = None if read_token is None else read_token.encode()
        self._probes = probes
        self._loopback = loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request (ASGI)."""
        if scope["type"] != "http":
            return
        refusal = self._foreign(Headers(scope=scope)) or self._unauthorized(scope)
        await (refusal.response() if refusal else self._app)(scope, receive, send)

    def _foreign(self, headers: Headers) -> Problem | None:
        host = headers.get("host", "")
        if self._loopback and not _names_loopback(host):
            return problem(403, "forbidden_host", "The bridge is bound to loopback: call it as localhost or 127.0.0.1.")
        # Browsers send no `Origin` with what a page merely shows (`<img src=…>`), and even that could take the few places that there are for streams.
        site = headers.get("sec-fetch-site", "none")
        if site not in ("none", "same-origin") or headers.get("origin") not in (None, f"http://{host}", f"https://{host}"):
            return problem(403, "forbidden_origin", "Pages of another origin may not call the bridge.")
        return None

    def _unauthorized(self, scope: Scope) -> Problem | None:
        if self._token is None or (scope["path"] in self._probes and not scope["query_string"]):
            return None
        scheme, _, given = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        bearer = scheme.lower() == b"bearer"
        if bearer and hmac.compare_digest(given, self._token):
            return None
        if bearer and self._read_token is not None and hmac.compare_digest(given, self._read_token):
            return None if scope["method"] in _READING else problem(403, "read_only", _READ_ONLY)
        return problem(401, "unauthorized", "A bearer token is needed: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})


def _names_loopback(host: str) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
