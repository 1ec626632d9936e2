"""What finding and starting a broker takes, whichever it is."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import docker
import docker.errors
from testcontainers.core.config import testcontainers_config

if TYPE_CHECKING:
    from collections.abc import Callable

    Ports = Callable[[int], int]  # from the port that a protocol usually has, to the one to listen on


class Unavailable(Exception):
    """There is no such broker to be had; the text says why."""


class Broker(Protocol):
    """A running broker.

    `kill` is kill -9, `start` brings it back on the same data, at the same address. They refuse on a broker that is not ours, which is not
    `restartable`.
    """

    provider: str
    url: str
    restartable: bool

    def kill(self) -> None: ...

    def stop(self) -> None: ...

    def start(self) -> None: ...

    def restart(self) -> None: ...


_given: set[int] = set()


def free_port() -> int:
    """A free port below the range from which outgoing connections take theirs, and no other test's: a restarted broker must find it free again."""
    first = 20000 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 4 * 3000
    while True:
        port = random.randrange(first, first + 3000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port


def any_port(_usual: int) -> int:
    """A free port, whatever the usual one is: what tests use."""
    return free_port()


def usual_port(usual: int) -> int:
    """The usual port where it is free, else another: what people expect."""
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that ended a moment ago do not matter
        probe.bind(("127.0.0.1", usual))
        return usual
    return free_port()


def wait_until(condition: Callable[[], bool], what: str, timeout: float = 15.0, *, pause: float = 0.02) -> None:
    """Wait for a condition, asking again after each `pause`. Raises AssertionError with `what` when it does not come in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        time.sleep(pause)


def listens(url: str) -> bool:
    """Whether a TCP connection to the host and port of this URL succeeds."""
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=1).close()
    except OSError:
        return False
    return True


def docker_listens() -> bool:
    """Whether somebody is behind Docker's socket; its client leaks its own where nobody is."""
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not host.startswith("unix://"):
        return listens(host)
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(host.removeprefix("unix://")) == 0


def docker_has(image: str) -> bool:
    """Whether a Docker daemon answers and has the image, and the one by which testcontainers cleans up, or can pull them."""
    if not docker_listens():
        return False
    needed = [image] if testcontainers_config.ryuk_disabled else [image, testcontainers_config.ryuk_image]
    try:
        with contextlib.closing(docker.from_env(timeout=30)) as client:
            for each in needed:
                _have(client, each)
    except docker.errors.DockerException:
        return False
    return True


def _have(client: docker.DockerClient, image: str) -> None:
    try:
        client.images.get(image)
    except docker.errors.ImageNotFound:
        client.images.pull(image)
