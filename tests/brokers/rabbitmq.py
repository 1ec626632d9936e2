"""A RabbitMQ for tests: given by URL, started by Docker, or started as a private process from the system's package.

    DELAYBRIDGE_TEST_RABBITMQ_URL              use this broker (never restarted)
    DELAYBRIDGE_TEST_RABBITMQ_MANAGEMENT_URL   and its management API

`python -m brokers.rabbitmq` in tests/ starts one and keeps it until Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import docker
import docker.errors
import pika
import pika.exceptions
from testcontainers.core.container import DockerContainer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

IMAGE = "rabbitmq:4.2-management"
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
START_TIMEOUT = 60.0


class Unavailable(Exception):
    """There is no RabbitMQ to be had; the text says why."""


class Broker(Protocol):
    """A running RabbitMQ.

    `kill` is kill -9, `start` brings it back on the same data, `control` runs rabbitmqctl and gives what it prints. They refuse on a broker
    that is not ours, which is not `restartable`.
    """

    provider: str
    url: str
    management_url: str
    restartable: bool

    def kill(self) -> None: ...

    def stop(self) -> None: ...

    def start(self) -> None: ...

    def restart(self) -> None: ...

    def control(self, *arguments: str) -> str: ...


def free_port() -> int:
    """A free port below the range from which outgoing connections take theirs: a restarted broker must find it free again."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_until(condition: Callable[[], bool], what: str, timeout: float = 15.0) -> None:
    """Wait for a condition. Raises AssertionError with `what` when it does not come in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        time.sleep(0.02)


def answers(url: str) -> bool:
    """Whether an AMQP client gets in."""
    parameters = pika.URLParameters(url)
    parameters.socket_timeout = parameters.stack_timeout = 2
    try:
        pika.BlockingConnection(parameters).close()
    except (pika.exceptions.AMQPError, OSError):
        return False
    return True


def listens(url: str) -> bool:
    """Whether a TCP connection to the host and port of this URL succeeds."""
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=1).close()
    except OSError:
        return False
    return True


class Given:
    """A broker that somebody else runs."""

    restartable = False

    def __init__(self, url: str) -> None:
        self.url = url
        self.management_url = os.environ.get("DELAYBRIDGE_TEST_RABBITMQ_MANAGEMENT_URL", "")
        self.provider = f"given at {urlsplit(url).hostname}"

    def start(self) -> None:
        if not answers(self.url):
            raise Unavailable(f"nothing answers at DELAYBRIDGE_TEST_RABBITMQ_URL ({urlsplit(self.url).hostname})")

    def stop(self) -> None:
        """Leave it alone."""

    def kill(self) -> None:
        raise Unavailable("this broker is not ours to kill")

    restart = kill

    def control(self, *arguments: str) -> str:
        raise Unavailable(f"this broker is not ours to control: {arguments}")


class Native:
    """A private node of the system's RabbitMQ: own ports, data, cookie and epmd, on the loopback interface only.

    `config` is added to rabbitmq.conf; `environment` to the environment.
    """

    restartable = True

    def __init__(self, config: str = "", environment: dict[str, str] | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="delaybridge-rabbitmq-"))
        self._port, self._management, self._epmd, distribution = (free_port() for _ in range(4))
        self.url = f"amqp://guest:guest@127.0.0.1:{self._port}/%2F"
        self.management_url = f"http://guest:guest@127.0.0.1:{self._management}"
        self.provider = f"private process of {SERVER}"
        self._process: subprocess.Popen[bytes] | None = None
        self._files(config)
        self._environment = self._variables(distribution) | (environment or {})

    def _files(self, config: str) -> None:
        (self.directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self._port}\n"
            f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self._management}\n"
            "log.file = false\nlog.console = true\nlog.console.level = warning\n"
            "disk_free_limit.absolute = 50MB\n" + config
        )
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
            "RABBITMQ_CONF_ENV_FILE": str(at / "rabbitmq-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(at / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(at / "pid"),
            "RABBITMQ_ALLOW_INPUT": "1",  # the script then replaces itself by the node, so that signals reach it
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput -kernel inet_dist_use_interface {127,0,0,1}",
        }

    def start(self) -> None:
        with (self.directory / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [SERVER], env=self._environment, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        deadline = time.monotonic() + START_TIMEOUT
        while not (listens(self.url) and answers(self.url) and listens(self.management_url)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(f"{SERVER} did not start:\n{(self.directory / 'output').read_text()[-4000:]}")
            time.sleep(0.1)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(START_TIMEOUT)
            self._process = None

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self._end(signal.SIGTERM)
        self.start()

    def control(self, *arguments: str) -> str:
        command: list[str | Path] = [SERVER.with_name("rabbitmqctl"), *arguments]
        return subprocess.run(command, env=self._environment, check=True, capture_output=True, text=True).stdout

    def stop(self) -> None:
        self.kill()  # its data go anyway
        subprocess.run(["epmd", "-kill"], env=self._environment, check=False, capture_output=True)
        shutil.rmtree(self.directory, ignore_errors=True)


class Container:
    """RabbitMQ in Docker, on fixed ports, so that a restart comes back where it was."""

    restartable = True

    def __init__(self) -> None:
        port, management = free_port(), free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{port}/%2F"
        self.management_url = f"http://guest:guest@127.0.0.1:{management}"
        self.provider = f"Docker image {IMAGE}"
        self._created = False
        self._container = DockerContainer(IMAGE).with_bind_ports(5672, port).with_bind_ports(15672, management)

    def start(self) -> None:
        try:
            if self._created:
                self._container.get_wrapped_container().start()
            else:
                self._container.start()
        except docker.errors.DockerException as error:
            raise Unavailable(f"Docker has {IMAGE} and does not run it: {error}") from error
        self._created = True
        wait_until(
            lambda: listens(self.url) and answers(self.url) and listens(self.management_url), "RabbitMQ in its container", START_TIMEOUT
        )

    def kill(self) -> None:
        self._container.get_wrapped_container().kill()

    def restart(self) -> None:
        self._container.get_wrapped_container().stop()
        self.start()

    def control(self, *arguments: str) -> str:
        code, output = self._container.exec(["rabbitmqctl", *arguments])
        assert code == 0, output
        return str(output, "utf-8")

    def stop(self) -> None:
        self._container.stop()


def docker_listens() -> bool:
    """Whether somebody is behind Docker's socket; its client leaks its own where nobody is."""
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not host.startswith("unix://"):
        return listens(host)
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(host.removeprefix("unix://")) == 0


def docker_has(image: str) -> bool:
    """Whether a Docker daemon answers and has the image, or can pull it."""
    if not docker_listens():
        return False
    try:
        with contextlib.closing(docker.from_env(timeout=30)) as client:
            try:
                client.images.get(image)
            except docker.errors.ImageNotFound:
                client.images.pull(image)
    except docker.errors.DockerException:
        return False
    return True


def choose() -> Broker:
    """The first of: given by URL, Docker, native. Nothing is started yet. Raises Unavailable."""
    if url := os.environ.get("DELAYBRIDGE_TEST_RABBITMQ_URL"):
        return Given(url)
    if docker_has(IMAGE):
        return Container()
    if SERVER.exists():
        return Native()
    raise Unavailable(f"no DELAYBRIDGE_TEST_RABBITMQ_URL, no Docker with {IMAGE}, no {SERVER} (apt install rabbitmq-server)")


@contextlib.contextmanager
def start() -> Iterator[Broker]:
    """A running broker for the length of the `with` block. Raises Unavailable."""
    broker = choose()
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with start() as running, contextlib.suppress(KeyboardInterrupt):
        print(running.provider, running.url, running.management_url, sep="\n", flush=True)
        signal.pause()
