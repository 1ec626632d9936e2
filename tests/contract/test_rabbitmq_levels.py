"""Level queues on a real RabbitMQ: what waits there, what comes out and when, and who makes the queues."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pika
import pika.exceptions
import pytest
from brokers.common import Unavailable, wait_until
from brokers.rabbitmq import AFTER_RESTART

from delaybridge.adapters.base import BackOff, Batch, NotConnected, Outcome, Outgoing
from delaybridge.adapters.levelled import Level
from delaybridge.adapters.rabbitmq import RabbitMQ, adapter
from delaybridge.core.message import Message, Properties

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.rabbitmq import Broker

    from delaybridge.adapters.rabbitmq.level_queues import RabbitLevelQueues
    from delaybridge.adapters.rabbitmq.level_source import LevelSource
    from delaybridge.adapters.rabbitmq.sink import RabbitSink

WAIT = 400


class Left(NamedTuple):
    """A message that left a level, and when (epoch ms)."""

    number: int
    at: int
    redelivered: bool


class Stage:
    """Levels that nobody else uses: `through`, where nothing waits, and `level`, where a message waits for `WAIT`."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.prefix = f"levels-{secrets.token_hex(6)}"
        self.through, self.level = Level(f"{self.prefix}.0", 0), Level(f"{self.prefix}.{WAIT}ms", WAIT)
        self.names = [self.through.name, self.level.name, f"{self.level.name}.out"]
        self._sources: list[LevelSource] = []
        self._sinks: list[RabbitSink] = []
        self._outcomes: list[Outcome] = []

    def options(self, **options: Any) -> RabbitMQ:
        return RabbitMQ.model_validate({"url": self.broker.url, "connection_timeout": 15} | options)

    def queues(self, **options: Any) -> RabbitLevelQueues:
        return adapter.level_queues(self.options(**options), [self.through, self.level])

    def source(self, level: Level, **options: Any) -> LevelSource:
        """Not connected yet."""
        source = adapter.level_source(self.options(**options), level)
        self._sources.append(source)
        return source

    def taking(self, level: Level, **options: Any) -> LevelSource:
        source = self.source(level, **options)
        source.connect()
        return source

    def put(self, level: Level, *numbers: int) -> list[Outcome]:
        """Publish, and wait for the outcomes."""
        before = len(self._outcomes)
        address = adapter.level_address(self.options(), level)
        messages = [Message(b"%d" % number, b"", Properties(delivery_mode=2)) for number in numbers]
        self._sink().publish([Outgoing(message.body or b"", address, message) for message in messages])
        wait_until(lambda: len(self._outcomes) == before + len(numbers), "outcomes")
        return self._outcomes[before:]

    def _sink(self) -> RabbitSink:
        """Connected where it was not yet."""
        if not self._sinks:
            self._sinks.append(adapter.sink(self.options()))
            self._sinks[0].connect(self._outcomes.extend)
        return self._sinks[0]

    def confirmed(self, level: Level, *numbers: int) -> None:
        assert [error for _, error in self.put(level, *numbers) if error] == []

    def connection(self) -> pika.BlockingConnection:
        return pika.BlockingConnection(pika.URLParameters(self.broker.url))

    def delete(self, *names: str) -> None:
        connection = self.connection()
        for name in names:
            connection.channel().queue_delete(name)
        connection.close()

    def exists(self, name: str) -> bool:
        connection = self.connection()
        try:
            connection.channel().queue_declare(name, passive=True)
        except pika.exceptions.ChannelClosedByBroker:
            return False
        finally:
            connection.close()
        return True

    def waiting(self, name: str) -> int:
        """How many messages of a queue can be taken."""
        connection = self.connection()
        try:
            return int(connection.channel().queue_declare(name, passive=True).method.message_count)
        finally:
            connection.close()

    def close(self) -> None:
        opened: list[LevelSource | RabbitSink] = [*self._sources, *self._sinks]
        for one in opened:
            one.close()
        self.delete(*self.names)


