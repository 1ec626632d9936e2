"""A Kafka for tests: given by address, started by Docker, or started as a private KRaft process from its Maven artifacts.

    DELAYBRIDGE_TEST_KAFKA_URL    use this broker, `host:port` (never restarted)

`python -m brokers.kafka` in tests/ starts one and keeps it until Ctrl-C or SIGTERM; `python -m brokers.kafka --install` fetches the artifacts (JDK
17 or later and Maven are needed) and does nothing where they are.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import functools
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka.admin
from kafka import KafkaAdminClient
from kafka.errors import InvalidReplicationFactorError
from testcontainers.core.container import DockerContainer

from brokers import classes, common, maven
from brokers.common import Unavailable, any_port, docker_has, free_port, wait_until
from brokers.private import START_TIMEOUT, GivenBroker, PrivateContainer, PrivateProcess, publish, running, until_stopped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from brokers.common import Ports

VERSION = os.environ.get("DELAYBRIDGE_TEST_KAFKA_VERSION", "4.4.0")
IMAGE = "apache/kafka:4.1.0"
POM = "kafka.pom.xml"
JARS = maven.cache() / f"kafka-{VERSION}-2"  # the number is raised where `install` does more than it did

Broker = common.Broker
"""A running Kafka; `url` is its `host:port`."""

SMALL = ("-Xmx512m", "-XX:+UseSerialGC")
"""What Java is told, unless somebody measures."""
USUAL = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-XX:MaxInlineLevel=15")
"""What Kafka's own start script tells it."""

_ONE_NODE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "broker.session.timeout.ms": "6000",  # a killed broker may register again after this; a starved one is fenced, and no topic can be made
    "broker.heartbeat.interval.ms": "500",
    "auto.create.topics.enable": "false",
    "message.max.bytes": "8388608",  # the contract's largest body is 5 MiB
}
_CLUSTER = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
_CLOCK = ("-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS")
"""How the broker's output tells the time: the tests print it where they fail, beside the daemon's log."""


def admin(url: str, **configs: Any) -> KafkaAdminClient:
    """A client that creates and deletes topics; close it."""
    return KafkaAdminClient(bootstrap_servers=url, bootstrap_timeout_ms=int(START_TIMEOUT * 1000), **configs)


def create_topic(url: str, name: str, partitions: int = 1, replicas: int = 1, **configs: str) -> None:
    """Create a topic and wait until the broker knows it; `configs` with `_` for `.`: `cleanup_policy="compact"`."""
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    wanted = {name: {"num_partitions": partitions, "replication_factor": replicas, "configs": settings}}

    def created() -> bool:
        try:
            client.create_topics(wanted)
        except InvalidReplicationFactorError:  # the only node is fenced: on a busy machine its heartbeat came too late
            return False
        return True

    with contextlib.closing(admin(url)) as client:
        wait_until(created, f"topic {name} to be created")
        client.wait_for_topics([name], timeout_ms=20_000)


def delete_topic(url: str, name: str) -> None:
    """Delete a topic and wait until the broker has forgotten it."""
    with contextlib.closing(admin(url)) as client:
        client.delete_topics([name])
        wait_until(lambda: name not in client.list_topics(), f"topic {name} to be gone")


def topics(url: str, within: float) -> int:
    """How many a client finds. Raises confluent_kafka.KafkaException where there is no answer within so many seconds."""
    return len(confluent_kafka.admin.AdminClient({"bootstrap.servers": url, "log_level": 0}).list_topics(timeout=within).topics)


def answers(url: str) -> bool:
    """Whether a client gets in."""
    if not common.listens(f"kafka://{url}"):
        return False
    try:
        topics(url, within=2)
    except confluent_kafka.KafkaException:
        return False
    return True


class Given(GivenBroker):
    """See the module."""

    variable = "DELAYBRIDGE_TEST_KAFKA_URL"

    def answers(self) -> bool:
        return answers(self.url)


