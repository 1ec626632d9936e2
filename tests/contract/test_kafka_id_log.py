"""The log of ids on Kafka: one order, durable, read from the beginning, and compacted."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from brokers.common import wait_until
from brokers.kafka import create_topic, delete_topic
from kafka import KafkaConsumer, errors

from contract.kafka_user import User, named
from contract.taking import until_lost
from delaybridge.adapters.base import NotConnected
from delaybridge.adapters.id_log import Line
from delaybridge.adapters.kafka import adapter
from delaybridge.adapters.levelled import Level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.kafka import Broker

    from delaybridge.adapters.id_log import IdLog
    from delaybridge.adapters.levelled import LevelDeclaration


class Shared:
    """A log, and whoever reads and writes it."""

    def __init__(self, url: str) -> None:
        self.user = User(url, create=False, delivery_timeout=5, level_partitions=3)
        prefix = named("levels")
        self.level = Level(f"{prefix}.ids", 0, "ids")
        self.queues: LevelDeclaration = adapter.level_queues(self.user.options(), [Level(f"{prefix}.0", 0), self.level])
        self._opened: list[IdLog] = []

    def log(self, **options: float) -> IdLog:
        log = adapter.id_log(self.user.options(**options), self.level)
        self._opened.append(log)
        return log

    def close(self) -> None:
        for log in self._opened:
            log.close()


@pytest.fixture
def shared(kafka: Broker) -> Iterator[Shared]:
    made = Shared(kafka.url)
    assert all(step.done for step in made.queues.apply())
    yield made
    made.close()


def line(key: str, value: str | None = "", note: str = "") -> Line:
    return Line(key.encode(), None if value is None else value.encode(), note.encode())


def lines(log: IdLog, place: int, until: int) -> list[tuple[int, Line]]:
    """All from a place to another."""
    found: list[tuple[int, Line]] = []
    assert log.connect(place) == place
    deadline, read = time.monotonic() + 20, place
    while read < until:
        assert time.monotonic() < deadline, f"read to {read} of {until}: {found}"
        read, more = log.read(0.1)
        found += more
    return found


def test_where_nobody_said_in_time_how_long_it_is_it_is_connected_again(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    log = shared.log()
    log.append([line("a")])

    def silent(*_: object, **__: object) -> None:
        raise errors.KafkaTimeoutError("Failed to get offsets by timestamps in 10000 ms")

    with monkeypatch.context() as patched:
        patched.setattr(KafkaConsumer, "end_offsets", silent)
        with pytest.raises(NotConnected, match="in 10000 ms"):
            log.connect(0)
    assert lines(log, 0, 1) == [(0, line("a"))]


def test_lines_have_one_order_for_all_who_write_and_read(shared: Shared) -> None:
    one, other, reader = shared.log(), shared.log(), shared.log()
    assert one.append([line("a", "1"), line("b", "2")]) == [0, 1]
    assert other.append([line("a", None, "delivered 7")]) == [2]
    assert one.append([line("c", "x" * 100_000)]) == [3]
    expected = [(0, line("a", "1")), (1, line("b", "2")), (2, line("a", None, "delivered 7")), (3, line("c", "x" * 100_000))]
    assert lines(reader, 0, 4) == expected
    assert reader.end() == 4
    assert lines(shared.log(), 2, 4) == expected[2:]


def test_the_end_is_behind_whatever_was_appended_before(shared: Shared) -> None:
    reader, writer = shared.log(), shared.log()
    reader.connect(0)
    for number in range(50):
        (place,) = writer.append([line("a", str(number))])
        assert reader.end() > place


def test_a_line_is_read_within_moments(shared: Shared) -> None:
    reader, writer = shared.log(), shared.log()
    writer.append([line("first")])
    lines(reader, 0, 1)
    late = []
    for _ in range(20):
        writer.append([line("a")])
        before = time.monotonic()
        while not reader.read(0.5)[1]:
            pass
        late.append(time.monotonic() - before)
    print(f"read after {sorted(late)[10] * 1000:.1f} ms (p50), {max(late) * 1000:.1f} ms at most")
    assert sorted(late)[10] < 0.2


def test_a_log_that_is_shorter_than_it_was_is_read_from_its_beginning(shared: Shared, kafka: Broker) -> None:
    shared.log().append([line("a")] * 5)
    delete_topic(kafka.url, shared.level.name)
    shared.queues.apply()
    assert shared.log().connect(5) == 0


def test_a_log_that_was_made_again_is_read_from_its_beginning_also_where_it_is_as_long_by_now(shared: Shared, kafka: Broker) -> None:
    log = shared.log()
    log.append([line("a")])
    assert [each.key for _, each in lines(log, 0, 1)] == [b"a"]
    delete_topic(kafka.url, shared.level.name)
    shared.queues.apply()
    shared.log().append([line("b"), line("c")])
    assert log.connect(1) == 0


def test_a_log_that_is_made_again_under_a_reader_ends_its_connection(shared: Shared, kafka: Broker) -> None:
    reader = shared.log()
    shared.log().append([line("a")])
    lines(reader, 0, 1)
    delete_topic(kafka.url, shared.level.name)
    shared.queues.apply()
    until_lost(lambda: reader.read(0.1), timeout=90)


def test_what_the_broker_compacts_away_is_stepped_over(shared: Shared, kafka: Broker) -> None:
    """Small segments, so that the cleaner has some to clean at once."""
    delete_topic(kafka.url, shared.level.name)
    create_topic(
        kafka.url, shared.level.name, cleanup_policy="compact", segment_bytes="1048576", segment_ms="100",
        min_cleanable_dirty_ratio="0.01", max_compaction_lag_ms="100",
    )  # fmt: skip
    writer = shared.log()
    writer.append([line(str(number % 10), str(number)) for number in range(1000)])
    time.sleep(0.2)  # the segment is old enough then to be closed by the next record
    writer.append([line("last")])

    def compacted() -> bool:
        return len(lines(shared.log(), 0, 1001)) < 1000

    wait_until(compacted, "the cleaner", 60)
    found = lines(shared.log(), 0, 1001)
    assert {each.key: each.value for _, each in found} == {b"%d" % number: b"99%d" % number for number in range(10)} | {b"last": b""}
    assert shared.log().connect(500) == 500


def test_without_its_topic_there_is_no_log(kafka: Broker) -> None:
    shared = Shared(kafka.url)
    with pytest.raises(NotConnected, match="run `delaybridge apply`"):
        shared.log().connect(0)
    with pytest.raises(NotConnected):
        adapter.id_log(shared.user.options(connection_timeout=1), shared.level).append([line("a")])


def test_the_topic_is_planned_made_and_goes_with_the_last_level(shared: Shared, kafka: Broker) -> None:
    steps = {step.what.split("`")[1]: step for step in shared.queues.plan()}
    assert steps[shared.level.name].done
    shared.log().append([line("a")])
    shared.user.send(b"waiting", topic=shared.level.name.replace(".ids", ".0"))
    assert [step.done for step in shared.queues.undo()] == [False, False]
    delete_topic(kafka.url, shared.level.name)
    create_topic(kafka.url, shared.level.name, cleanup_policy="delete", segment_ms="60000")
    (wrong,) = [step for step in shared.queues.plan() if not step.done]
    assert "differs in cleanup.policy" in wrong.what
    assert "cleanup.policy=compact" in wrong.command
    delete_topic(kafka.url, shared.level.name.replace(".ids", ".0"))
    assert [step.done for step in shared.queues.undo()] == [True, True]


def test_a_log_is_closed_without_an_error_while_its_broker_is_away(shared: Shared, kafka: Broker) -> None:
    """Whoever appends hears of it; whoever closes has nothing to do about it."""
    if not kafka.restartable:
        pytest.skip("this broker is not ours to stop")
    log = shared.log(connection_timeout=1, delivery_timeout=60)
    log.append([line("a")])
    kafka.kill()
    try:
        with ThreadPoolExecutor(1) as pool:
            appended = pool.submit(log.append, [line("b")])
            wait_until(lambda: log._writer._producer._accumulator.has_incomplete, "the line to be on its way")  # type: ignore[attr-defined]
            log.close()
            with pytest.raises(NotConnected):
                appended.result(30)
    finally:
        kafka.start()
    assert shared.log().append([line("c")]) != [0]
