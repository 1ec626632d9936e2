"""One connection to RabbitMQ on a thread of its own, and the one place where pika's errors become ours.

pika is not thread-safe: everything that touches a connection or a channel runs on the link's thread, and `Link.post` is the only way in.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import structlog
from pika.adapters.select_connection import IOLoop
from pika.adapters.utils.connection_workflow import (
    AMQPConnectionWorkflow,
    AMQPConnectionWorkflowFailed,
    AMQPConnectorException,
    AMQPConnectorPhaseErrorBase,
)
from pika.exceptions import (
    AMQPConnectionError,
    AMQPError,
    ChannelClosed,
    ChannelError,
    ConnectionBlockedTimeout,
    ConnectionClosed,
    ConnectionClosedByClient,
    IncompatibleProtocolError,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
    ReentrancyError,
    StreamLostError,
)

from ..base import LoginRefused, NotConnected, telling
from .wire import Event, Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pika.connection import Parameters

# pika writes each failure to the log several times, with tracebacks; we raise it once.
logging.getLogger("pika").setLevel(logging.CRITICAL)

log = structlog.get_logger()

ACCESS_REFUSED, NOT_FOUND, DIFFERS = 403, 404, 406
"""What RabbitMQ replies where a user may not do it, where there is no such queue or exchange, and where one is declared otherwise than it is."""

_GRACE = 1.0  # seconds that pika, which has the same time-out, may be late
FOREIGN = (AMQPError, AMQPConnectorException, ChannelError, ReentrancyError, OSError, UnicodeError)
"""All that pika and the socket raise. Whatever it is, the connection is of no more use: NotConnected.

UnicodeError: for a host that can have no such name.
"""

_SENTENCES: dict[type[BaseException], str] = {
    IncompatibleProtocolError: "it ended the connection before the login: ",  # as where it refuses our certificate, which TLS 1.3 tells with the first answer
    ProbableAuthenticationError: "it ended the connection at the login: ",
    ProbableAccessDeniedError: "it ended the connection at the virtual host: ",
    StreamLostError: "",
}
"""Errors whose argument is all that people want to know: pika puts a line of guesses before it, and shows it as a tuple."""


def not_connected(error: BaseException, broker: str = "RabbitMQ") -> NotConnected:
    """NotConnected for any of `FOREIGN`, with the most telling text that it has."""
    if isinstance(error, NotConnected):
        return error
    while (inner := _inner(error)) is not None:
        error = inner
    if isinstance(error, AMQPConnectionWorkflowFailed):
        return telling([not_connected(each, broker) for each in error.exceptions])
    text = repr(error)
    if isinstance(error, ConnectionClosed | ChannelClosed):
        text = error.reply_text
    elif isinstance(error, ConnectionBlockedTimeout):
        text = "it took no messages for longer than `blocked_connection_timeout`: see `rabbitmq-diagnostics alarms`"
    elif isinstance(error, OSError | UnicodeError):
        text = str(error)
    elif (told := _SENTENCES.get(type(error))) is not None and error.args:
        text = f"{told}{error.args[0]}"
    ours = (LoginRefused if _login_refused(error) else NotConnected)(f"{broker}: {text}")
    ours.__cause__ = error
    return ours


def _login_refused(error: BaseException) -> bool:
    """Rather than a broker that went away in the middle of a login."""
    return isinstance(error, ProbableAuthenticationError) and "ACCESS_REFUSED" in str(error.args[:1])


def _inner(error: BaseException) -> BaseException | None:
    """What pika has wrapped."""
    if isinstance(error, AMQPConnectorPhaseErrorBase):
        return error.exception
    if isinstance(error, AMQPConnectionError) and error.args and isinstance(error.args[0], BaseException):
        return error.args[0]
    return None


class Hosts(AMQPConnectionWorkflow):
    """The way to the first of several URLs that lets us in. pika's own ends where a name cannot be resolved, with no look at the URLs behind it."""

    def _on_getaddrinfo_async_done(self, addrinfos_or_exc: Any) -> None:
        if isinstance(addrinfos_or_exc, BaseException):
            self._connection_errors.append(addrinfos_or_exc)
            self._try_next_config_async()
        else:
            super()._on_getaddrinfo_async_done(addrinfos_or_exc)


def placed(parameters: Sequence[Parameters]) -> str:
    """What a broker that cannot be reached is called in errors: with its hosts and ports."""
    return "RabbitMQ at " + ", ".join(f"{each.host}:{each.port}" for each in parameters)