def leaving(source: LevelSource, count: int, timeout: float = 60, *, ack: bool = True) -> list[Left]:
    """What comes out, in order; waits for so many."""
    left: list[Left] = []
    deadline = time.monotonic() + timeout
    while len(left) < count:
        assert time.monotonic() < deadline, f"{len(left)} of {count} messages came within {timeout} s"
        batch = source.receive(100, 0.2)
        if batch is not None:
            now = -(-time.time_ns() // 1_000_000)
            left += [Left(int(each.message.body or b"-1"), now, each.redelivered) for each in batch.messages]
            if ack:
                batch.ack()
    return left


@pytest.fixture
def stage(rabbitmq: Broker) -> Iterator[Stage]:
    made = Stage(rabbitmq)
    yield made
    made.close()


def impatient(broker: Broker) -> None:
    """Let it try again after a second what a queue did not take of its dead letters; usually it waits for three minutes."""
    try:
        broker.control("eval", "application:set_env(rabbit, dead_letter_worker_publisher_confirm_timeout, 1000).")
    except Unavailable as reason:
        pytest.skip(str(reason))


# --- waiting ---


def test_a_message_comes_out_after_its_level_and_not_before(stage: Stage) -> None:
    source = stage.taking(stage.level)
    put: dict[int, int] = {}
    for number in range(20):
        put[number] = time.time_ns() // 1_000_000
        stage.confirmed(stage.level, number)
    for each in leaving(source, 20):
        assert put[each.number] + WAIT <= each.at


def test_level_0_lets_a_message_through_at_once(stage: Stage) -> None:
    source = stage.taking(stage.through)
    stage.confirmed(stage.through, 1)
    assert [each.number for each in leaving(source, 1)] == [1]


def test_messages_leave_a_level_in_the_order_in_which_they_came(stage: Stage) -> None:
    source = stage.taking(stage.level)
    stage.confirmed(stage.level, *range(2_000))
    assert [each.number for each in leaving(source, 2_000)] == list(range(2_000))


def test_what_waits_needs_no_bridge_to_leave_and_survives_that_nobody_takes_it(stage: Stage) -> None:
    stage.queues().apply()
    stage.confirmed(stage.level, 1, 2, 3)
    wait_until(lambda: stage.waiting(f"{stage.level.name}.out") == 3, "them to leave the level")
    assert stage.queues().depths() == [0, 3]
    assert [each.number for each in leaving(stage.taking(stage.level), 3)] == [1, 2, 3]


def test_nothing_is_lost_while_the_queue_after_the_level_is_missing(stage: Stage) -> None:
    impatient(stage.broker)
    stage.queues().apply()
    stage.delete(f"{stage.level.name}.out")
    stage.confirmed(stage.level, *range(100))
    time.sleep(2 * WAIT / 1000)  # until they have waited: RabbitMQ, which has nowhere to put them, does not tell
    source = stage.taking(stage.level)
    assert sorted({each.number for each in leaving(source, 100)}) == list(range(100))


def test_what_is_not_acknowledged_comes_again_however_often(stage: Stage) -> None:
    stage.taking(stage.level).close()
    stage.confirmed(stage.level, 7)
    for _ in range(25):  # RabbitMQ 4 drops after 20, where the queue does not say otherwise
        source = stage.taking(stage.level)
        assert leaving(source, 1, ack=False)[0].number == 7
        source.close()
    assert leaving(stage.taking(stage.level), 1)[0].redelivered


def taken(source: LevelSource, count: int) -> Batch:
    """The next so many, in one batch."""
    wait_until(lambda: len(source._session.inbox) >= count, "messages")
    batch = source.receive(count, 1)
    assert batch is not None
    assert len(batch.messages) == count
    return batch


def test_what_comes_again_is_marked_and_has_the_token_that_it_had(stage: Stage) -> None:
    """By that a bridge knows what it has passed on already."""
    stage.taking(stage.level).close()
    stage.confirmed(stage.level, 1, 2)
    given = []
    for _ in range(3):
        source = stage.taking(stage.level)
        given.append({(each.token, each.message.body): each.redelivered for each in taken(source, 2).messages})
        source.close()
    assert [sorted(each) for each in given] == [sorted(given[0])] * 3
    assert [set(each.values()) for each in given] == [{False}, {True}, {True}]


def some(batch: Batch, *places: int) -> None:
    """Acknowledge these of a batch."""
    assert batch.ack_some is not None
    batch.ack_some(places)


def test_what_was_not_acknowledged_of_a_batch_comes_again_and_nothing_else(stage: Stage) -> None:
    source = stage.taking(stage.through)
    batches = []
    for first in (0, 10, 20):
        stage.confirmed(stage.through, *range(first, first + 10))
        batches.append(taken(source, 10))
    stuck, later, last = batches
    some(stuck, 1, 9)
    some(later, 9, 0)
    later.ack()
    some(last, *range(9))
    some(stuck, 0)
    source.close()
    assert sorted(each.number for each in leaving(stage.taking(stage.through), 8)) == [2, 3, 4, 5, 6, 7, 8, 29]


def test_a_batch_whose_last_message_was_acknowledged_before_is_acknowledged_as_a_whole(stage: Stage) -> None:
    source = stage.taking(stage.through)
    for places in ((9,), (8, 9, 0), tuple(range(10))):
        stage.confirmed(stage.through, *range(10))
        batch = taken(source, 10)
        some(batch, *places)
        batch.ack()
    stage.confirmed(stage.through, 10)
    assert [each.number for each in leaving(source, 1)] == [10], "the channel is open still"
    source.close()
    assert stage.queues().depths() == [0, 0]


@pytest.mark.parametrize("kill", [False, True], ids=["restart", "kill -9"])
def test_what_waits_survives_the_broker_and_comes_neither_early_nor_not_at_all(stage: Stage, kill: bool) -> None:
    if not stage.broker.restartable:
        pytest.skip("this broker is not ours to restart")
    stage.queues().apply()
    stage.broker.restart()  # RabbitMQ 3.10 notes a new quorum queue on disk only some seconds later: kill -9 before that loses the queue
    put: dict[int, int] = {}
    for number in range(400):  # some have left the level, most wait, and some are on their way when it goes down
        put[number] = time.time_ns() // 1_000_000
        stage.confirmed(stage.level, number)
    if kill:
        stage.broker.kill()
        stage.broker.start()
    else:
        stage.broker.restart()
    seen: dict[int, int] = {}
    source = stage.taking(stage.level)
    while len(seen) < len(put):
        for each in leaving(source, 1, AFTER_RESTART):
            seen.setdefault(each.number, each.at)
    assert [number for number, at in seen.items() if at < put[number] + WAIT] == []


# --- who makes the queues ---


def test_a_plan_says_what_is_missing_and_changes_nothing(stage: Stage) -> None:
    for _ in range(2):
        steps = stage.queues().plan()
        assert [step.done for step in steps] == [False] * 3
        assert all(f"`{name}`" in step.what and name in step.command for name, step in zip(stage.names, steps, strict=True))
    assert not any(stage.exists(name) for name in stage.names)


def test_apply_makes_what_is_missing_and_can_be_repeated(stage: Stage) -> None:
    for _ in range(2):
        assert [step.done for step in stage.queues().apply()] == [True] * 3
    assert [step.done for step in stage.queues().plan()] == [True] * 3
    assert stage.queues().depths() == [0, 0]


def test_the_commands_of_a_plan_do_what_apply_does(stage: Stage) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where the command's python3 is
    for step in stage.queues().plan():
        subprocess.run(["bash", "-c", step.command], check=True, env=os.environ | {"RABBITMQ_URL": stage.broker.url, "PATH": path})
    assert [step.done for step in stage.queues().plan()] == [True] * 3


def test_a_queue_that_differs_is_a_step_that_is_not_done_with_the_reason_and_stays_as_it_is(stage: Stage) -> None:
    other = adapter.level_queues(stage.options(), [Level(stage.level.name, 7)])
    assert [step.done for step in other.apply()] == [True, True]
    for ask in (stage.queues().plan, stage.queues().apply, stage.queues().apply):
        step = next(step for step in ask() if f"`{stage.level.name}`" in step.what)
        assert (step.done, step.command) == (False, "")
        assert "differs" in step.what
        assert "x-message-ttl" in step.what
    assert [step.done for step in other.plan()] == [True, True]
    with pytest.raises(NotConnected, match=r"x-message-ttl.*delete it when it is empty, or set another `store.prefix`"):
        stage.source(stage.level).connect()


def test_depths_count_what_waits_and_what_has_waited_at_each_level(stage: Stage) -> None:
    stage.queues().apply()
    stage.confirmed(stage.through, 1)
    stage.confirmed(stage.level, *range(10))
    wait_until(lambda: stage.queues().depths() == [1, 10], "both levels to show their messages")
    wait_until(lambda: stage.waiting(f"{stage.level.name}.out") == 10, "them to have waited")
    assert stage.queues().depths() == [1, 10]


def test_the_depth_of_a_queue_that_is_missing_is_0(stage: Stage) -> None:
    assert stage.queues().depths() == [0, 0]


def test_a_source_makes_its_queues_as_apply_would(stage: Stage) -> None:
    stage.taking(stage.through)
    stage.taking(stage.level)
    assert [step.done for step in stage.queues().plan()] == [True] * 3


def test_a_message_for_a_level_that_is_missing_is_unroutable(stage: Stage) -> None:
    ((_, error),) = stage.put(stage.level, 1)
    assert isinstance(error, BackOff)
    assert error.reason == "unroutable"
    assert stage.level.name in error.detail


def test_nobody_there_is_not_connected(stage: Stage) -> None:
    nobody = stage.queues(url="amqp://127.0.0.1:1", connection_timeout=1)
    for ask in (nobody.plan, nobody.apply, nobody.undo, nobody.depths):
        with pytest.raises(NotConnected):
            ask()


# --- a user who may not make queues ---


@pytest.fixture
def reader(stage: Stage) -> Iterator[str]:
    """A user who may read and write, and configure nothing."""
    name = f"reader-{secrets.token_hex(4)}"
    try:
        stage.broker.control("add_user", name, "secret")
    except Unavailable as reason:
        pytest.skip(str(reason))
    stage.broker.control("set_permissions", name, "^$", ".*", ".*")
    yield name
    stage.broker.control("delete_user", name)


def test_a_user_who_may_not_make_queues_takes_them_as_they_are(stage: Stage, reader: str) -> None:
    stage.queues().apply()
    source = stage.taking(stage.level, username=reader, password="secret")
    stage.confirmed(stage.level, 1)
    assert [each.number for each in leaving(source, 1)] == [1]


def test_a_user_who_may_not_make_a_missing_queue_is_told_who_does(stage: Stage, reader: str) -> None:
    with pytest.raises(NotConnected, match=rf"no queue '{stage.level.name}.out'.*`delaybridge apply` makes it"):
        stage.source(stage.level, username=reader, password="secret").connect()
