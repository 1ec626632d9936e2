"""A client's process as the bridge sees it: started, spoken with, ended."""

from __future__ import annotations

import contextlib
import pickle
import socket
import struct
import subprocess
import sys
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from ...adapters.base import NotConnected
from . import frames
from .frames import Kind, frame

if TYPE_CHECKING:
    from .frames import Setup

BUFFER = 1 << 20
"""Bytes between the two, for each direction, where the system allows so many: a batch or two."""

PATIENCE = 30
"""Seconds that a process may take nothing, or take to end: then it is given up."""

BROKEN = 1
"""The exit code of Python where it has printed a traceback."""


class Process:
    """One of them. `name` shows in the list of processes. One thread sends, one reads. Raises NotConnected where there can be none."""

    def __init__(self, setup: Setup, name: str) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            for end in (ours, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", PATIENCE, 0))
            # -P: what lies in the working directory is not ours.
            command = [sys.executable, "-P", "-m", f"{__package__}.child", str(theirs.fileno()), name]
            try:
                self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)  # noqa: S603 - our own module
            except OSError as error:
                ours.close()
                raise NotConnected(f"no process could be started for the client: {error.strerror}") from error
        self._pipe = Connection(ours.detach())
        try:
            self.send(pickle.dumps(setup))
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def send(self, data: bytes) -> None:
        """One frame. Blocks while the process is behind. Raises NotConnected: then it is of no use any more."""
        try:
            self._pipe.send_bytes(data)
        except OSError as error:
            if isinstance(error, BlockingIOError):
                self._process.kill()
            raise self._gone() from error

    def read(self) -> tuple[int, memoryview]:
        """The next frame, its kind and its content. Raises NotConnected where the process has ended, and RuntimeError where that was its own fault."""
        try:
            data = memoryview(self._pipe.recv_bytes())
        except (EOFError, OSError) as error:
            raise self._gone() from error
        return data[0], data[1:]

    def connect(self) -> None:
        """Have its client connect; blocks for as long as that may take. Raises NotConnected, and RuntimeError as `read`."""
        self.send(frame(Kind.CONNECT))
        kind, content = self.read()
        if kind != Kind.CONNECTED:
            raise NotConnected(frames.text(content))

    def _gone(self) -> Exception:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        code = self._process.returncode
        if code == BROKEN:
            return RuntimeError("the process of a client failed; its traceback is in the log")
        return NotConnected(
            f"the client's process ended with {code}" if code is not None else f"the client's process took nothing for {PATIENCE} s"
        )

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def end(self) -> None:
        """Wait for its end, which somebody has asked for, or that is overdue."""
        self._pipe.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
