"""kafka-python's network client: how it is opened, whether any broker answers, and its errors in the words of `adapters.base`."""

from __future__ import annotations

import contextlib
import math
import socket
import ssl
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka import errors
from kafka.net import manager as net_manager
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket
from kafka.net.transport import KafkaSSLTransport

from ...core.reasons import Reason
from ..base import AdapterError, BackOff, NotConnected, Rejected
from . import nodes
from .decoders import make_singly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

make_singly()

UNROUTABLE = (errors.UnknownTopicOrPartitionError, errors.UnknownTopicIdError, errors.InvalidTopicError)
TOO_LARGE = (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)
_NOT_ALLOWED = (errors.AuthorizationError, errors.ThrottlingQuotaExceededError)
_BAD_RECORD = (
    errors.InvalidRecordError, errors.CorruptRecordError, errors.PolicyViolationError,
    errors.UnsupportedForMessageFormatError, errors.UnsupportedCompressionTypeError, errors.InvalidRequestError,
)  # fmt: skip
NOT_WRITTEN = (
    *UNROUTABLE, *TOO_LARGE, *_NOT_ALLOWED, *_BAD_RECORD, errors.NotLeaderForPartitionError, errors.NotEnoughReplicasError,
    errors.LeaderNotAvailableError, errors.ReplicaNotAvailableError, errors.FencedLeaderEpochError, errors.UnknownLeaderEpochError,
    errors.ConcurrentTransactionsError, errors.OperationNotAttemptedError, errors.InvalidTimestampError,
)  # fmt: skip
"""What a broker answers where it has certainly not taken a batch."""
_OF_PARTITION = (
    errors.NotLeaderForPartitionError, errors.NotEnoughReplicasError, errors.LeaderNotAvailableError, errors.ReplicaNotAvailableError,
    errors.FencedLeaderEpochError, errors.UnknownLeaderEpochError,
)  # fmt: skip
"""Those of them that say nothing of the topic's other partitions."""
_SILENCE = (errors.KafkaConnectionError, errors.KafkaTimeoutError, errors.RequestTimedOutError)
"""Failures of a connection that say no more than that nobody answered, or not in time."""
_SAYS = {
    errors.InvalidSessionTimeoutError: "`session_timeout` must lie between the cluster's group.min.session.timeout.ms and group.max.session.timeout.ms",
}
"""What people are told of errors that kafka-python knows by their name only."""
_CONNECTING = 4.0
"""Seconds in which an address takes a connection, with two more tries of the operating system. One of a node that has died takes none."""
_SHAKING = 10.0
"""Seconds for a TLS handshake: so long kafka-python waits for all that comes after it, too."""
_READ = 1 << 18


class _Wide(socket.socket):
    """Reads much at once: kafka-python asks for 4 KiB each time, and gives Python's global lock away as often.

    Where its client closes while a connection is being made, kafka-python forgets the socket; then it closes itself.
    """

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        """Short: a selector that is asked for what it does not have writes this into its KeyError, twice for each request of kafka-python."""
        return f"<socket {self.fileno()}>"

    def recv(self, size: int, flags: int = 0) -> bytes:
        """At least `size` bytes are asked for."""
        return super().recv(max(size, _READ), flags)


class _Socket(KafkaNetSocket):  # type: ignore[misc]  # kafka-python has no types
    """A plain socket, closed where it does not connect: kafka-python leaves that to the garbage collector, once a second while a broker is away."""

    SCHEMES = ("delaybridge",)

    def socket(self, *kind: int) -> socket.socket:
        """One that reads much at once."""
        return _Wide(*kind)

    async def sock_connect(self, net: Any, sock: Any, where: Any, timeout_at: float | None = None) -> Any:
        """See KafkaNetSocket. kafka-python would wait for one address until all time is over, and try no other one."""
        try:
            return await super().sock_connect(net, sock, where, timeout_at=min(timeout_at or math.inf, time.monotonic() + _CONNECTING))
        except errors.KafkaTimeoutError as error:
            sock.close()
            raise errors.KafkaConnectionError("Connection timed out") from error
        except Exception:
            sock.close()
            raise


