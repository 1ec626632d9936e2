"""Closes connections on which no request comes, or no answer is read: clients and checks that hang, and scanners.

The number of connections is limited, so these would keep the probes out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

CONNECTIONS = 64
"""Connections at once. On more, requests are answered 503; those that were there before are served."""

HEAD_SECONDS = 10
"""A request's head must have arrived after so long, the first one as well as all others: uvicorn waits for it for ever once a byte of it came."""

READ_SECONDS = 30
"""The client must have read some of the answer after so long."""


class Connection(H11Protocol):
    """Uvicorn's connection, with limits for clients that ask nothing, or do not read the answer."""

    _waiting: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        """Wait for a first request. Every unread byte counts, not only those beyond some buffer's size, also when the connection is closing."""
        transport.set_write_buffer_limits(high=0)
        super().connection_made(transport)
        # For this one alone: uvicorn's own limit refuses also those that were there.
        self.limit_concurrency = 0 if len(self.connections) > CONNECTIONS else None
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Some of a request, of its body, or of the next one."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait()
        else:
            self._wait_no_more()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave nothing behind."""
        self._wait_no_more()
        self._is_read()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read as fast as it is answered."""
        super().pause_writing()
        if self._unread is None:
            self._look_again()

    def resume_writing(self) -> None:
        """It has read all of it."""
        self._is_read()
        super().resume_writing()

    def _look_again(self) -> None:
        self._unread = self.loop.call_later(READ_SECONDS, self._look, self.transport.get_write_buffer_size())

    def _look(self, before: int) -> None:
        """Drop the connection if the client has read nothing since there were `before` bytes to read."""
        if self.transport.get_write_buffer_size() < before:
            self._look_again()
        else:
            self.transport.abort()

    def _is_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _wait(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _wait_no_more(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