def _addresses(parameters: Parameters) -> int:
    """How many pika tries, one after the other: a name may stand for several, and the first of them lead nowhere."""
    try:
        return len(socket.getaddrinfo(parameters.host, parameters.port, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError):
        return 1  # pika says what is wrong with it


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise NotConnected for what pika and the socket raise."""
    try:
        yield
    except FOREIGN as error:
        raise not_connected(error) from error


class Session(Protocol):
    """What a link carries. All methods run on the link's thread."""

    def opened(self, link: Link, wire: Wire) -> None:
        """The connection is open; call `link.ready` when the session is as well."""
        ...

    def heard(self, events: list[Event]) -> None:
        """Content arrived: all that one read from the socket brought."""
        ...

    def closing(self, wire: Wire, then: Callable[[], None]) -> None:
        """Say goodbye, then call `then`, which closes the connection."""
        ...

    def lost(self, reason: NotConnected) -> None:
        """The connection is gone, or never came. Called exactly once, and last."""
        ...


class Link:
    """A connection with its thread. `timeout` (seconds) bounds opening and closing."""

    def __init__(self, parameters: Sequence[Parameters], session: Session, timeout: float, name: str) -> None:
        self._parameters = parameters
        self._session = session
        self._timeout = timeout
        self._settled = threading.Event()
        self._reason: NotConnected | None = None
        self._well = self._parted = False
        self._wire: Wire | None = None
        self._loop = IOLoop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Connect; returns when the session is ready. Raises NotConnected, after at most `timeout` seconds for each address of each URL."""
        self._thread.start()
        patience = self._timeout * sum(map(_addresses, self._parameters)) + _GRACE
        if not self._settled.wait(patience):
            self._reason = NotConnected(f"{placed(self._parameters)} did not answer within {patience - _GRACE:g} s")
            self.post(self._abandon)
        if self._reason is not None:
            self._thread.join()
            raise self._reason

    def post(self, call: Callable[[], None]) -> None:
        """Run `call` on the link's thread soon; it is dropped where the connection is gone, and whatever it raises ends the connection."""
        self._loop.add_callback_threadsafe(partial(self._guarded, call))

    def _guarded(self, call: Callable[[], None]) -> None:
        """Run a callback; if it raises, the connection ends. pika itself would leave its loop, with the socket open."""
        try:
            call()
        except Exception as error:
            if not isinstance(error, (*FOREIGN, NotConnected)):
                log.exception("connection_failed", thread=self._thread.name)
            self._reason = self._reason or not_connected(error)
            self._abandon()

    def close(self) -> bool:
        """Say goodbye and disconnect; after `timeout` without an answer the connection is dropped. Idempotent.

        Whether RabbitMQ answered, and nothing had gone wrong before: it has done all that was sent to it then.
        """
        self.post(self._close)
        self._thread.join()
        return self._parted

    def ready(self) -> None:
        """The session can be used from now on."""
        self._settled.set()

    def fail(self, error: BaseException) -> None:
        """Give the connection up, for this reason unless there is one already."""
        self._reason = self._reason or not_connected(error)
        if self._wire is not None and self._wire.is_open:
            self._loop.call_later(self._timeout, self._wire.abort)
            self._wire.close()

    def _run(self) -> None:
        try:
            with translated():
                Wire.create_connection(self._parameters, self._done, custom_ioloop=self._loop, workflow=Hosts())
                self._loop.start()
        except NotConnected as reason:
            self._reason = reason
        finally:
            self._loop.close()
            self._reason = self._reason or NotConnected("the connection was closed")
            self._session.lost(self._reason)
            self._settled.set()

    def _done(self, outcome: Any) -> None:
        if not isinstance(outcome, Wire):
            self._gone(None, not_connected(outcome, placed(self._parameters)))
            return
        self._wire = outcome
        outcome.listener = self._session.heard
        outcome.add_on_close_callback(self._gone)
        self._guarded(partial(self._session.opened, self, outcome))

    def _gone(self, _: Any, reason: BaseException) -> None:
        self._parted = self._well and isinstance(reason, ConnectionClosedByClient)
        self._reason = self._reason or not_connected(reason)
        self._loop.stop()

    def _abandon(self) -> None:
        if self._wire is None:
            self._loop.stop()
        else:
            self._wire.abort()

    def _close(self) -> None:
        wire, self._well = self._wire, self._reason is None
        self._reason = self._reason or NotConnected("the connection was closed")
        if wire is not None and wire.is_open:
            self._loop.call_later(self._timeout, wire.abort)
            self._session.closing(wire, lambda: wire.close() if wire.is_open else None)
