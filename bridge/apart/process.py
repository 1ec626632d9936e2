"""A client's process as the bridge sees it: started, spoken with, ended."""

from __future__ import annotations

import contextlib
import pickle
import socket
import struct
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from ...adapters.base import LoginRefused, NotConnected
from . import frames
from .frames import Kind, frame

if TYPE_CHECKING:
    from .frames import Setup

BUFFER = 1 << 20
"""Bytes between the two, for each direction, where the system allows so many: a batch or two."""

PATIENCE = 10
"""Seconds beyond the time that something may take: a process that reads nothing, says nothing, or leaves off in the middle, for so long is given up."""

BROKEN = 1
"""The exit code of a process whose client failed otherwise than by a lost connection."""


class Process:
    """One of them. `name` shows in the list of processes. One thread sends, one reads. Raises NotConnected where there can be none."""

    def __init__(self, setup: Setup, name: str) -> None:
        try:
            self._start(name)
        except OSError as error:
            raise NotConnected(f"no process could be started for the client: {error.strerror}") from error
        try:
            self.send(pickle.dumps(setup))
        except BaseException:
            self.end()
            raise

    def _start(self, name: str) -> None:
        with contextlib.ExitStack() as unless_started:
            ours, theirs = socket.socketpair()
            unless_started.callback(ours.close)
            with theirs:
                for end in (ours, theirs):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
                for limit in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
                    ours.setsockopt(socket.SOL_SOCKET, limit, struct.pack("ll", PATIENCE, 0))
                # -P: what lies in the working directory is not ours.
                command = [sys.executable, "-P", "-m", f"{__package__}.child", str(theirs.fileno()), name]
                self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)  # noqa: S603 - our own module
            unless_started.pop_all()
        self._pipe = Connection(ours.detach())

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def send(self, data: bytes) -> None:
        """One frame. Blocks while the process is behind. Raises NotConnected: then it is of no use any more."""
        try:
            self._pipe.send_bytes(data)
        except OSError as error:
            raise self._gone(error) from error

    def read(self, within: float | None = None) -> tuple[int, memoryview]:
        """The next frame, its kind and its content; `within` so many seconds, else the process is given up.

        Raises NotConnected where the process has ended, or says nothing, and RuntimeError where it failed on its own.
        """
        try:
            if not self._pipe.poll(within):
                self._process.kill()
            data = memoryview(self._pipe.recv_bytes())
        except (EOFError, OSError) as error:
            raise self._gone(error) from error
        return data[0], data[1:]

    def _gone(self, error: Exception) -> Exception:
        if isinstance(error, BlockingIOError):
            self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        code = self._process.returncode
        if code == BROKEN:
            return RuntimeError("the process of a client failed: see `client_failed` in the log")
        return NotConnected(f"the client's process ended with {code}")

    def connect(self) -> None:
        """Have its client connect; blocks for as long as that may take. Raises NotConnected, and RuntimeError as `read`."""
        self.send(frame(Kind.CONNECT))
        kind, content = self.read()
        if kind != Kind.CONNECTED:
            raise (LoginRefused if kind == Kind.REFUSED else NotConnected)(frames.text(content))

    def close(self) -> bool:
        """Have its client close, and ignore what it says until it has. A process that takes long for it is given up. Whether it says that it has parted."""
        deadline = time.monotonic() + PATIENCE
        with contextlib.suppress(NotConnected, RuntimeError):
            self.send(frame(Kind.CLOSE))
            while (said := self.read(max(0.0, deadline - time.monotonic())))[0] != Kind.CLOSED:
                pass
            return frames.parted(said[1])
        return False

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def end(self) -> None:
        """End it, once nobody reads any more: it does so when it reads our end."""
        self._pipe.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Place:
    """Keeps the process of one client. It is started when it is needed, and lives as long as the client does, through all its connections, unless it dies."""

    def __init__(self, setup: Setup, name: str) -> None:
        self._setup = setup
        self._name = name
        self._process: Process | None = None

    def taken(self) -> Process:
        """The process; a new one where none runs. Raises NotConnected where there can be none."""
        if self._process is not None and not self._process.alive:
            self.leave()
        if self._process is None:
            self._process = Process(self._setup, self._name)
        return self._process

    def leave(self) -> None:
        """End the process, if there is one; nobody reads any more."""
        process, self._process = self._process, None
        if process is not None:
            process.end()