class _Tls(KafkaSSLTransport):  # type: ignore[misc]  # as above
    """Where a broker that hangs takes the connection and says nothing, kafka-python waits for the handshake without end, and with it whoever connects."""

    async def handshake(self) -> None:
        """Raises when it has lasted for _SHAKING seconds; the socket is closed wherever it fails."""
        until = time.monotonic() + _SHAKING
        try:
            while True:
                try:
                    self._sock.do_handshake()
                except ssl.SSLWantReadError:
                    await self._net.wait_read(self._sock, until)
                except ssl.SSLWantWriteError:
                    await self._net.wait_write(self._sock, until)
                else:
                    return
        except Exception:
            self._sock.close()
            raise


net_manager.KafkaSSLTransport = _Tls


TIDY = {"proxy_url": f"{_Socket.SCHEMES[0]}://"}
"""What makes a client of kafka-python use these sockets."""


def _answers_first(transport: Any) -> Callable[[], tuple[bytes, Exception | None]]:
    """Give what came before the end of a connection, and tell the end with the next read: the socket says it again.

    kafka-python throws away an answer that it reads together with the end, as where a broker refuses a password and closes. What comes while another thread
    closes the connection is for nobody any more: kafka-python's task would die of it.
    """
    receive: Callable[[], tuple[bytes, Exception | None]] = transport._sock_recv  # noqa: SLF001 - as below

    def received() -> tuple[bytes, Exception | None]:
        data, ended = receive()
        if transport._sock is None:  # noqa: SLF001 - as kafka-python marks one that is closed
            return b"", ended or errors.KafkaConnectionError("closed")
        return data, None if data else ended

    return received


class Client(KafkaNetClient):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's network client, but where it cannot connect it says so in the way that kafka-python's sender expects.

    `unreachable` has the brokers, by id, to which the last connection failed, and why.
    """

    def __init__(self, **configs: Any) -> None:
        self.unreachable: dict[Any, Exception] = {}
        super().__init__(**configs)

    def await_ready(self, node_id: Any, timeout_ms: float = 30000) -> bool:
        """See KafkaNetClient. False where that raises: the sender drops its request then, and a transaction stands still or lacks its offsets."""
        try:
            return bool(super().await_ready(node_id, timeout_ms))
        except (errors.RetriableError, errors.UnknownBrokerIdError):
            return False


class Caught:
    """Makes kafka-python's network client, and remembers it: where a constructor of kafka-python fails, it leaves that client's threads and sockets behind.

    It also remembers why a connection failed, which kafka-python only logs: "unable to bootstrap" does not say that a password is wrong. `lost` is called for
    each connection that ended, on the client's thread. `renewed` gives settings for each connection that is made, and for each login: a client connects to a
    broker while it is connected to others, or is asked to log in anew, and a password or certificate that it was made with may have been replaced by then.
    """

    def __init__(self, lost: Callable[[], None] | None = None, renewed: Callable[[], dict[str, Any]] = dict) -> None:
        self._lost = lost
        self._renewed = renewed
        self._watched: weakref.WeakSet[Any] = weakref.WeakSet()
        self._clients: list[KafkaNetClient] = []
        self._reason: Exception | None = None

    def __call__(self, **configs: Any) -> KafkaNetClient:
        """What kafka-python calls."""
        client = Client(**configs | TIDY)
        client.cluster.config["allow_auto_create_topics"] = False  # kafka-python 3.0.12 does not pass it on: a typo would make a topic
        nodes.choose(client._manager, client.unreachable)  # noqa: SLF001 - as KafkaProducer does
        self._watch(client._manager, client.unreachable)  # noqa: SLF001 - as above
        self._clients.append(client)
        return client

    def _watch(self, manager: Any, unreachable: dict[Any, Exception]) -> None:
        connection_of, transport_of, lost = manager.get_connection, manager._build_transport, self._lost  # noqa: SLF001 - nothing public makes one

        def watched(*args: Any, **kwargs: Any) -> Any:
            connection = connection_of(*args, **kwargs)
            if connection not in self._watched:
                self._watched.add(connection)
                self._renew(manager, connection)
                connection._sasl_authenticate = self._logging_in(manager, connection)  # noqa: SLF001 - the one place, for the first login and those that follow
                connection.init_future.add_errback(self._note)
                connection.init_future.add_errback(partial(unreachable.__setitem__, connection.node_id))
                connection.init_future.add_callback(lambda _: unreachable.pop(connection.node_id, None))
                if lost is not None:
                    connection.close_future.add_both(lambda _: lost())
            return connection

        async def built(*args: Any, **kwargs: Any) -> Any:
            transport = await transport_of(*args, **kwargs)
            transport._sock_recv = _answers_first(transport)  # noqa: SLF001 - the one place that reads, with TLS and without
            return transport

        manager.get_connection = watched
        manager._build_transport = built  # noqa: SLF001 - as above

    def _logging_in(self, manager: Any, connection: Any) -> Any:
        """How it logs in: where the broker asks for that again (`connections.max.reauth.ms`), with the password that is in the file by then."""
        log_in = connection._sasl_authenticate  # noqa: SLF001 - as above

        async def renewed(*args: Any, **kwargs: Any) -> None:
            if not connection.initializing:
                self._renew(manager, connection)
            await log_in(*args, **kwargs)

        return renewed

    def _renew(self, manager: Any, connection: Any) -> None:
        """Before a connection is made, or logs in again. Where a file cannot be read at this moment, the settings from before are tried."""
        with contextlib.suppress(OSError, UnicodeError):
            settings = self._renewed()
            manager.config |= settings  # those of TLS are taken from there
            connection.config |= settings

    def _note(self, error: Exception) -> None:
        telling = isinstance(self._reason, _SILENCE) and not isinstance(error, _SILENCE)
        if self._reason is None or telling:  # the first: a refused client tries again, and its last try is cut off or times out
            self._reason = error

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Any error as NotConnected, with the reason; what was made is closed then."""
        try:
            with translated():
                yield
        except NotConnected as error:
            self.close()
            if isinstance(error.__cause__, _SILENCE) and self._reason is not None:
                raise NotConnected(f"{error}: {not_connected(self._reason)}") from self._reason
            raise

    def close(self) -> None:
        """Close what was made. Idempotent."""
        while self._clients:
            self._clients.pop().close()


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Errors of files, sockets and kafka-python as NotConnected."""
    try:
        yield
    except AdapterError:
        raise
    except Exception as error:
        raise not_connected(error) from error


def not_connected(error: BaseException) -> NotConnected:
    """Any error as NotConnected, in words; one that is, as it is."""
    if isinstance(error, NotConnected):
        return error
    text = _words(error)
    return NotConnected(f"{text}: {_SAYS[type(error)]}" if type(error) in _SAYS else text)


def _words(error: BaseException) -> str:
    """What people are told. Where a broker says no more than the error's number, kafka-python writes `None` behind its name."""
    text, name = str(error).removesuffix(": None"), type(error).__name__
    return text if name in text else f"{name}: {text}" if text else name


