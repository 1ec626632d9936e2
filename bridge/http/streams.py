"""Answers that last: observed deliveries line by line, and the whole backlog as an Arrow stream.

One worker thread makes the body and waits for the client to take each piece, so neither ever holds more than one piece in memory.
"""

from __future__ import annotations

import io
import threading
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
import structlog
from anyio import CapacityLimiter, WouldBlock, from_thread, to_thread
from starlette.requests import Request
from starlette.responses import Response

from ...adapters.base import AdapterError
from ...core.recurrence import missed, resumed
from ...core.schedule import Recurrence
from ..ledger import parquet
from .convert import delivery
from .errors import problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import Receive, Scope, Send

    from ...adapters.clock import Clock
    from ...core.downtimes import Downtimes
    from ...core.store import Pending
    from ..views import ControlPort
    from .shapes import Destination

    Emit = Callable[[bytes], None]

log = structlog.get_logger()

NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
STREAMS = 8
"""Lasting answers at once. Each occupies a thread."""
_ROWS = 4096

_COLUMNS = (
    ("id", "string", False),
    ("occurrence", "int64", False),
    ("due", "timestamp_ms", False),
    ("kind", "string", False),
    ("dialect", "string", False),
    ("route", "string", False),
    ("lane", "string", False),
    ("address", "string", False),
    ("size", "int64", False),
    ("state", "string", False),
    ("ends", "timestamp_ms", True),
    ("misfire", "string", False),
    ("tie", "int64", False),
    ("moved_from", "timestamp_ms", True),
    ("start", "timestamp_ms", True),
    ("delay", "int64", True),
    ("period", "int64", True),
    ("repeat", "int64", True),
    ("cron", "string", True),
    ("zone", "string", True),
    ("missed", "bool", False),
    ("resumes", "timestamp_ms", True),
    ("bridge", "string", False),
    ("exported", "timestamp_ms", False),
)
"""Name, type and nullability. From `ends` on: the fields of `core.schedule`, those of the recurrence null where there is none; whether it fell due
while the bridge was down, and when what follows it goes on then (`core.recurrence.resumed`); and of which bridge this is, and when the export began."""

_NO_RECURRENCE = (None,) * len(Recurrence.__struct_fields__)


class _GoneError(Exception):
    """The client went away, or the daemon stops."""


class Pumped(Response):
    """A response whose body `pump` makes in a thread of its own, by calling `emit`; the head goes out with the first call, even an empty one.

    What `pump` raises before that becomes an ordinary error answer. `emit` raises once nobody listens any more, so an empty piece tests
    for that. When the daemon stops, an `endless` body ends well; any other breaks off, and the client sees that it is incomplete.
    """

    def __init__(self, pump: Callable[[Emit], None], media_type: str, streams: Streams, *, endless: bool) -> None:
        super().__init__(media_type=media_type)
        del self.headers["content-length"]
        self._pump = pump
        self._streams = streams
        self._endless = endless

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request (ASGI)."""
        if scope["method"] == "HEAD":  # nobody gets the body, and an endless one would keep its place
            await super().__call__(scope, receive, send)
            return
        request = Request(scope, receive)
        started = False

        async def take(piece: bytes, more: bool) -> None:
            nonlocal started
            if more and (self._streams.stopping.is_set() or await request.is_disconnected()):
                raise _GoneError
            if not started:
                started = True
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if piece or not more:
                await send({"type": "http.response.body", "body": piece, "more_body": more})

        def emit(piece: bytes) -> None:
            from_thread.run(take, piece, True)

        try:
            with self._streams.place(self):
                await to_thread.run_sync(self._pump, emit, limiter=CapacityLimiter(1))
        except Exception as error:  # noqa: BLE001 - see `_breaks_off`
            if self._breaks_off(error, started=started):
                return
        await take(b"", False)

    def _breaks_off(self, error: Exception, *, started: bool) -> bool:
        """Whether the client is to see that the body is not whole. Raises what is no end of the client or of the daemon."""
        if isinstance(error, _GoneError):
            return not self._endless
        if started and self._streams.stopping.is_set():  # the store was closed under it
            return True
        if started and isinstance(error, AdapterError):
            log.warning("stream_broken_off", error=str(error), action="the client sees that its answer is not whole, and may ask again")
            return True
        raise error


class Streams:
    """What lasting answers share: the flag that ends them, and the bound on their number."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._places = CapacityLimiter(STREAMS)

    @contextmanager
    def place(self, holder: object) -> Iterator[None]:
        """A place among them, from the first moment on. Raises Problem where none is left."""
        try:
            self._places.acquire_on_behalf_of_nowait(holder)
        except WouldBlock:
            raise problem(429, "busy", f"{STREAMS} streams are open already; close one.") from None
        try:
            yield
        finally:
            self._places.release_on_behalf_of(holder)


def deliveries(control: ControlPort, asked: Destination, clock: Clock, emit: Emit, *, take: bool) -> None:
    """One JSON object for each message that arrives, until the client goes away or the daemon stops. `take`: see `ControlPort.observe`."""
    encoder = msgspec.json.Encoder()
    with control.observe(asked.broker, asked.address, take=take) as batches:
        emit(b"")
        for batch in batches:
            at = clock()
            emit(encoder.encode_lines([delivery(received, asked.address, at) for received in batch]))


def backlog(control: ControlPort, emit: Emit) -> None:
    """Every pending record as one row, in Arrow's IPC stream format."""
    import pyarrow as pa  # noqa: PLC0415 - 200 ms that a start need not pay

    schema = parquet.schema(_COLUMNS)
    status = control.status()
    same = (status.bridge, status.now)
    rest = iter(control.pending())
    piece = io.BytesIO()
    with pa.ipc.new_stream(piece, schema) as writer:
        while rows := [(*_row(pending, control.downtimes), *same) for pending in islice(rest, _ROWS)]:
            writer.write_batch(pa.record_batch(list(zip(*rows, strict=True)), schema=schema))
            _hand_over(piece, emit)
    _hand_over(piece, emit)


def _row(pending: Pending, down: Downtimes) -> tuple[object, ...]:
    record = pending.record
    schedule = record.schedule
    return (
        *(record.id, schedule.occurrence, schedule.due, record.kind, record.dialect, record.route, record.lane, record.address),
        *(record.message.size, pending.state, schedule.ends, schedule.misfire, schedule.tie, schedule.moved_from),
        *(_NO_RECURRENCE if schedule.recurrence is None else msgspec.structs.astuple(schedule.recurrence)),
        *(missed(schedule, down), resumed(schedule, down)),
    )


def _hand_over(piece: io.BytesIO, emit: Emit) -> None:
    emit(piece.getvalue())
    piece.seek(0)
    piece.truncate()
