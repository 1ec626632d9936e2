"""What the doctor leaves behind where ActiveMQ refuses it."""

from __future__ import annotations

import pytest

from delaybridge.adapters.activemq import probe
from delaybridge.adapters.activemq.frames import ERROR, Frame
from delaybridge.adapters.activemq.transport import Times
from delaybridge.adapters.base import AdapterError


class Refusing:
    """A connection over which nothing is allowed."""

    mark = "mark"
    open = 0

    def __init__(self, *_: object) -> None: ...

    def start(self) -> None:
        Refusing.open += 1

    def ask(self, *_: object) -> Frame:
        return Frame(ERROR, {b"message": b"not authorized"}, b"", False)

    def close(self) -> None:
        Refusing.open -= 1


def test_a_probe_that_may_not_subscribe_leaves_no_connection_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "Link", Refusing)
    with pytest.raises(AdapterError, match="not authorized"):
        probe.Prober(list, Times(1, 0, 1)).probe("/queue/in")
    assert Refusing.open == 0