def refusal(error: BaseException, partitions: int = 0) -> AdapterError:
    """What the error for a batch means, whose topic has so many partitions. If it is not known as a refusal, the batch may have been taken: NotConnected."""
    if isinstance(error, AdapterError):
        return error
    text = _words(error)
    if isinstance(error, UNROUTABLE):
        return BackOff(Reason.UNROUTABLE, text)
    if isinstance(error, TOO_LARGE):
        return Rejected(Reason.TOO_LARGE, text)
    if isinstance(error, _BAD_RECORD):
        return Rejected(Reason.REJECTED_BY_BROKER, text)
    if isinstance(error, NOT_WRITTEN):
        return BackOff(Reason.REFUSED_BY_BROKER, text, partitions if isinstance(error, _OF_PARTITION) else 0)
    return not_connected(error)


class Patience:
    """For how long something may be amiss without a break. One thread."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._last = time.monotonic()

    def over(self, well: bool) -> bool:
        """Whether it has been amiss for longer than that, as far as was looked; `well` says how it is now."""
        now = time.monotonic()
        if well:
            self._last = now
        return now - self._last > self.seconds


class Pulse:
    """Whether any broker answers. A broker that restarts is waited for; kafka-python connects again by itself."""

    def __init__(self, client: Any, patience: float) -> None:
        self._connections = client._manager._conns  # noqa: SLF001 - nothing public says whether a connection is there
        self._patience = Patience(patience)

    def check(self) -> None:
        """Raises NotConnected where nobody has answered for as long as the patience."""
        if self._patience.over(any(connection.connected for connection in list(self._connections.values()))):
            raise NotConnected(f"no broker has answered for {self._patience.seconds:g} s")
