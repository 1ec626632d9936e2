"""The audit of a topic on a real Kafka, through Spark's own source, which Spark fetches as it does for users: in the first test for the command alone."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from brokers.common import Broker
from brokers.kafka import admin, create_topic, delete_topic
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.admin import ConfigResource

from delaybridge.core.durations import HOUR_MS
from spark.conftest import CONF, SMALL
from spark.java import needs_java, serving
from spark.ledgers import Bridge, write_ledger

pytest.importorskip("pyspark")


@dataclass
class Topic:
    """Where deliveries arrive, with the headers of a bridge."""

    url: str
    name: str
    partitions: int = 3
    ahead: int = HOUR_MS
    """How far from now a time may be that a producer gives a record."""

    def __post_init__(self) -> None:
        create_topic(self.url, self.name, partitions=self.partitions, message_timestamp_after_max_ms=str(self.ahead))
        self._producer = Producer({"bootstrap.servers": self.url})

    @property
    def place(self) -> str:
        return f"kafka://{self.url}/{self.name}"

    def publish(self, headers: dict[str, str], at: int, partition: int = -1) -> None:
        encoded: list[tuple[str, str | bytes | None]] = [(name, text.encode()) for name, text in headers.items()]
        self._producer.produce(self.name, b"body", timestamp=at, headers=encoded, partition=partition)

    def deliver(self, id_: str, due: int, at: int, partition: int = -1) -> None:
        self.publish({"x-delay-id": id_, "x-delay-occurrence": "1", "x-delay-due": str(due)}, at, partition)

    def take_back(self, id_: str, due: int, at: int) -> None:
        """A delivery whose transaction is aborted."""
        whole, self._producer = self._producer, Producer({"bootstrap.servers": self.url, "transactional.id": self.name})
        self._producer.init_transactions(30)
        self._producer.begin_transaction()
        self.deliver(id_, due, at)
        self.flush()
        self._producer.abort_transaction(30)
        self._producer = whole

    @contextmanager
    def transaction(self, at: int) -> Iterator[None]:
        """Somebody else's, which is open meanwhile, with a record that says when it was made."""
        producer = Producer({"bootstrap.servers": self.url, "transactional.id": f"another-{self.name}", "transaction.timeout.ms": 900_000})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(self.name, b"not ours", timestamp=at, partition=0)
        assert producer.flush(30) == 0
        yield
        producer.commit_transaction(30)

    def cut(self, before: int) -> None:
        """Remove what was published before that, as retention does."""
        consumer = Consumer({"bootstrap.servers": self.url, "group.id": self.name})
        try:
            found = consumer.offsets_for_times([TopicPartition(self.name, number, before) for number in range(self.partitions)], 30)
        finally:
            consumer.close()
        self.remove(*found)

    def remove(self, *before: TopicPartition) -> None:
        """Remove what is before these offsets, as kafka-delete-records does."""
        client = AdminClient({"bootstrap.servers": self.url})
        for done in client.delete_records(list(before)).values():
            done.result(30)

    def keep(self, since: int) -> None:
        """Have it keep records no longer than that."""
        with closing(admin(self.url)) as client:
            client.alter_configs([ConfigResource("TOPIC", self.name, {"retention.ms": str(time.time_ns() // 1_000_000 - since)})])

    def remake(self) -> None:
        """Delete it, and make another one of its name."""
        delete_topic(self.url, self.name)
        self.__post_init__()

    def flush(self) -> None:
        assert self._producer.flush(30) == 0

    def values(self, number: int) -> list[str]:
        """The first records of the topic."""
        consumer = Consumer({"bootstrap.servers": self.url, "group.id": self.name, "auto.offset.reset": "earliest"})
        try:
            consumer.subscribe([self.name])
            return [(record.value() or b"").decode() for record in consumer.consume(number, timeout=30)]
        finally:
            consumer.close()


Audit = Callable[..., subprocess.CompletedProcess[str]]


def _audit(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("delaybridge")), "audit", *arguments, *CONF]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=env)


@pytest.fixture(scope="module")
def audit() -> Iterator[Audit]:
    """The command, in a Java that all of them share."""
    from delaybridge.spark_jobs.session import KAFKA_PACKAGE  # noqa: PLC0415 - needs pyspark

    with serving(SMALL | {"spark.jars.packages": KAFKA_PACKAGE}) as environment:
        yield partial(_audit, env=environment)


def _instant(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _rows(told: dict[str, Any], table: str) -> list[dict[str, Any]]:
    folder = told["tables"][table].removeprefix("file:")
    return [row for file in sorted(Path(folder).glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


@needs_java
def test_what_a_topic_lacks_has_twice_or_should_not_have_is_named_and_nothing_else(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(kafka.url, f"orders-{uuid.uuid4().hex[:8]}")
    bridge, now = Bridge(destination=topic.name), time.time_ns() // 1_000_000
    for number in range(200):
        id_, due = f"m-{number}", now - 60_000 + number * 10
        bridge.both(id_, due)
        for _ in range({"m-7": 0, "m-8": 2}.get(id_, 1)):
            topic.deliver(id_, due, due + 5)
    topic.take_back("m-9", now - 59_910, now - 59_905)
    topic.deliver("stranger", now - 59_000, now - 58_990)
    topic.publish({}, now - 50_000)
    for absurd in ("tomorrow", "99999999999999999"):
        topic.publish({"x-delay-id": "odd", "x-delay-occurrence": "1", "x-delay-due": absurd}, now - 50_000)
    topic.flush()

    inputs = ["--ledger", bridge.write(tmp_path / "ledger"), "--observed", topic.place]
    window = ["--since", _instant(now - 120_000), "--until", _instant(now), "--all-ended"]
    done = _audit("reconcile", *inputs, *window, "--out", str(tmp_path / "out"), "--json")

    assert done.stderr == ""
    told = json.loads(done.stdout)
    found: defaultdict[str, set[str]] = defaultdict(set)
    for row in _rows(told, "discrepancies"):
        found[row["finding"]].add(row["id"])
    malformed = _rows(told, "malformed")
    assert dict(found) == {"not_observed": {"m-7"}, "duplicated": {"m-8"}, "never_scheduled": {"stranger"}}
    assert (told["totals"]["observed"], told["observed_unrelated"]) == (201, 1)
    assert [(row["input"], row["problem"]) for row in malformed] == [
        ("observed", "due_time is null, or no instant up to the year 9999")
    ] * 2
    assert all(row["place"].startswith(f"{topic.name}/") for row in malformed)
    assert done.returncode == 1


@needs_java
def test_what_retention_removed_from_a_topic_is_not_lost_and_what_it_lacks_since_then_is(
    kafka: Broker, audit: Audit, tmp_path: Path
) -> None:
    """Of a partition of which nothing is left, it is known how long Kafka keeps records there."""
    topic = Topic(kafka.url, f"cut-{uuid.uuid4().hex[:8]}", partitions=2)
    bridge, since = Bridge(destination=topic.name), time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS - 4 * HOUR_MS
    for minute, partition in ((5, 0), (20, 0), (25, 1), (40, 0), (70, 0), (80, 0)):
        bridge.both(f"m-{minute}", since + minute * 60_000)
        if minute != 70:
            topic.deliver(f"m-{minute}", since + minute * 60_000, since + minute * 60_000 + 5, partition)
    topic.flush()
    inputs = ["--ledger", bridge.write(tmp_path / "ledger"), "--observed", topic.place, "--all-ended", "--json"]
    window = ["--since", _instant(since), "--until", _instant(since + 2 * HOUR_MS), "--out", str(tmp_path / "out")]

    whole = json.loads(audit("reconcile", *inputs, *window).stdout)
    topic.keep(since + 50 * 60_000)
    topic.cut(since + 30 * 60_000)
    cut = json.loads(audit("reconcile", *inputs, *window).stdout)

    assert [(told["totals"]["not_observed"], [row["complete"] for row in told["hours"]]) for told in (whole, cut)] == [
        (1, [True, True]),
        (1, [False, True]),
    ]
    assert (whole["cannot_say"], len(cut["cannot_say"])) == ([], 1)
    began = datetime.fromisoformat(cut["cannot_say"][0].removeprefix(f"topic {topic.name} of kafka holds what arrived since ").split()[0])
    assert since + 52 * 60_000 <= began.timestamp() * 1_000 < since + 60 * 60_000


@needs_java
def test_the_watch_tells_what_a_topic_lacks_and_when_it_comes_and_publishes_both(kafka: Broker, audit: Audit, tmp_path: Path) -> None:
    topic, news = Topic(kafka.url, f"bills-{uuid.uuid4().hex[:8]}"), Topic(kafka.url, f"news-{uuid.uuid4().hex[:8]}")
    bridge, now = Bridge(destination=topic.name), time.time_ns() // 1_000_000
    for number in range(20):
        bridge.both(f"m-{number}", now - 60_000)
        if number != 7:
            topic.deliver(f"m-{number}", now - 60_000, now - 59_995)
    topic.take_back("m-7", now - 60_000, now - 59_995)
    bridge.row("scheduled", now - 50_000, "seen", now - 40_000)
    topic.deliver("seen", now - 40_000, now - 39_990)
    bridge.row("scheduled", now - 1_000, "ahead", now + 3_600_000)
    topic.publish({"x-delay-id": "odd", "x-delay-occurrence": "1", "x-delay-due": "99999999999999999"}, now - 50_000)
    topic.flush()
    inputs = ["--ledger", bridge.write(tmp_path / "ledger"), "--observed", topic.place, "--silent", "1h"]
    watch = ["watch", *inputs, "--checkpoint", str(tmp_path / "checkpoint"), "--alerts-to", news.place, "--once"]

    first = audit(*watch)
    topic.deliver("m-7", now - 60_000, now)
    topic.flush()
    second = audit(*watch)

    assert (first.stderr, second.stderr) == ("", "")
    assert _brief(first.stdout) == [("alert", "malformed", None), ("alert", "not_observed", "m-7")]
    assert _brief(second.stdout) == [("resolved", "not_observed", "m-7")]
    assert (first.returncode, second.returncode) == (1, 2)
    assert sorted(news.values(3)) == sorted((first.stdout + second.stdout).splitlines())
    [counted] = json.loads((tmp_path / "checkpoint" / "counts.json").read_text())["destinations"]
    assert {name: counted[name] for name in ("delivered", "observed", "pending", "due")} == {
        "delivered": 20,
        "observed": 21,
        "pending": 2,
        "due": 21,
    }


def _brief(lines: str) -> list[tuple[str, str, str | None]]:
    return [(line["event"], line["kind"], line.get("id")) for line in map(json.loads, lines.splitlines())]


def _deliver(bridge: Bridge, topic: Topic, now: int, minutes: Iterable[int], *, lacking: int) -> None:
    """One delivery so many minutes ago for each, of which the topic lacks one."""
    for minute in minutes:
        bridge.both(f"m-{minute}", now - minute * 60_000)
        if minute != lacking:
            topic.deliver(f"m-{minute}", now - minute * 60_000, now - minute * 60_000 + 5)
    topic.flush()


@needs_java
def test_the_watch_tells_what_a_topic_lacks_and_nothing_that_retention_removed_before_it_was_read_and_refuses_one_that_was_made_anew(
    kafka: Broker, audit: Audit, tmp_path: Path
) -> None:
    topic = Topic(kafka.url, f"cut-{uuid.uuid4().hex[:8]}", partitions=1)
    bridge, now = Bridge(destination=topic.name), time.time_ns() // 1_000_000
    _deliver(bridge, topic, now, range(50, 20, -1), lacking=25)
    topic.cut(now - 30 * 60_000)
    inputs = ["--ledger", bridge.write(tmp_path / "ledger"), "--observed", topic.place, "--silent", "1h"]
    watch = ["watch", *inputs, "--checkpoint", str(tmp_path / "checkpoint"), "--once"]

    first = audit(*watch)
    written = len(bridge.rows)
    _deliver(bridge, topic, now, range(20, 10, -1), lacking=11)
    topic.cut(now - 15 * 60_000)
    write_ledger(tmp_path / "ledger", "later", bridge.rows[written:])
    second = audit(*watch)
    topic.remake()
    _deliver(bridge, topic, now, range(60, 1, -1), lacking=0)  # it is longer by now than what was read of the other one
    refused = audit(*watch)

    assert (first.stderr, second.stderr) == ("", "")
    assert _brief(first.stdout) == [("alert", "not_observed", "m-25")]
    assert _brief(second.stdout) == [("alert", "not_observed", "m-11")]
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"topic {topic.name} was made anew since it was read: give another --checkpoint" in refused.stderr


@needs_java
def test_what_stands_in_a_topic_behind_somebody_elses_open_transaction_is_not_called_lost(
    kafka: Broker, audit: Audit, tmp_path: Path
) -> None:
    topic = Topic(kafka.url, f"held-{uuid.uuid4().hex[:8]}", partitions=1)
    hour = time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS
    bridge, now = Bridge(destination=topic.name), hour - 10 * 60_000  # all of it in one hour, which is judged as a whole

    _deliver(bridge, topic, now, (30, 28, 25), lacking=28)
    with topic.transaction(now - 20 * 60_000):
        _deliver(bridge, topic, now, (15, 12, 10), lacking=12)
        inputs = ["--ledger", bridge.write(tmp_path / "ledger"), "--observed", topic.place]
        window = ["--since", _instant(now - HOUR_MS), "--until", _instant(now - 5 * 60_000), "--out", str(tmp_path / "out")]
        watch = ["watch", *inputs, "--checkpoint", str(tmp_path / "checkpoint"), "--silent", "3h", "--once"]
        told = json.loads(audit("reconcile", *inputs, *window, "--all-ended", "--json").stdout)
        first = audit(*watch)
    second = audit(*watch)

    assert (told["verdict"], told["totals"]["not_observed"]) == ("cannot_say", 0)
    assert told["cannot_say"][-1].startswith(f"topic {topic.name} of kafka is read up to {_instant(now - 20 * 60_000)[:19]}")
    assert (_brief(first.stdout), first.stderr) == ([("alert", "not_observed", "m-28")], "")
    assert (_brief(second.stdout), second.stderr) == ([("alert", "not_observed", "m-12")], "")


@needs_java
def test_a_record_whose_time_spark_cannot_read_is_named_with_what_helps_and_what_is_behind_it_can_be_watched_once_it_is_gone(
    kafka: Broker, audit: Audit, tmp_path: Path
) -> None:
    topic = Topic(kafka.url, f"nanoseconds-{uuid.uuid4().hex[:8]}", partitions=2, ahead=2**63 - 1)
    bridge, now = Bridge(destination=topic.name), time.time_ns() // 1_000_000
    topic.publish({}, now, partition=1)
    topic.publish({}, now * 1_000_000, partition=1)
    _deliver(bridge, topic, now, (30, 25), lacking=25)
    inputs = ["--ledger", bridge.write(tmp_path / "ledger"), "--observed", topic.place]
    watch = ["watch", *inputs, "--checkpoint", str(tmp_path / "checkpoint"), "--silent", "3h", "--once"]

    audited = audit("reconcile", *inputs, "--since", _instant(now - HOUR_MS), "--until", _instant(now), "--out", str(tmp_path / "out"))
    watched = audit(*watch)
    topic.remove(TopicPartition(topic.name, 1, 2))
    after = audit(*watch)

    for done in (audited, watched):
        assert (done.returncode, done.stdout) == (2, "")
        assert f"topic {topic.name}, partition 1, offset 1 ({now * 1_000_000} ms)" in done.stderr
        assert "kafka-delete-records" in done.stderr
    assert (_brief(after.stdout), after.stderr) == ([("alert", "not_observed", "m-25")], "")


@needs_java
def test_a_topic_that_is_not_there_is_named_before_anything_is_read_told_or_kept(kafka: Broker, audit: Audit, tmp_path: Path) -> None:
    topic, bridge, now = Topic(kafka.url, f"bills-{uuid.uuid4().hex[:8]}"), Bridge(), time.time_ns() // 1_000_000
    bridge.scheduled("overdue", now - 60_000)
    bridge.quiet(now)
    ledger = ["--ledger", bridge.write(tmp_path / "ledger")]
    watch = ["watch", *ledger, "--checkpoint", str(tmp_path / "checkpoint"), "--once"]

    audited = audit("reconcile", *ledger, "--observed", f"{topic.place}s", "--out", str(tmp_path / "out"))
    watched = audit(*watch, "--observed", f"{topic.place}s")
    told = audit(*watch, "--alerts-to", f"{topic.place}s")

    for done in (audited, watched, told):
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"cannot say: there is no topic {topic.name}s at {kafka.url}")
    assert not (tmp_path / "checkpoint").exists()
