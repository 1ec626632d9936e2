"""Level queues on ActiveMQ: what leaves them and when, what a bridge holds meanwhile, and what becomes of it when the bridge dies."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import pytest
from brokers.activemq import Client
from brokers.common import wait_until
from pydantic import SecretStr

from contract.activemq_stage import Stage, named, native
from delaybridge.adapters.activemq import ActiveMQ, adapter
from delaybridge.adapters.activemq.statistics import PLUGIN, Statistics
from delaybridge.adapters.base import AdapterError, Batch, NotConnected, Outgoing
from delaybridge.adapters.levelled import SINCE, Foreseeing, Level
from delaybridge.core import fields
from delaybridge.core.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.activemq import Native

    from delaybridge.adapters.activemq.level_source import LevelSource

HOUR = 3_600_000
IDLE = """
    <destinationPolicy><policyMap><policyEntries>
      <policyEntry queue="&gt;" gcInactiveDestinations="true" inactiveTimeoutBeforeGC="300"/>
    </policyEntries></policyMap></destinationPolicy>"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Native]:
    """Counts its messages, and deletes queues that nobody uses."""
    yield from native(xml=IDLE + PLUGIN, purge=200)


@pytest.fixture(scope="module")
def plain() -> Iterator[Native]:
    yield from native()


class Levels(Stage):
    """One level queue, and the bridges that take from it."""

    def __init__(self, broker: Native, wait: int = HOUR) -> None:
        super().__init__(broker)
        self.level = Level(named("levels"), wait)
        self._bodies = itertools.count()

    def put(self, *leaves: int, key: bytes | None = None) -> None:
        """Messages that leave then; bodies are numbers."""
        before = len(self.outcomes)
        table = (fields.table(((SINCE, at - self.level.wait),)) for at in leaves)
        messages = [Message(b"%d" % next(self._bodies), each, key=key) for each in table]
        sink, address = self.sink(), adapter.level_address(self.options(), self.level)
        sink.publish([Outgoing(b"", address, message) for message in messages])
        wait_until(lambda: len(self.outcomes) == before + len(leaves), "confirms", 20)
        assert {error for _, error in self.outcomes} == {None}

    def bridge(self, **options: Any) -> LevelSource:
        source = adapter.level_source(self.options(**options), self.level)
        source.connect()
        self._opened.append(source)  # type: ignore[arg-type]  # closed like the others
        return source

    def statistic(self, name: str) -> int:
        options = self.options()
        with Statistics(options.targets(), options.times) as statistics:
            return sum(answer[name] for answer in statistics._answered(f"Destination.{self.level.name}"))


@pytest.fixture
def levels(broker: Native) -> Iterator[Levels]:
    made = Levels(broker)
    yield made
    made.close()


def now() -> int:
    return time.time_ns() // 1_000_000


def numbers(batch: Batch | None) -> list[int]:
    return [int(each.message.body or b"") for each in batch.messages] if batch else []


def taken(source: LevelSource, count: int, timeout: float = 15.0) -> list[int]:
    """The next so many, acknowledged."""
    found: list[int] = []
    deadline = time.monotonic() + timeout
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} came"
        batch = source.receive(200, 0.1)
        found += numbers(batch)
        if batch:
            batch.ack()
    return found


def test_a_message_leaves_when_it_has_waited_and_not_before(levels: Levels) -> None:
    source, start = levels.bridge(), now()
    levels.put(start + 700, start + 1_000, start + 700)
    came: list[tuple[int, int]] = []
    while len(came) < 3:
        batch = source.receive(200, 5)
        came += [(number, now() - start) for number in numbers(batch)]
    assert [number for number, _ in came] == [0, 2, 1]
    for (_, at), leaves in zip(came, (700, 700, 1_000), strict=True):
        assert leaves <= at < leaves + 5_000


def test_a_level_that_waits_long_is_not_held_in_memory(levels: Levels) -> None:
    levels.put(*([now() + HOUR] * 300))
    source = levels.bridge()
    assert source.receive(200, 3) is None
    wait_until(lambda: levels.statistic("inflightCount") == 20, "its small window to be full", 20)
    assert levels.statistic("size") == 300


def test_a_source_says_when_the_first_message_in_sight_leaves(levels: Levels) -> None:
    source, first = levels.bridge(), now() + HOUR
    assert isinstance(source, Foreseeing)
    assert source.first_leaves is None
    levels.put(first + 5_000, first)

    wait_until(lambda: source.receive(200, 0.05) is None and source.first_leaves == first, "the first")
    source.close()
    assert source.first_leaves is None