class Native(PrivateProcess):
    """A private node, broker and controller in one process: own ports and data, on the loopback interface only.

    `listeners` adds some, by name with their protocol, as `{"SECURE": "SASL_SSL"}`; their addresses are in `urls`. `config` is added to
    server.properties. `scram` adds users, as `SCRAM-SHA-256=[name=alice,password=wonder]`. `first` makes it the second broker of that node's cluster.
    `java` is what Java is told.
    """

    name = "Kafka"

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        scram: Sequence[str] = (),
        ports: Ports = any_port,
        first: Native | None = None,
        java: Sequence[str] = SMALL,
    ) -> None:
        super().__init__()
        self._options = java
        self.provider = f"private process of Kafka {VERSION} in {JARS}"
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"} | dict(listeners or {})
        self.urls = {name: f"127.0.0.1:{ports(9092) if name == 'PLAINTEXT' else free_port()}" for name in protocols}
        self.url = self.urls["PLAINTEXT"]
        self._scram = scram
        self._own = bool(first or scram)  # it is formatted as no other one
        self._files(protocols, dict(config or {}), first)

    def _files(self, protocols: Mapping[str, str], config: dict[str, str], first: Native | None) -> None:
        addresses = {name: f"{name}://{url}" for name, url in self.urls.items()}
        advertised = ",".join(address for name, address in addresses.items() if name != "CONTROLLER")
        properties = {
            **_ONE_NODE,
            **({"node.id": "2", "process.roles": "broker"} if first else {}),
            "controller.quorum.voters": f"1@{(first or self).urls['CONTROLLER']}",
            "listeners": advertised if first else ",".join(addresses.values()),
            "advertised.listeners": advertised,
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "log.dirs": str(self.data),
            **config,
        }
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    @property
    def _properties(self) -> Path:
        return self.directory / "server.properties"

    def _java(self, options: Sequence[str], main: str) -> list[str]:
        return ["java", *options, *self.sharing(), *_CLOCK, "-cp", f"{JARS}/*", main]

    def sharing(self) -> list[str]:
        """How Java is told of the classes."""
        return classes.sharing(JARS)

    def prepare(self) -> None:
        if self.data.exists():
            return
        if self._own:
            self.format()
        else:
            shutil.copytree(_blank(), self.data)

    @property
    def data(self) -> Path:
        """Where it keeps everything."""
        return self.directory / "data"

    def format(self) -> None:
        """Write what a broker wants to find where it has never been. Raises Unavailable."""
        users = [part for user in self._scram for part in ("--add-scram", user)]
        tool = self._java(SMALL, "kafka.tools.StorageTool")
        done = subprocess.run(
            [*tool, "format", "-t", _CLUSTER, "-c", self._properties, *users],
            cwd=self.directory,
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise Unavailable(f"Kafka's storage could not be formatted:\n{done.stdout}\n{done.stderr}")

    def command(self) -> list[str | Path]:
        return [*self._java(self._options, "kafka.Kafka"), self._properties]

    def answers(self) -> bool:
        return answers(self.url)


@functools.cache
def _blank() -> Path:
    """What `format` writes for a lone node without users: it takes a second, and is always the same."""
    node = Native()
    atexit.register(node.stop)
    node.format()
    return node.data


class Dumping(classes.Dumping, Native):
    """One that writes down its classes when it stops."""

    jars = JARS


class Container(PrivateContainer):
    """Kafka in Docker, on a fixed port, so that a restart comes back where it was."""

    image = IMAGE

    def __init__(self, ports: Ports = any_port) -> None:
        super().__init__()
        port = ports(9092)
        self.url = f"127.0.0.1:{port}"
        # The broker speaks to itself at its advertised address, so its port is the same inside and outside.
        self.container = publish(DockerContainer(IMAGE), {port: port})
        properties = {
            **_ONE_NODE,
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": f"PLAINTEXT://:{port},CONTROLLER://:9093",
            "advertised.listeners": f"PLAINTEXT://{self.url}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
        for key, value in properties.items():
            self.container.with_env("KAFKA_" + key.upper().replace(".", "_"), value)

    def answers(self) -> bool:
        return answers(self.url)


def native() -> bool:
    """Whether a private process can be started here."""
    return JARS.is_dir() and shutil.which("java") is not None


def install() -> None:
    """Fetch the broker's artifacts and dump their classes, unless they are there. Raises Unavailable."""
    if not JARS.is_dir():
        maven.fetch(POM, JARS, f"kafka.version={VERSION}")
    if not classes.sharing(JARS):
        with running(Dumping()):
            pass


def choose(ports: Ports = any_port, *, java: Sequence[str] = SMALL) -> Broker:
    """The first of: given by address, Docker, native, whose Java is told this. Nothing is started yet. Raises Unavailable."""
    if url := os.environ.get("DELAYBRIDGE_TEST_KAFKA_URL"):
        return Given(url)
    if docker_has(IMAGE):
        return Container(ports)
    if native():
        return Native(ports=ports, java=java)
    raise Unavailable(f"no DELAYBRIDGE_TEST_KAFKA_URL, no Docker with {IMAGE}, no java or no {JARS} (python -m brokers.kafka --install)")


def start(*, java: Sequence[str] = SMALL) -> contextlib.AbstractContextManager[Broker]:
    """The broker that `choose` finds, running. Raises Unavailable."""
    return running(choose(java=java))


if __name__ == "__main__":
    if sys.argv[1:] == ["--install"]:
        install()
    else:
        until_stopped(choose, "provider", "url")
