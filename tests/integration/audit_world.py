"""Two bridges between three real brokers, observers at each destination, and the audit of what they all wrote; see test_audit_end_to_end.py."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pika
import pyarrow.parquet as pq

from delaybridge.spark_jobs.arguments import parse
from delaybridge.spark_jobs.reconcile import reconcile
from integration.brokers_ends import ActiveEnd, End, Flat, KafkaEnd, RabbitEnd
from integration.daemon import COMMAND, Daemon
from integration.rabbit import now_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

ROUTES = {
    "north": (("rabbitmq", "kafka"), ("kafka", "activemq"), ("activemq", "rabbitmq")),
    "south": (("rabbitmq", "activemq"), ("kafka", "rabbitmq"), ("activemq", "kafka")),
}
"""Each bridge reads from each broker, and both deliver to one destination on each."""

BROKERS = ("rabbitmq", "kafka", "activemq")
OUT = "out"
PATIENCE = 60.0


class Wave(NamedTuple):
    """Messages that fall due within a window, epoch ms, and their ids."""

    since: int
    until: int
    ids: tuple[str, ...]


class World:
    """The brokers' ends, the bridges and the observers."""

    def __init__(self, folder: Path, rabbitmq: Any, kafka: Any, activemq: Any) -> None:
        self.folder = folder
        self.rabbit = RabbitEnd(rabbitmq)
        self.ends: dict[str, End] = {"rabbitmq": self.rabbit, "kafka": KafkaEnd(kafka), "activemq": ActiveEnd(activemq)}
        for end in self.ends.values():
            end.declare(OUT)
        self.bridges = {name: self._bridge(name) for name in ROUTES}
        self._observers: dict[str, subprocess.Popen[str]] = {}

    def _bridge(self, name: str) -> Daemon:
        (self.folder / name).mkdir()
        routes = [self._route(name, *pair) for pair in ROUTES[name]]
        brokers = {broker: end.options() for broker, end in self.ends.items()}
        return Daemon(self.folder / name, {"bridge": name, "brokers": brokers, "routes": routes, "ledger": {"flush_interval": 500}})

    def _route(self, bridge: str, source: str, sink: str) -> dict[str, Any]:
        taken = {"broker": source} | self.ends[source].declare(f"{bridge}.in")
        if source == "kafka":
            taken["instance"] = bridge  # who comes back after a kill has its partitions at once
        return {"name": f"{source}-{sink}", "from": taken, "to": {"broker": sink, "address": self.ends[sink].address(OUT)}}

    def send(self, bridge: str, wave: Wave) -> None:
        """To each of the bridge's sources those that are its own, spread over the wave; returns when the brokers have them."""
        for source in BROKERS:
            mine = [id_ for id_ in wave.ids if id_.startswith(f"{bridge}-{source}-")]
            step = (wave.until - wave.since) / len(mine)
            self.ends[source].send(f"{bridge}.in", [_message(source, id_, round(wave.since + at * step)) for at, id_ in enumerate(mine)])

    def observe(self, count: dict[str, int]) -> None:
        """Start `delaybridge observe` at the destination on each broker, for so many messages each; returns when all listen."""
        config = self.bridges["north"].file
        for broker, number in count.items():
            command: list[str | Path] = [COMMAND, "observe", self.ends[broker].address(OUT), "--broker", broker, "--config", config]
            told: list[str | Path] = ["--to", self.folder / "seen" / broker, "--count", str(number), "--take"]
            self._observers[broker] = subprocess.Popen([*command, *told], stderr=subprocess.PIPE, text=True)
        for observer in self._observers.values():
            assert observer.stderr is not None
            assert observer.stderr.readline().startswith("observing ")

    def observed(self) -> None:
        """Wait until the observers have seen as much as they were told to."""
        for broker, observer in self._observers.items():
            _, errors = observer.communicate(timeout=PATIENCE)
            assert (observer.returncode, errors.split()[:3]) == (0, [*errors.split()[:1], "messages", "written"]), (broker, errors)

    def steal(self) -> str:
        """Take the next message away from the destination on RabbitMQ, before its observer sees it; its id."""
        stolen: list[str] = []
        channel, queue = self.rabbit._rabbit.connection.channel(), self.rabbit._rabbit.name(OUT)

        def take(_: Any, method: Any, properties: Any, __: bytes) -> None:
            channel.basic_cancel("thief")
            channel.basic_ack(method.delivery_tag)
            stolen.append(properties.headers["x-delay-id"])

        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(queue, take, consumer_tag="thief", arguments={"x-priority": 10})
        deadline = time.monotonic() + PATIENCE
        while not stolen:
            assert time.monotonic() < deadline, "nothing came to be stolen"
            self.rabbit._rabbit.connection.process_data_events(0.1)
        channel.close()
        [one] = stolen
        return one

    def audit(self, spark: SparkSession, wave: Wave) -> dict[str, Any]:
        """What the audit says of the wave."""
        inputs = [word for bridge in self.bridges.values() for word in ("--ledger", str(bridge.store / "ledger"))]
        inputs += [word for broker in BROKERS for word in ("--observed", str(self.folder / "seen" / broker))]
        return audited(spark, inputs, wave.since, wave.until, self.folder / "audits")

    def close(self) -> None:
        for observer in self._observers.values():
            observer.kill()
            observer.communicate()
        for bridge in self.bridges.values():
            bridge.close()
        for end in self.ends.values():
            end.close()


def audited(spark: SparkSession, inputs: Sequence[str], since: int, until: int, out: Path) -> dict[str, Any]:
    """The report of what was due from the one epoch ms to before the other, after all have ended."""
    window = ["--since", _instant(since), "--until", _instant(until), "--all-ended", "--sla", "20s"]
    return reconcile(spark, parse([*inputs, *window, "--out", str(out)], now_ms()), lambda _: None)


def _message(source: str, id_: str, due: int) -> Flat:
    write: Any = str.encode if source == "kafka" else str
    beside = {
        "rabbitmq": {".message_id": id_, ".delivery_mode": pika.DeliveryMode.Persistent.value},
        "kafka": {"#key": id_.encode(), ".timestamp": now_ms()},
        "activemq": {"#text": True, ".persistent": "true"},
    }
    return {"#body": id_.encode(), "x-delay-id": write(id_), "x-delay-until": write(str(due))} | beside[source]


def _instant(epoch_ms: int) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(epoch_ms // 1000))}.{epoch_ms % 1000:03d}Z"


def rows(told: dict[str, Any], table: str) -> list[dict[str, Any]]:
    """A table of an audit's result."""
    files = sorted(Path(told["tables"][table].removeprefix("file:")).glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]
