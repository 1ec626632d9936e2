"""How much an ActiveMQ source takes at a time while nothing is in a hurry."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from delaybridge.adapters.activemq import source as module
from delaybridge.adapters.activemq.frames import MESSAGE, Frame
from delaybridge.adapters.activemq.incoming import Rules
from delaybridge.adapters.activemq.source import ActiveSource
from delaybridge.adapters.activemq.transport import Times
from delaybridge.adapters.base import Gathering, NotConnected

PREFETCH = 20


def frames(count: int) -> list[Frame]:
    return [Frame(MESSAGE, {b"ack": b"1", b"destination": b"/queue/a"}, b"", sized=True)] * count


class Receiving:
    """A source to which something has come, and to which more comes, or the end of its connection, while it pauses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, here: int, meanwhile: int = 0, lost: NotConnected | None = None) -> None:
        self.paused: list[float] = []
        self._meanwhile, self._lost = meanwhile, lost
        monkeypatch.setattr(module, "time", SimpleNamespace(sleep=self._pause))
        self._session = module._Subscriber([], Times(1, 0, 1), "test", PREFETCH)
        monkeypatch.setattr(self._session.link, "mind_the_heartbeats", lambda: None)
        self.transport = SimpleNamespace(unsure=False, write=self._write)
        monkeypatch.setattr(self._session.link, "_transport", self.transport, raising=False)
        self.written = b""
        self._session.heard(frames(here))
        self.source = ActiveSource(list, "/queue/a", prefetch=PREFETCH, times=Times(1, 0, 1), rules=Rules())
        self.source._session = self._session

    def _pause(self, seconds: float) -> None:
        self.paused.append(seconds)
        self._session.heard(frames(self._meanwhile))
        if self._lost is not None:
            self._session.lost(self._lost)

    def _write(self, data: bytes) -> None:
        self.written += data
        self._session.heard(frames(1))  # the answer shows that it had come

    def received(self, limit: int = 500) -> int:
        batch = self.source.receive(limit, 0)
        return len(batch.messages) if batch else 0


def calm(*args: Any) -> Receiving:
    receiving = Receiving(*args)
    receiving.source.gather(calm=True)
    return receiving


def test_a_calm_source_takes_what_comes_within_moments_together(monkeypatch: pytest.MonkeyPatch) -> None:
    receiving = calm(monkeypatch, 1, 7)
    assert receiving.received() == 8
    assert receiving.paused == [0.03]


def test_at_first_and_where_anything_may_be_in_a_hurry_it_takes_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    receiving = Receiving(monkeypatch, 1, 7)
    assert receiving.received() == 1
    receiving.source.gather(calm=True)
    receiving.source.gather(calm=False)
    receiving._session.heard(frames(1))
    assert receiving.received() == 1
    assert receiving.paused == []


@pytest.mark.parametrize(("here", "limit"), [(PREFETCH, 500), (5, 5)])
def test_a_flood_is_taken_as_fast_as_it_comes(monkeypatch: pytest.MonkeyPatch, here: int, limit: int) -> None:
    """No more can come than `prefetch`, and no more is wanted than the limit."""
    receiving = calm(monkeypatch, here)
    assert receiving.received(limit) == here
    assert receiving.paused == []


def test_what_comes_to_a_quiet_queue_is_not_waited_for_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    receiving = calm(monkeypatch, 0)
    assert receiving.received() == 0
    assert receiving.paused == []


def test_what_had_come_before_the_connection_was_lost_comes_again_and_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    receiving = calm(monkeypatch, 1, 0, NotConnected("it is gone"))
    with pytest.raises(NotConnected, match="it is gone"):
        receiving.received()


def test_after_a_connection_was_lost_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    receiving = calm(monkeypatch, 1)
    receiving._session.lost(NotConnected("it is gone"))
    with pytest.raises(NotConnected, match="it is gone"):
        receiving.received()
    assert receiving.paused == []


def test_a_source_that_is_not_connected_can_be_told_too() -> None:
    ActiveSource(list, "/queue/a", prefetch=PREFETCH, times=Times(1, 0, 1), rules=Rules()).gather(calm=True)


def test_the_bridge_sees_that_it_can_gather() -> None:
    assert isinstance(ActiveSource(list, "/queue/a", prefetch=PREFETCH, times=Times(1, 0, 1), rules=Rules()), Gathering)


def test_a_source_that_may_have_a_text_whose_end_only_the_next_frame_shows_asks_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    receiving = Receiving(monkeypatch, 0)
    assert (receiving.received(), receiving.written) == (0, b"")
    receiving.transport.unsure = True
    assert receiving.received() == 1
    begin, abort = receiving.written.rstrip(b"\0").split(b"\0")
    assert begin.startswith(b"BEGIN\n")
    assert b"\nreceipt:" in begin
    assert abort.startswith(b"ABORT\n")


def test_a_source_to_which_something_has_come_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    receiving = Receiving(monkeypatch, 1)
    receiving.transport.unsure = True
    assert (receiving.received(), receiving.written) == (1, b"")
