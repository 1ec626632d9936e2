"""A source in a process of its own."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

from ...adapters.base import Batch, NotConnected
from . import frames
from .frames import Kind, Receive, frame
from .process import PATIENCE, Place, Process

if TYPE_CHECKING:
    from collections.abc import Hashable

    from .frames import Setup

AFFIRMING = 20
"""Seconds that a source's broker may take to affirm a tenure: twice the usual time-out."""


class ApartSource:
    """See base.Source. It is asked for a batch when one is wanted, and never ahead: what a client has given out holds up a rebalance of its group.

    `end` ends its process, once it is closed for good.
    """

    def __init__(self, setup: Setup, name: str) -> None:
        self._place = Place(setup, f"{name} source")
        self._process: Process | None = None
        self._calm = False
        self._given: tuple[Process, int] | None = None
        self.parted = True
        """See base.Parting."""

    def gather(self, *, calm: bool) -> None:
        """See base.Gathering."""
        self._calm = calm

    def connect(self) -> None:
        """See base.Source. The first time, starting a process takes half a second more."""
        self.close()
        self._calm = False
        process = self._place.taken()
        process.connect()
        self._process = process

    def receive(self, limit: int, timeout: float) -> Batch | None:
        """See base.Source."""
        process = self._process
        if process is None:
            raise NotConnected("the source is closed")
        process.send(frame(Kind.RECEIVE, Receive(limit, timeout, self._calm)))
        kind, content = process.read(timeout + PATIENCE)
        if kind == Kind.NOTHING:
            return None
        if kind == Kind.LOST:
            raise NotConnected(frames.text(content))
        number, messages = frames.batch(content)
        self._given = process, number
        return Batch(messages, partial(self._ack, process, number))

    def _ack(self, process: Process, number: int) -> None:
        if process is self._process:
            with contextlib.suppress(NotConnected, RuntimeError):  # the next `receive` says so
                process.send(frame(Kind.ACK, number))

    def tenure(self) -> Hashable:
        """See base.Holding: one for each batch. What the process knows is told when it is asked."""
        if self._process is None or self._given is None:
            raise NotConnected("the source is closed")
        return self._given

    def affirm(self, tenure: Hashable) -> bool:
        """See base.Holding."""
        process = self._process
        if process is None or tenure != self._given:
            return False
        process.send(frame(Kind.AFFIRM))
        kind, content = process.read(AFFIRMING + PATIENCE)
        if kind == Kind.LOST:
            raise NotConnected(frames.text(content))
        return True

    def close(self) -> None:
        """See base.Source."""
        process, self._process, self._given = self._process, None, None
        if process is not None:
            self.parted = process.close()

    def end(self) -> None:
        """Leave no process behind."""
        self.close()
        self._place.leave()