def test_when_everything_leaves_soon_the_window_is_as_large_as_allowed(levels: Levels) -> None:
    levels.put(*([now() + 6_000] * 1_000))
    source = levels.bridge(prefetch=400)
    wait_until(lambda: source.receive(200, 0.05) is None and levels.statistic("inflightCount") == 400, "the large window")
    assert taken(source, 1_000) == list(range(1_000))
    wait_until(lambda: levels.statistic("size") == 0, "acknowledgements")


def test_what_a_bridge_held_that_died_leaves_in_time_through_one_whose_window_was_full(levels: Levels) -> None:
    start = now()
    dying = levels.bridge()
    levels.put(*([start + 12_000] * 20))
    wait_until(lambda: dying.receive(200, 0.05) is None and levels.statistic("inflightCount") == 20, "the first window")
    living = levels.bridge()
    levels.put(*([start + HOUR] * 100))
    wait_until(lambda: living.receive(200, 0.05) is None and levels.statistic("inflightCount") == 40, "the second window")

    session = dying._session
    assert session is not None
    session.link.drop(NotConnected("killed"))

    assert taken(living, 20, 30) == list(range(20))
    assert now() >= start + 12_000


def test_what_is_overdue_after_a_death_passes_by_what_stays(levels: Levels) -> None:
    start = now()
    dying = levels.bridge(prefetch=20)
    levels.put(*([start + 8_000] * 20))
    wait_until(lambda: dying.receive(200, 0.05) is None and levels.statistic("inflightCount") == 20, "the first window")
    living = levels.bridge()
    levels.put(*([start + HOUR] * 100))
    wait_until(lambda: living.receive(200, 0.05) is None and levels.statistic("inflightCount") == 40, "the second window")
    batch = dying.receive(200, 20)
    assert len(numbers(batch)) == 20

    dying.close()

    assert taken(living, 20) == list(range(20))


def test_a_batch_that_is_not_finished_comes_again_after_a_kill_though_later_ones_are_acknowledged(levels: Levels) -> None:
    levels.put(*([0] * 30))
    source = levels.bridge()
    first, second = source.receive(10, 5), source.receive(10, 5)
    assert first is not None
    assert second is not None
    second.ack()
    wait_until(lambda: levels.statistic("size") == 30 - len(second.messages), "the acknowledgement")

    session = source._session
    assert session is not None
    session.link.drop(NotConnected("killed"))
    first.ack()  # too late, and no harm
    again = levels.bridge()

    left = [number for number in range(30) if number not in numbers(second)]
    assert sorted(taken(again, len(left))) == left
    wait_until(lambda: levels.statistic("size") == 0, "all to be acknowledged")


def test_what_was_not_acknowledged_of_a_batch_comes_again_and_nothing_else(levels: Levels) -> None:
    levels.put(*([0] * 20))
    source = levels.bridge()
    wait_until(lambda: levels.statistic("inflightCount") == 20, "the window")
    stuck, later = source.receive(10, 5), source.receive(10, 5)
    assert stuck is not None
    assert stuck.ack_some is not None
    assert later is not None
    assert later.ack_some is not None
    assert len(stuck.messages) == len(later.messages) == 10
    stuck.ack_some([9, 1])
    later.ack_some([0, 9])
    later.ack()
    stuck.ack_some([0])
    source.close()
    left = numbers(stuck)[2:9]
    again = levels.bridge()
    assert sorted(taken(again, len(left))) == left
    wait_until(lambda: levels.statistic("size") == 0, "all to be acknowledged")


def test_what_comes_again_is_marked_and_has_the_token_that_it_had(levels: Levels) -> None:
    """By that a bridge knows what it has passed on already."""
    levels.put(0, 0)
    given = []
    for _ in range(3):
        source = levels.bridge()
        wait_until(lambda: levels.statistic("inflightCount") == 2, "the window")
        batch = source.receive(2, 5)
        assert batch is not None
        given.append({(each.token, number): each.redelivered for each, number in zip(batch.messages, numbers(batch), strict=True)})
        source.close()
    assert [sorted(each) for each in given] == [sorted(given[0])] * 3
    assert [set(each.values()) for each in given] == [{False}, {True}, {True}]


