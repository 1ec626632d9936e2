"""One level: what of it is acknowledged and when, and what one message that is stuck does to the others."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

import pytest

from delaybridge.adapters.base import Batch, NotConnected, Received
from delaybridge.adapters.levelled import EARLY, Level
from delaybridge.adapters.memory import Memory, MemoryAdapter, MemoryBroker, adapter, broker
from delaybridge.bridge.level_queues.envelope import Envelope, pack
from delaybridge.bridge.level_queues.passage import AT_ONCE, MOMENT, PATIENCE, PINNED, WINDOW, Passage
from delaybridge.core.message import Message
from delaybridge.core.schedule import Schedule
from delaybridge.core.store import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delaybridge.bridge.level_queues.passage import Finish, Taken

LEVEL = Level("level", 0)
STUCK = b"stuck"


class Elsewhere:
    """Where everything lands at once but what is stuck. See passage.Onward."""

    def __init__(self) -> None:
        self.landed = 0
        self.left: list[tuple[bytes | None, int]] = []
        self.stuck: list[Finish] = []
        self.looked_for: list[Taken] = []
        self.given_again = 0

    def leave(self, envelope: Envelope, taken: Taken, now: int, done: Finish) -> None:
        del taken
        self.left.append((envelope.record.message.body, now))
        if envelope.record.message.body == STUCK:
            self.stuck.append(done)
        else:
            self.landed += 1
            done()

    def aside(self, message: Message, taken: Taken, done: Finish) -> None:
        raise NotImplementedError("each message here was put into the level by a bridge")

    def empty(self, taken: Taken) -> int:
        del taken
        return self.given_again

    def moved(self, taken: Taken) -> None:
        self.looked_for.append(taken)

    def lost(self, taken: Taken) -> None:
        pass


def message(body: bytes, since: int = 0) -> Message:
    return pack(Envelope(Record(message=Message(body), schedule=Schedule(due=0), lane="it", address="there"), since))


class Source:
    """Gives the batches that it is told to, `again` or not, and notes what is acknowledged: a tuple of places, or None for the whole."""

    def __init__(self) -> None:
        self.batches: list[list[Message]] = []
        self.acks: list[tuple[int, ...] | None] = []
        self.waits: list[float] = []
        self.gone = self.again = False
        self.elsewhere: set[int] = set()

    def connect(self) -> None:
        pass

    def receive(self, limit: int, timeout: float) -> Batch | None:
        if self.gone:
            raise NotConnected("the broker went away")
        self.waits.append(timeout)
        if not limit:
            return None
        if not self.batches:
            return None
        received = [Received(each, "", each.body or b"", self.again) for each in self.batches.pop(0)]
        return Batch(received, lambda: self.acks.append(None), self._ack_some, self.elsewhere.__contains__)

    def _ack_some(self, places: Sequence[int]) -> None:
        self.acks.append(tuple(places))

    def close(self) -> None:
        pass


class Bench:
    """A passage, its source, and a clock that stands still."""

    def __init__(self, source: Source | None = None, *, wait: int = 0, timed: bool = True) -> None:
        self.now = 0
        self.onward = Elsewhere()
        self.source = source or Source()
        self.passage = Passage(Level("level", wait), self.source, self.onward, lambda: self.now, timed=timed)
        self.passage.connect()

    def gets(self, *bodies: bytes, since: int = 0) -> None:
        """A batch comes, and leaves."""
        self.source.batches.append([message(body, since) for body in bodies])
        self.steps()

    def steps(self, count: int = 3) -> None:
        for _ in range(count):
            self.passage.step(0)


class Traffic:
    """A passage from a queue of the in-process broker: batches of AT_ONCE, one message of each of which is stuck."""

    def __init__(self) -> None:
        self.now = 0
        self.onward = Elsewhere()
        self.broker: MemoryBroker
        options = Memory(name=secrets.token_hex(8))
        self.broker = broker(options.name)
        self._options = options
        self.passage = Passage(LEVEL, MemoryAdapter().level_source(options, LEVEL), self.onward, lambda: self.now, timed=True)
        self.passage.connect()

    def send(self, batches: int, stuck: int = 1) -> None:
        for number in range(batches * AT_ONCE):
            self.broker.put(LEVEL.name, message(STUCK if number % AT_ONCE < stuck else b"other"), self._options)

    @property
    def waiting(self) -> int:
        return len(self.broker.queue(LEVEL.name))

    def flows(self) -> bool:
        """Until all is taken; whether the level takes more."""
        while self.passage.step(0):
            if not self.waiting:
                return self.passage.step(0)
        return False


@pytest.mark.parametrize("batches", [21, 50])
def test_a_message_that_is_stuck_in_each_batch_pins_only_itself(batches: int) -> None:
    traffic = Traffic()
    traffic.send(batches)

    assert traffic.flows(), "the level goes on"
    assert traffic.onward.landed == batches * (AT_ONCE - 1)

    traffic.now += MOMENT
    traffic.passage.step(0)
    traffic.passage._source.close()  # as a killed process does
    again = adapter.level_source(traffic._options, LEVEL)
    again.connect()
    left = again.receive(batches * AT_ONCE, 0)
    assert left is not None
    assert len(left.messages) == batches, "what is stuck comes again, and nothing else"


def test_a_level_takes_no_more_when_its_window_is_full_of_what_is_stuck_and_goes_on_when_that_is_not() -> None:
    traffic = Traffic()
    traffic.send(WINDOW // AT_ONCE, stuck=AT_ONCE)
    traffic.send(1)
    assert not traffic.flows()
    assert (len(traffic.onward.stuck), traffic.onward.landed, traffic.waiting) == (WINDOW, 0, AT_ONCE)

    for done in traffic.onward.stuck[: AT_ONCE + 1]:
        done()
    traffic.now += MOMENT
    traffic.passage.step(0)
    traffic.now += MOMENT
    assert traffic.flows()
    assert (traffic.onward.landed, traffic.waiting) == (AT_ONCE - 1, 0)


def test_a_level_whose_window_is_full_notices_that_its_connection_is_gone() -> None:
    """The broker gives again what it holds, and it would deliver both."""
    bench = Bench()
    for _ in range(WINDOW // AT_ONCE):
        bench.gets(*[STUCK] * AT_ONCE)
    assert not bench.passage.step(0)

    bench.source.gone = True

    with pytest.raises(NotConnected):
        bench.passage.step(0)


def test_a_batch_that_is_passed_on_within_a_moment_is_acknowledged_in_one_go() -> None:
    bench = Bench()
    bench.gets(b"a", STUCK, b"b")
    bench.now += MOMENT - 1
    bench.steps()
    assert bench.source.acks == []
    bench.onward.stuck.pop()()
    bench.steps()
    assert bench.source.acks == [None]


def test_what_is_passed_on_of_a_batch_does_not_wait_longer_than_a_moment_for_the_rest() -> None:
    bench = Bench()
    bench.gets(STUCK, b"a", STUCK, b"b", STUCK)
    bench.now += MOMENT
    bench.steps()
    assert bench.source.acks == [(1, 3)]
    bench.onward.stuck.pop(0)()
    bench.now += MOMENT
    bench.steps()
    assert bench.source.acks == [(1, 3), (0,)]
    for done in bench.onward.stuck:
        done()
    bench.steps()
    assert bench.source.acks == [(1, 3), (0,), None], "the rest, in one go"
    assert bench.passage._taken.unfinished == 0, "its place in the window is free"


def test_what_another_bridge_is_given_before_it_leaves_goes_no_further_here_and_holds_up_nothing() -> None:
    bench = Bench(wait=1_000, timed=False)
    bench.source.batches.append([message(b"a"), message(b"elsewhere")])
    bench.steps(1)
    bench.source.elsewhere.add(1)

    bench.now = 1_000
    bench.steps()

    assert bench.onward.left == [(b"a", 1_000)]
    assert bench.source.acks == [None]


def test_it_does_not_wait_at_all_where_many_wait_for_others_of_their_batches() -> None:
    bench = Bench()
    bench.gets(STUCK, *[b"a"] * (PINNED - 1))
    assert bench.source.acks == []
    bench.gets(STUCK, b"a")
    assert bench.source.acks == [tuple(range(1, PINNED)), (1,)]


def test_what_is_passed_on_as_a_whole_batch_waits_for_nothing_and_is_not_counted() -> None:
    bench = Bench()
    bench.gets(*[STUCK] * PINNED)
    bench.gets(STUCK, b"a")
    for done in bench.onward.stuck[:PINNED]:
        done()
    bench.steps()
    assert bench.source.acks == [None]


def test_a_clock_that_is_set_back_delays_no_acknowledgement() -> None:
    bench = Bench()
    bench.now = 10 * MOMENT
    bench.gets(STUCK, b"a")
    bench.now = 0
    bench.steps()
    assert bench.source.acks == [(1,)]


def test_what_a_timed_source_gives_leaves_although_the_clock_is_set_back_in_that_moment() -> None:
    bench = Bench(wait=1_000)
    bench.now = 3_600_000
    bench.source.batches.append([message(b"a", since=bench.now - 1_000)])
    bench.steps(1)
    bench.now = 0
    bench.steps(1)
    assert bench.onward.landed == 1


def test_a_source_that_acknowledges_whole_batches_only_is_refused() -> None:
    bench = Bench()
    bench.source.batches.append([])
    bench.source._ack_some = None  # type: ignore[assignment, method-assign]  # as an adapter's that does not know what levels need
    with pytest.raises(TypeError, match="must acknowledge single messages"):
        bench.steps()


def test_an_orderly_end_acknowledges_what_is_passed_on_and_nothing_else() -> None:
    bench = Bench(wait=1_000, timed=False)
    bench.source.batches.append([message(b"a", since=0), message(b"b", since=900)])
    bench.steps(1)
    bench.now = 1_000
    bench.steps()
    assert bench.onward.landed == 1
    bench.passage.hand_back(1)
    bench.passage.close()
    assert bench.source.acks == [(0,)], "the broker gives the other one again"


def test_an_orderly_end_does_not_wait_for_what_the_broker_gives_again() -> None:
    bench = Bench()
    bench.gets(STUCK, b"a")
    bench.onward.given_again = 1
    began = time.monotonic()
    bench.passage.hand_back(5)
    assert time.monotonic() - began < 5
    assert bench.source.acks == [(1,)]


def test_what_ends_after_its_connection_is_not_acknowledged_over_the_next() -> None:
    bench = Bench()
    bench.gets(STUCK, STUCK)
    bench.passage.close()
    bench.passage.connect()
    for done in bench.onward.stuck:
        done()
        bench.now += MOMENT
        bench.steps()
    assert bench.source.acks == []


def test_what_is_to_leave_soon_is_not_late_because_nothing_new_comes() -> None:
    bench = Bench(wait=1_000, timed=False)
    bench.source.batches.append([message(b"later", since=900), message(b"first", since=0)])
    bench.passage.step(0)
    assert bench.passage.first_leaves == 1_000

    bench.source.waits.clear()
    for bench.now in (0, 900, 949):
        bench.passage.step()
    assert bench.source.waits == [PATIENCE, *((1_000 - EARLY // 2 - now) / 1_000 for now in (900, 949))]


@pytest.mark.parametrize("timed", [True, False])
def test_what_leaves_about_now_leaves_together_and_goes_where_it_would_have_gone_at_its_time(*, timed: bool) -> None:
    """Else a level would wake for each of its messages, and what goes early would be taken for one that has longer to wait."""
    bench = Bench(wait=1_000, timed=timed)
    bench.source.batches.append([message(str(since).encode(), since) for since in (0, 30, EARLY, EARLY + 20)])
    bench.now = 1_000
    bench.steps(2)
    left = [(b"0", 1_000), (b"30", 1_030), (b"%d" % EARLY, 1_000 + EARLY)]
    assert bench.onward.left == ([*left, (b"%d" % (EARLY + 20), 1_000 + EARLY)] if timed else left), (
        "a timed source has the last word on what leaves"
    )


def test_at_a_level_that_is_hardly_longer_than_that_nothing_leaves_so_early() -> None:
    """It would go round without waiting."""
    bench = Bench(wait=20, timed=False)
    bench.source.batches.append([message(b"a", since=0)])
    for bench.now in (0, 9, 10):
        assert bench.onward.left == []
        bench.steps(1)
    assert bench.onward.left == [(b"a", 20)]


class Shared(Source):
    """One that can lose messages to other bridges."""

    handed_over = 0


def test_when_messages_may_have_gone_to_another_bridge_they_are_looked_for_once() -> None:
    source = Shared()
    bench = Bench(source)
    bench.gets(STUCK, b"other")
    assert bench.onward.looked_for == []

    source.handed_over += 1
    bench.steps()

    assert bench.onward.looked_for == [bench.passage._taken]
