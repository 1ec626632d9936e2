"""What a level source on ActiveMQ holds in memory, while the broker gives it the same messages again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from delaybridge.adapters.activemq import level_source
from delaybridge.adapters.activemq.frames import Frame
from delaybridge.adapters.activemq.level_source import LOOK, SMALL, LevelSource
from delaybridge.adapters.activemq.transport import Times
from delaybridge.adapters.levelled import SINCE, Level

if TYPE_CHECKING:
    from collections.abc import Sequence

HOUR = 3_600_000


class Clock:
    """In place of the module `time`, and the wall clock; waiting moves it."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def wall(self) -> int:
        return int(self.now * 1000)


class Queue:
    """In place of the connection: a queue that gives each window its head, less what others have, and takes back what they had."""

    mark = "mark"
    artemis = False

    def __init__(self, clock: Clock, *leaves: int) -> None:
        self.link = self
        self.messages = dict(enumerate(leaves))
        self.windows: dict[bytes, list[int]] = {}
        self._clock = clock
        self._arrived: list[Frame] = []
        self.connections = 0

    def start(self) -> None:
        self.connections += 1

    def close(self, *_: bytes) -> None:
        self.windows.clear()

    def ask_for(self, window: bytes, _destination: str, _ack: bytes, size: int) -> None:
        held = {number for numbers in self.windows.values() for number in numbers}
        self.windows[window] = [number for number in self.messages if number not in held][:size]
        for number in self.windows[window]:
            headers = {b"subscription": window, b"ack": b"%d" % number, SINCE: b"%d" % (self.messages[number] - HOUR)}
            self._arrived.append(Frame(b"MESSAGE", headers, b"%d" % number, sized=True))

    def write(self, data: bytes) -> None:
        if data.startswith(b"ACK"):
            del self.messages[int(data[data.index(b"id:") + 3 : data.index(b"\n\n")])]
            return
        assert data.startswith(b"UNSUBSCRIBE\nid:")
        del self.windows[data[len(b"UNSUBSCRIBE\nid:") : data.index(b"\n\n")]]

    def arrived(self) -> Sequence[Frame]:
        arrived, self._arrived = self._arrived, []
        return arrived

    def wait(self, seconds: float) -> None:
        self._clock.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(level_source, "time", made)
    monkeypatch.setattr(level_source, "wall_clock", made.wall)
    return made


def reading(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> LevelSource:
    def opened(*_: Any) -> Queue:
        return queue

    monkeypatch.setattr(level_source, "_Session", opened)
    source = LevelSource(list, "/queue/level", Level("level", HOUR), prefetch=200, times=Times(1, 0, 1))
    source.connect()
    return source


def test_beside_a_message_that_is_not_finished_no_more_is_held_in_an_hour_than_in_a_moment(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.wall()
    source = reading(queue := Queue(clock, now, *[now + HOUR] * 500), monkeypatch)
    stuck = source.receive(10, 1)
    assert stuck is not None
    assert len(stuck.messages) == 1

    for _ in range(300):
        assert source.receive(10, LOOK) is None

    assert len(queue.windows) == 2
    assert len(source._staying) <= 2 * SMALL
    assert source.first_leaves == now + HOUR


def test_a_connection_over_which_much_was_given_back_is_left_for_a_new_one_once_nothing_of_it_is_under_way(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ActiveMQ has that in memory until the connection ends: 300 MB a day, of small messages, for each level where more wait than a window shows."""
    monkeypatch.setattr(level_source, "KEPT", 10 * SMALL * level_source._ENTRY)
    now = clock.wall()
    source = reading(queue := Queue(clock, now + 1_000, *[now + HOUR] * 500), monkeypatch)
    under_way = source.receive(10, 2)
    assert under_way is not None
    for _ in range(30):
        assert source.receive(10, LOOK) is None
    assert queue.connections == 1

    under_way.ack()
    for _ in range(30):
        assert source.receive(10, LOOK) is None
    assert 2 <= queue.connections <= 4
    assert source.receive(10, 0) is None
    assert source.first_leaves == now + HOUR


def test_only_what_the_broker_gives_again_is_told_as_such(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else of two copies of an occurrence, of which a killed bridge left one, none would ever be taken for the other."""
    queue = Queue(clock, int(clock.now * 1000))
    source = reading(queue, monkeypatch)
    again = Frame(b"MESSAGE", queue._arrived[0].headers | {b"redelivered": b"true"}, b"again", sized=True)
    queue._arrived.append(again)

    batch = source.receive(10, 1)

    assert batch is not None
    assert [(one.message.body, one.redelivered) for one in batch.messages] == [(b"0", False), (b"again", True)]


def test_what_was_put_here_while_the_clock_was_ahead_keeps_nothing_waiting_once_it_is_set_back(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what is here already nor what comes then: it would fill the window for as long as the clock was ahead."""
    right = clock.wall()
    clock.now += 3_600
    ahead = clock.wall()
    source = reading(queue := Queue(clock, *[ahead + HOUR] * (SMALL + 5)), monkeypatch)
    assert source.receive(10, 0) is None

    clock.now -= 3_600
    batch = source.receive(2 * SMALL, 0)

    assert batch is not None
    assert len(batch.messages) == SMALL
    assert source.first_leaves is None
    queue.messages = {SMALL: ahead + HOUR, SMALL + 1: right + HOUR}
    queue.windows.clear()
    source.connect()
    again = source.receive(2 * SMALL, 0)
    assert again is not None
    assert [one.message.body for one in again.messages] == [b"%d" % SMALL]
    assert source.first_leaves == right + HOUR
