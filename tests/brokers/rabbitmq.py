"""A RabbitMQ for tests: given by URL, started by Docker, or started as a private process from the system's package.

    DELAYBRIDGE_TEST_RABBITMQ_URL              use this broker (never restarted)
    DELAYBRIDGE_TEST_RABBITMQ_MANAGEMENT_URL   and its management API
    DELAYBRIDGE_TEST_RABBITMQ_SERVER           start this `rabbitmq-server` (`rabbitmqctl` stands beside it)

`python -m brokers.rabbitmq` in tests/ starts one and keeps it until Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import httpx
import pika
import pika.exceptions
from testcontainers.core.container import DockerContainer

from brokers import common
from brokers.common import Unavailable, any_port, docker_has, free_port, listens
from brokers.private import GivenBroker, PrivateContainer, PrivateProcess, publish, running, until_stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.common import Ports

IMAGE = "rabbitmq:4.2-management"
SERVER = Path(os.environ.get("DELAYBRIDGE_TEST_RABBITMQ_SERVER", "/usr/lib/rabbitmq/bin/rabbitmq-server"))

AFTER_RESTART = 240.0
"""Seconds that messages may take to leave a level after a restart.

A level that begins to dead-letter before the node knows its exchanges tries again after `dead_letter_worker_publisher_confirm_timeout`, three minutes.
"""

ADVANCED = "[{rabbit, [{dead_letter_worker_publisher_confirm_timeout, 5000}]}]."
"""What docs/scaling.md recommends, so that the tests of our own brokers need not wait for that."""


class Broker(common.Broker, Protocol):
    """A running RabbitMQ; `control` runs rabbitmqctl and gives what it prints."""

    management_url: str

    def control(self, *arguments: str) -> str: ...


def kept(broker: Broker, queue: str) -> int:
    """How many messages a queue of the first virtual host has, those included that a consumer has not acknowledged."""
    table = broker.control("--quiet", "list_queues", "name", "messages").splitlines()
    return next(int(line.split()[1]) for line in table if line.split()[0] == queue)


def answers(url: str) -> bool:
    """Whether an AMQP client gets in."""
    parameters = pika.URLParameters(url)
    parameters.socket_timeout = parameters.stack_timeout = 2
    try:
        pika.BlockingConnection(parameters).close()
    except (pika.exceptions.AMQPError, OSError):
        return False
    return True


@contextlib.contextmanager
def user(management_url: str, name: str, tags: str = "", **permissions: str) -> Iterator[str]:
    """Its name: a user whose password is `secret`, and who may do everything but for `permissions`."""
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    with httpx.Client(base_url=f"{management_url}/api", timeout=60, trust_env=False) as api:
        api.put(f"/users/{name}", json={"password": "secret", "tags": tags}).raise_for_status()
        api.put(f"/permissions/%2F/{name}", json=everything | permissions).raise_for_status()
        yield name
        api.delete(f"/users/{name}").raise_for_status()


class Given(GivenBroker):
    """See the module."""

    variable = "DELAYBRIDGE_TEST_RABBITMQ_URL"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.management_url = os.environ.get("DELAYBRIDGE_TEST_RABBITMQ_MANAGEMENT_URL", "")

    def answers(self) -> bool:
        return answers(self.url)

    def control(self, *arguments: str) -> str:
        raise Unavailable(f"this broker is not ours to control: {arguments}")


class Native(PrivateProcess):
    """A private node of the system's RabbitMQ: own ports, data, cookie and epmd, on the loopback interface only.

    `config` is added to rabbitmq.conf; `environment` to the environment.
    """

    name = "RabbitMQ"

    def __init__(self, config: str = "", environment: dict[str, str] | None = None, ports: Ports = any_port) -> None:
        super().__init__()
        self._port, self._management = ports(5672), ports(15672)
        self._epmd, distribution = free_port(), free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self._port}/%2F"
        self.management_url = f"http://guest:guest@127.0.0.1:{self._management}"
        self.provider = f"private process of {SERVER}"
        self._files(config)
        self._environment = self._variables(distribution) | (environment or {})

    def _files(self, config: str) -> None:
        (self.directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self._port}\n"
            f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self._management}\n"
            "log.file = false\nlog.console = true\nlog.console.level = warning\n"
            "disk_free_limit.absolute = 50MB\n"
            "max_message_size = 134217728\n" + config  # RabbitMQ 4 has 16 MiB, and the largest body of the contract is 64
        )
        (self.directory / "advanced.config").write_text(ADVANCED)
        (self.directory / "enabled_plugins").write_text("[rabbitmq_management].")
        (self.directory / "rabbitmq-env.conf").touch()

    def _variables(self, distribution: int) -> dict[str, str]:
        at = self.directory
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(at),  # the Erlang cookie lies here
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self._epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"delaybridge-{self._port}@localhost",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(at / "data"),
            "RABBITMQ_LOG_BASE": str(at / "log"),
            "RABBITMQ_CONFIG_FILE": str(at / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(at / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": str(at / "rabbitmq-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(at / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(at / "pid"),
            "RABBITMQ_ALLOW_INPUT": "1",  # the script then replaces itself by the node, so that signals reach it
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput -kernel inet_dist_use_interface {127,0,0,1}",
        }

    def command(self) -> list[Path]:
        return [SERVER]

    def environment(self) -> dict[str, str]:
        return self._environment

    def answers(self) -> bool:
        return listens(self.url) and answers(self.url) and listens(self.management_url)

    def control(self, *arguments: str) -> str:
        command: list[str | Path] = [SERVER.with_name("rabbitmqctl"), *arguments]
        return subprocess.run(command, env=self._environment, check=True, capture_output=True, text=True).stdout

    def stop(self) -> None:
        self.kill()
        subprocess.run(["epmd", "-kill"], env=self._environment, check=False, capture_output=True)
        super().stop()


class Container(PrivateContainer):
    """RabbitMQ in Docker, on fixed ports, so that a restart comes back where it was."""

    image = IMAGE

    def __init__(self, ports: Ports = any_port) -> None:
        super().__init__()
        port, management = ports(5672), ports(15672)
        self.url = f"amqp://guest:guest@127.0.0.1:{port}/%2F"
        self.management_url = f"http://guest:guest@127.0.0.1:{management}"
        self.container = publish(DockerContainer(IMAGE), {5672: port, 15672: management})

    def answers(self) -> bool:
        return listens(self.url) and answers(self.url) and listens(self.management_url)

    def control(self, *arguments: str) -> str:
        code, output = self.container.exec(["rabbitmqctl", *arguments])
        assert code == 0, output
        return str(output, "utf-8")


def choose(ports: Ports = any_port) -> Broker:
    """The first of: given by URL, Docker, native. Nothing is started yet. Raises Unavailable."""
    if url := os.environ.get("DELAYBRIDGE_TEST_RABBITMQ_URL"):
        return Given(url)
    if docker_has(IMAGE):
        return Container(ports)
    if SERVER.exists():
        return Native(ports=ports)
    raise Unavailable(f"no DELAYBRIDGE_TEST_RABBITMQ_URL, no Docker with {IMAGE}, no {SERVER} (apt install rabbitmq-server)")


def start() -> contextlib.AbstractContextManager[Broker]:
    """The broker that `choose` finds, running. Raises Unavailable."""
    return running(choose())


if __name__ == "__main__":
    until_stopped(choose, "provider", "url", "management_url")
