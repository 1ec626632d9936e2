"""Unmodified producers of three clients under `delaybridge-instrument`, a real Kafka, the daemon, and an ordinary consumer."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from brokers.kafka import create_topic
from kafka import KafkaConsumer, TopicPartition

from integration.daemon import Daemon
from integration.kafka_apps import APPS, DELAY
from integration.stores import STORES, in_time_index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.stores import Waiting

COMMAND = Path(sys.executable).with_name("delaybridge-instrument")
COUNT = 20
PARTITIONS = 4


class Arrivals:
    """An ordinary consumer of one topic, from its beginning; it notes when it saw each record."""

    def __init__(self, url: str, topic: str, partitions: int = PARTITIONS) -> None:
        self._consumer = KafkaConsumer(bootstrap_servers=url)
        assigned = [TopicPartition(topic, number) for number in range(partitions)]
        self._consumer.assign(assigned)
        self._consumer.seek_to_beginning(*assigned)
        self.seen: dict[bytes, tuple[int, Any]] = {}

    def wait(self, count: int, timeout: float = 60.0) -> None:
        deadline = time.monotonic() + timeout
        while len(self.seen) < count:
            assert time.monotonic() < deadline, f"only {sorted(self.seen)} came"
            for records in self._consumer.poll(timeout_ms=50).values():
                for record in records:
                    assert record.value not in self.seen, f"{record.value} came twice"
                    self.seen[record.value] = (int(time.time() * 1000), record)

    def close(self) -> None:
        self._consumer.close()


def config(url: str, *topics: str, **more: Any) -> dict[str, Any]:
    route = {"name": "orders", "from": {"broker": "kafka", "topic": list(topics), "group": secrets.token_hex(4)}, "to": {"broker": "kafka"}}
    return {"brokers": {"kafka": {"type": "kafka", "bootstrap_servers": url}}, "routes": [route | more]}


def produce(directory: Path, client: str, *arguments: str, options: tuple[str, ...] = ()) -> None:
    app = directory / "app.py"
    app.write_text(APPS[client])
    done = subprocess.run([COMMAND, *options, sys.executable, app, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def table(record: Any) -> dict[str, bytes]:
    return dict(record.headers)


@pytest.fixture
def topic(kafka: Any) -> str:
    name = f"orders-{secrets.token_hex(4)}"
    create_topic(kafka.url, name, PARTITIONS)
    return name


@contextlib.contextmanager
def prepared(directory: Path, settings: dict[str, Any]) -> Iterator[Daemon]:
    """`delaybridge apply`, then the daemon."""
    with Daemon(directory, settings) as daemon:
        done = daemon.run("apply", "--broker", "kafka")
        assert done.returncode == 0, done.stdout + done.stderr
        daemon.start()
        try:
            yield daemon
        except AssertionError:
            print(daemon.get("/status"), daemon.tail())
            raise


@pytest.mark.parametrize(
    ("client", "waiting"), [*((client, "time_index") for client in APPS), *(("confluent-kafka", broker) for broker in STORES[1:])],
    indirect=["waiting"],
)  # fmt: skip
def test_what_is_delayed_arrives_when_due_and_nothing_else_meets_the_bridge(
    kafka: Any, waiting: Waiting, topic: str, client: str, tmp_path: Path
) -> None:
    settings = waiting(config(kafka.url, f"{topic}.delayed"))
    with prepared(tmp_path, settings) as daemon, contextlib.closing(Arrivals(kafka.url, topic)) as arrivals:
        produce(tmp_path, client, kafka.url, topic, str(COUNT))
        with contextlib.closing(Arrivals(kafka.url, f"{topic}.delayed")) as ingress:
            ingress.wait(COUNT // 2)
        arrivals.wait(COUNT)
        daemon.wait_for(lambda: daemon.pending() == 0, "everything to be settled")
        for n in range(COUNT):
            at, record = arrivals.seen[b"m%d" % n]
            assert (record.key, table(record)["app"]) == (b"k%d" % n, b"1")
            if not n % 2:
                assert [name for name, _ in record.headers] == ["app"]
                continue
            _, diverted = ingress.seen[record.value]
            due = int(table(record)["x-delay-due"])
            assert due == diverted.timestamp + DELAY
            assert due <= record.timestamp <= at
            assert record.partition == diverted.partition
        assert len(ingress.seen) == COUNT // 2


def test_a_key_goes_to_the_partition_that_its_client_would_have_chosen(kafka: Any, waiting: Waiting, topic: str, tmp_path: Path) -> None:
    """librdkafka chooses by CRC-32, kafka-python by murmur2: only the producer's own choice is right."""
    with prepared(tmp_path, waiting(config(kafka.url, f"{topic}.delayed"))):
        produce(tmp_path, "confluent-kafka", kafka.url, topic, "20")
        plain = f"plain-{secrets.token_hex(4)}"
        create_topic(kafka.url, plain, PARTITIONS)
        subprocess.run([sys.executable, tmp_path / "app.py", kafka.url, plain, "20"], check=True, timeout=60)
        with (
            contextlib.closing(Arrivals(kafka.url, topic)) as delayed,
            contextlib.closing(Arrivals(kafka.url, plain)) as undiverted,
        ):
            delayed.wait(20)
            undiverted.wait(20)
    chosen = {value: record.partition for value, (_, record) in undiverted.seen.items()}
    assert {value: record.partition for value, (_, record) in delayed.seen.items()} == chosen
    assert len(set(chosen.values())) > 1


@in_time_index("which ingress it was is forgotten at the door")
def test_one_ingress_topic_serves_all(kafka: Any, waiting: Waiting, topic: str, tmp_path: Path) -> None:
    ingress = f"in-{secrets.token_hex(4)}"
    settings = waiting(config(kafka.url, ingress, allow_to=["orders-*"]))
    with prepared(tmp_path, settings), contextlib.closing(Arrivals(kafka.url, topic)) as arrivals:
        produce(tmp_path, "confluent-kafka", kafka.url, topic, "4", options=("--ingress", ingress))
        arrivals.wait(4)
        for n in range(4):
            at, record = arrivals.seen[b"m%d" % n]
            assert record.key == b"k%d" % n
            assert ("x-delay-due" in table(record)) == bool(n % 2)
            assert "x-delay-to" not in table(record)
            assert at >= int(table(record).get("x-delay-due", 0))
