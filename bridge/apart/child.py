"""The process of one client: `python -m delaybridge.bridge.apart.child DESCRIPTOR NAME`. The name is for whoever looks at a list of processes.

It ignores signals: it ends with the bridge, when the bridge's end of the socket closes.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import msgspec
import structlog

from ...adapters.base import Blockable, Gathering, Holding, LoginRefused, NotConnected, parted
from .. import logs, plugins, tuning
from . import frames
from .frames import Kind, failure, frame
from .process import BROKEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...adapters.base import Batch, Outcome, Outgoing, Sink, Source
    from .frames import Setup

log = structlog.get_logger()

LOOK = 1.0
"""Seconds without a message after which a sink is asked whether its connection is there, and the bridge is told that the process is alive."""

MOMENT = 0.02
"""Seconds for which a source waits in one piece, while something may be acknowledged meanwhile."""


class _Bridge:
    """The bridge's end of the socket, as seen from here. Any thread sends, one reads."""

    def __init__(self, descriptor: int) -> None:
        self._pipe = Connection(descriptor)
        self._lock = threading.Lock()

    def setup(self) -> Setup:
        made: Setup = pickle.loads(self._pipe.recv_bytes())  # noqa: S301 - from the bridge, over a socket that nobody else has
        return made

    def speaks(self, timeout: float) -> bool:
        return self._pipe.poll(timeout)

    def read(self) -> tuple[int, memoryview]:
        """Once the bridge has ended, this process ends too, and leaves everything as it is."""
        try:
            data = memoryview(self._pipe.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)
        return data[0], data[1:]

    def say(self, kind: Kind, content: object = None) -> None:
        data = frame(kind, content)
        try:
            with self._lock:
                self._pipe.send_bytes(data)
        except OSError:
            os._exit(0)


class _Publishing:
    """A sink, and whether it is connected."""

    def __init__(self, bridge: _Bridge, sink: Sink) -> None:
        self._bridge = bridge
        self._sink = sink
        self._blockable = sink if isinstance(sink, Blockable) else None
        self._connected = False
        self._blocked = ""
        self._beaten = time.monotonic()

    def serve(self) -> None:
        """For as long as the bridge lives."""
        while True:
            self._tell_blocked()
            self._beat()
            if self._connected and not self._bridge.speaks(LOOK):
                self._publish([])
                continue
            kind, content = self._bridge.read()
            if kind == Kind.CONNECT:
                self._connect()
            elif kind == Kind.CLOSE:
                self._connected = False
                self._tell_blocked()  # before the end: what comes behind that answers the next question
                self._sink.close()
                self._bridge.say(Kind.CLOSED)
            else:
                self._publish(frames.outgoing(content))

    def _beat(self) -> None:
        now = time.monotonic()
        if self._connected and now - self._beaten >= LOOK:
            self._beaten = now
            self._bridge.say(Kind.NOTHING)

    def _tell_blocked(self) -> None:
        why = self._blockable.blocked if self._connected and self._blockable is not None else ""
        if why != self._blocked:
            self._blocked = why
            self._bridge.say(Kind.BLOCKED, why)

    def _connect(self) -> None:
        try:
            self._sink.connect(self._confirm)
        except NotConnected as error:
            self._bridge.say(Kind.REFUSED if isinstance(error, LoginRefused) else Kind.LOST, str(error))
        else:
            self._connected = True
            self._bridge.say(Kind.CONNECTED)

    def _publish(self, messages: Sequence[Outgoing]) -> None:
        try:
            self._sink.publish(messages)
        except NotConnected as error:
            self._connected = False
            self._confirm([(outgoing.tag, error) for outgoing in messages])
            self._bridge.say(Kind.LOST, str(error))

    def _confirm(self, outcomes: Sequence[Outcome]) -> None:
        confirmed = [tag for tag, error in outcomes if error is None]
        failed = [failure(tag, error) for tag, error in outcomes if error is not None]
        if confirmed:
            self._bridge.say(Kind.CONFIRMED, confirmed)
        if failed:
            self._bridge.say(Kind.FAILED, failed)


class _Reading:
    """A source, and what of it is not acknowledged. Numbers of batches are never used again: an acknowledgement may come after its connection has gone."""

    def __init__(self, bridge: _Bridge, source: Source) -> None:
        self._bridge = bridge
        self._source = source
        self._gathering = source if isinstance(source, Gathering) else None
        self._open: dict[int, Batch] = {}
        self._number = 0
        self._said: tuple[int, memoryview] | None = None

    def serve(self) -> None:
        """For as long as the bridge lives."""
        while True:
            kind, content = self._said or self._bridge.read()
            self._said = None
            try:
                self._do(kind, content)
            except NotConnected as error:
                self._open.clear()
                self._bridge.say(Kind.REFUSED if kind == Kind.CONNECT and isinstance(error, LoginRefused) else Kind.LOST, str(error))

    def _do(self, kind: int, content: memoryview) -> None:
        if kind == Kind.CONNECT:
            self._source.connect()
            self._bridge.say(Kind.CONNECTED)
        elif kind == Kind.CLOSE:
            self._source.close()
            self._open.clear()
            self._bridge.say(Kind.CLOSED, parted(self._source))
        elif kind == Kind.ACK:
            self._ack(content)
        elif kind == Kind.AFFIRM:
            self._affirm()
        else:
            self._receive(frames.receive(content))

    def _ack(self, content: memoryview) -> None:
        batch = self._open.pop(msgspec.msgpack.decode(content), None)
        if batch is not None:
            batch.ack()

    def _affirm(self) -> None:
        """What was given last is held still, whatever has come or gone beside it. A source that cannot tell is believed."""
        holding = self._source
        while isinstance(holding, Holding) and not holding.affirm(holding.tenure()):
            pass
        self._bridge.say(Kind.AFFIRMED)

    def _receive(self, wanted: frames.Receive) -> None:
        if self._gathering is not None:
            self._gathering.gather(calm=wanted.calm)
        deadline = time.monotonic() + wanted.timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            batch = self._source.receive(wanted.limit, min(left, MOMENT) if self._open else left)
            if batch is not None:
                self._number += 1
                self._open[self._number] = batch
                self._bridge.say(Kind.BATCH, (self._number, batch.messages))
                return
            self._listen()
            if not left or self._said is not None:
                self._bridge.say(Kind.NOTHING)
                return

    def _listen(self) -> None:
        """Take what the bridge says meanwhile: acknowledgements are made at once, anything else ends the wait."""
        while self._said is None and self._bridge.speaks(0):
            kind, content = self._bridge.read()
            if kind == Kind.ACK:
                self._ack(content)
            else:
                self._said = kind, content


def main() -> None:
    """Run the client that the bridge names, until the bridge ends, or the client fails: then nothing else may keep this process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    tuning.for_imports()
    bridge = _Bridge(int(sys.argv[1]))
    setup = bridge.setup()
    logs.configure(setup.logs, setup.secrets)
    try:
        adapter = plugins.adapter(setup.kind)
        tuning.for_messages()
        if setup.endpoint is None:
            _Publishing(bridge, adapter.sink(setup.options)).serve()
        else:
            _Reading(bridge, adapter.source(setup.options, setup.endpoint)).serve()
    except BaseException:
        log.exception("client_failed", client=sys.argv[2])
        sys.stderr.flush()
        os._exit(BROKEN)


if __name__ == "__main__":
    main()
