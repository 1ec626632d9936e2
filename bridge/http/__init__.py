"""The daemon's HTTP side: `create_app` makes the application, `HttpServer` runs it in a thread of its own."""

from __future__ import annotations

import errno
import socket
import threading
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import msgspec
import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route

from ...adapters.clock import wall_clock
from ..loopback import is_loopback
from .connections import Connection
from .endpoints import ENDPOINTS, JSON, Api, Endpoint
from .errors import HANDLERS, asked_badly, problem, stopping
from .guard import Guard
from .openapi import document
from .shapes import CancelRequest, Destination
from .streams import Streams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from ...adapters.clock import Clock
    from ..config import Http
    from ..metrics import Metrics
    from ..views import ControlPort

OPENAPI = "/api/v1/openapi.json"
BODY_SECONDS = 30
"""A request's body must have arrived after so long."""
PROBES = 4
"""Threads reserved for each probe, for metrics and for the status: if all others wait for messages in flight or for a broker, the bridge is still alive.

It must not be restarted, nor look as if it were down just when somebody wants to see what is wrong.
"""

log = structlog.get_logger(__name__)


class _Number(IntegerConvertor):
    """A number in a path. As starlette's own, less what Python refuses to read, digits by the thousand."""

    regex = "[0-9]{1,100}"


register_url_convertor("number", _Number())


def create_app(api: Api, token: str | None, read_token: str | None = None, *, loopback: bool) -> ASGIApp:
    """The application, behind its guard. `loopback`: it is served on loopback only, and `Host` must say so."""
    schema = msgspec.json.encode(document(ENDPOINTS, version("delaybridge")))
    described = Route(OPENAPI, lambda _: Response(schema, media_type=JSON), methods=["GET"])
    paths = dict.fromkeys(endpoint.path for endpoint in ENDPOINTS)
    routes = [_route(path, {each.method: each for each in ENDPOINTS if each.path == path}, api) for path in paths]
    app = Starlette(routes=[described, *routes], exception_handlers=HANDLERS)
    app.router.redirect_slashes = False
    return Guard(app, token, read_token, frozenset(endpoint.path for endpoint in ENDPOINTS if endpoint.probe), loopback=loopback)


def _route(path: str, endpoints: Mapping[str, Endpoint], api: Api) -> Route:
    """All methods of a path, so that the answer to another one names them (RFC 9110, `Allow`)."""
    reserved = any(endpoint.probe or endpoint.reserved for endpoint in endpoints.values())
    threads = anyio.CapacityLimiter(PROBES) if reserved else None

    async def serve(request: Request) -> Response:
        endpoint = endpoints["GET" if request.method == "HEAD" else request.method]
        body = await _body(request, endpoint.body_limit) if endpoint.asks and endpoint.method != "GET" else b""
        try:
            return await anyio.to_thread.run_sync(_answer, endpoint, api, request, body, limiter=threads)
        except anyio.get_cancelled_exc_class():  # as the server does with what is under way when its time to stop is over
            return stopping().response()

    return Route(path, serve, methods=list(endpoints))


def _answer(endpoint: Endpoint, api: Api, request: Request, body: bytes) -> Response:
    """Validate, ask, log what was done (of a stream, what was asked for), encode; runs in a worker thread, for a body may be large and the control may wait."""
    asked: list[Any] = []
    if endpoint.asks is not None:
        with asked_badly():
            asked = [_asked(endpoint, request, body)]
    result = endpoint.handler(api, *asked, **request.path_params)
    if endpoint.method != "GET":
        which = msgspec.structs.asdict(asked[0]) if endpoint.asks in (CancelRequest, Destination) else request.path_params
        log.info("api_call", call=endpoint.handler.__name__, client=request.client and request.client.host, **which)
    return result if isinstance(result, Response) else Response(msgspec.json.encode(result), endpoint.status, media_type=JSON)


def _asked(endpoint: Endpoint, request: Request, body: bytes) -> object:
    assert endpoint.asks is not None
    if endpoint.method == "GET":
        return msgspec.convert(dict(request.query_params), endpoint.asks, strict=False)
    if not body:
        raise ValueError("the body is empty, and must be a JSON object: /api/v1/openapi.json says which")
    return msgspec.json.decode(body, type=endpoint.asks)


async def _body(request: Request, limit: int) -> bytes:
    chunks, size = [], 0
    try:
        with anyio.fail_after(BODY_SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    raise problem(413, "too_large", f"This request takes a body of at most {limit} bytes.", {"Connection": "close"})
                chunks.append(chunk)
    except TimeoutError:
        raise problem(408, "too_slow", f"The body did not arrive within {BODY_SECONDS} s.", {"Connection": "close"}) from None
    except ClientDisconnect:
        raise problem(400, "gone", "The client went away before its request had arrived.") from None  # nobody reads it
    return b"".join(chunks)


class CannotListen(OSError):
    """The address cannot be had; `taken` where another process has it."""

    def __init__(self, settings: Http, reason: OSError) -> None:
        self.taken = reason.errno == errno.EADDRINUSE
        fix = "stop the other process, or set another http.port" if self.taken else "set another http.bind or http.port"
        super().__init__(f"http cannot listen on {settings.bind}:{settings.port}: {reason.strerror}: {fix}")


class HttpServer:
    """Serves the API from a thread of its own.

    settings    `bind`: anything but loopback needs a `token` (ValueError); `port`: 0 takes any free one, `port` tells which after `start`
    """

    def __init__(self, control: ControlPort, metrics: Metrics, settings: Http, clock: Clock = wall_clock) -> None:
        token, read_token = (each.get_secret_value() if each else None for each in (settings.token, settings.read_token))
        loopback = is_loopback(settings.bind)
        if not loopback and not token:
            raise ValueError(f"{settings.bind} is reachable from other machines: a token is needed")
        self._streams = Streams()
        self._settings = settings
        self._app = create_app(Api(control, metrics, clock, self._streams), token, read_token, loopback=loopback)
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._listener: socket.socket | None = None
        self.port = settings.port

    @property
    def url(self) -> str:
        """Where a client on this machine finds the API."""
        return self._settings.model_copy(update={"port": self.port}).url

    def bind(self) -> None:
        """Take the address: clients can connect from here on, and wait. Raises CannotListen."""
        try:
            self._listener = _listener(self._settings.bind, self.port)
        except OSError as error:
            raise CannotListen(self._settings, error) from error
        self.port = self._listener.getsockname()[1]

    def start(self) -> None:
        """Serve, at the address that was bound, or is now; requests are answered, at the latest, when this returns. Raises CannotListen."""
        if self._listener is None:
            self.bind()
        self._server = uvicorn.Server(_uvicorn(self._app))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]}, name="http", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 5) -> None:
        """End streams, let running requests finish for up to `timeout` seconds, close. Idempotent."""
        self._streams.stopping.set()
        if self._server is not None and self._thread is not None:
            self._server.config.timeout_graceful_shutdown = max(1, int(timeout) - 1)
            self._server.should_exit = True
            self._thread.join(timeout)
        elif self._listener is not None:
            self._listener.close()


def _listener(bind: str, port: int) -> socket.socket:
    """A listening socket, so that clients can connect (and wait) before the loop runs."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except UnicodeError as error:  # two dots in a row, say
        raise OSError(errno.EINVAL, "no such name can be") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def _uvicorn(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app, http=Connection, loop="asyncio", ws="none", lifespan="off", interface="asgi3", log_config=None, access_log=False,
        proxy_headers=False, server_header=False,
    )  # fmt: skip