def test_a_window_takes_new_messages_in_the_places_of_those_that_were_acknowledged_of_a_batch(levels: Levels) -> None:
    levels.put(*([0] * 20))
    source = levels.bridge(prefetch=20)
    wait_until(lambda: levels.statistic("inflightCount") == 20, "the window")
    stuck = source.receive(20, 5)
    assert stuck is not None
    assert stuck.ack_some is not None
    stuck.ack_some(range(1, 20))
    levels.put(*([0] * 200))
    assert taken(source, 200) == list(range(20, 220))


def test_what_is_not_acknowledged_keeps_only_its_own_place(levels: Levels) -> None:
    levels.put(0)
    source = levels.bridge(prefetch=20)
    stuck = source.receive(1, 5)
    assert numbers(stuck) == [0]
    levels.put(*([0] * 200))
    assert taken(source, 200) == list(range(1, 201))


def test_messages_of_one_key_are_shared_by_all_bridges(levels: Levels) -> None:
    levels.put(*([0] * 100), key=b"customer")
    one, other = levels.bridge(prefetch=50), levels.bridge(prefetch=50)
    assert one.receive(10, 5) is not None
    assert other.receive(10, 5) is not None


def test_what_no_bridge_put_there_leaves_at_once_whatever_it_is(levels: Levels) -> None:
    source, user = levels.bridge(), levels.user()
    destination = adapter.level_address(levels.options(), levels.level).encode()
    for body in (b"", b"text", b"a\0\nMESSAGE\n"):
        user.ask(b"SEND\ndestination:%b\nreceipt:x\ncontent-length:%d\namq-msg-type:text\n\n%b\0" % (destination, len(body), body))
    user.ask(b"SEND\ndestination:%b\nreceipt:x\n%b:soon\n\nx\0" % (destination, SINCE))
    came: list[bytes | None] = []
    while len(came) < 4:
        batch = source.receive(10, 5)
        assert batch is not None
        came += [each.message.body for each in batch.messages]
    assert came == [b"", b"text", b"a\0\nMESSAGE\n", b"x"]


def test_a_queue_that_waits_outlives_those_that_nobody_uses(broker: Native, levels: Levels) -> None:
    """An idle consumer, with heartbeats as its only traffic, and messages without any consumer."""
    waiting, idle, unused = levels, Levels(broker), Levels(broker)
    waiting.put(now() + HOUR)
    source = idle.bridge(heartbeat=3)
    unused.put(0)
    other = unused.bridge()
    assert taken(other, 1) == [0]
    other.close()

    def gone() -> bool:
        options = unused.options()
        with Statistics(options.targets(), options.times) as statistics:
            return not statistics._answered(f"Destination.{unused.level.name}")

    wait_until(gone, "the unused queue to be deleted", 20)
    assert source.receive(1, 2) is None
    assert waiting.statistic("size") == 1
    idle.put(0)
    assert taken(source, 1) == [0]
    for each in (idle, unused):
        each.close()


def test_the_broker_counts_what_waits_at_each_level(levels: Levels) -> None:
    levels.put(*([now() + HOUR] * 3))
    missing = Level(named("levels"), 1_000)
    queues = adapter.level_queues(levels.options(), [levels.level, missing])
    assert queues.depths() == [3, 0]
    assert [step.done for step in queues.plan()] == [True, True, True]
    assert [step.done for step in queues.undo()] == [False, True]


def test_a_broker_that_does_not_count_says_what_it_needs(plain: Native) -> None:
    options = ActiveMQ(url=SecretStr(plain.url))
    queues = adapter.level_queues(options, [Level(named("levels"), 1_000)])
    with pytest.raises(AdapterError, match="statisticsBrokerPlugin"):
        queues.depths()
    assert [(step.done, step.command) for step in queues.apply()] == [(True, ""), (False, PLUGIN)]


def test_a_question_that_nobody_answers_leaves_nothing_behind(plain: Native) -> None:
    options = ActiveMQ(url=SecretStr(plain.url))
    with pytest.raises(AdapterError):
        adapter.level_queues(options, []).depths()
    user = Client(plain.url)
    try:
        user.send(b"SUBSCRIBE\nid:0\ndestination:/queue/ActiveMQ.Statistics.Broker\nack:auto\nbrowser:true\n\n\0")
        wait_until(lambda: b"browser:end" in user.frame(), "the queue to be empty", 10)
    finally:
        user.close()
