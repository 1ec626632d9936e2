"""A broker that is given, or ours alone: a process with a directory of its own, or a container. Ours come back on the same data, at the same address."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast
from urllib.parse import urlsplit

import docker.errors
from testcontainers.core.container import DockerContainer

from brokers.common import Broker, Unavailable, wait_until

START_TIMEOUT = 120.0


class GivenBroker(ABC):
    """A broker that somebody else runs, named by the environment variable `variable`. It is left alone."""

    restartable = False
    variable: str
    url: str

    def __init__(self, url: str) -> None:
        self.url = url
        self.provider = f"given at {urlsplit(url).hostname or url}"

    @abstractmethod
    def answers(self) -> bool:
        """Whether clients get in."""

    def start(self) -> None:
        if not self.answers():
            raise Unavailable(f"nothing answers at {self.variable} ({urlsplit(self.url).hostname or self.url})")

    def stop(self) -> None:  # noqa: B027 - others stop theirs
        """Leave it alone."""

    def kill(self) -> None:
        raise Unavailable("this broker is not ours to kill")

    restart = kill


class PrivateProcess(ABC):
    """Runs `command` in `directory`, which goes with it; it is up when it `answers`."""

    restartable = True
    name: str
    provider: str
    url: str
    ours: ClassVar[list[PrivateProcess]] = []
    """Those that run now."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"delaybridge-{self.name.lower()}-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0  # also those after a kill

    @abstractmethod
    def command(self) -> Sequence[str | Path]:
        """Raises Unavailable."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether clients get in."""

    def environment(self) -> Mapping[str, str] | None:
        """None: that of the tests."""
        return None

    def prepare(self) -> None:  # noqa: B027 - most need nothing
        """What it takes before the first start. Raises Unavailable."""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def output(self) -> str:
        """What the broker has printed."""
        return (self.directory / "output").read_text(errors="replace")

    def start(self) -> None:
        self.prepare()
        with (self.directory / "output").open("ab") as output:
            self._process = subprocess.Popen(
                self.command(), env=self.environment(), cwd=self.directory, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self.ours.append(self)
        self.starts += 1
        deadline = time.monotonic() + START_TIMEOUT
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(f"{self.name} did not start:\n{self.output[-4000:]}")
            time.sleep(0.1)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(START_TIMEOUT)
            self._process = None
            self.ours.remove(self)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self._end(signal.SIGTERM)
        self.start()

    def stop(self) -> None:
        self.kill()  # its data go anyway
        shutil.rmtree(self.directory, ignore_errors=True)


class PrivateContainer(ABC):
    """Runs `container`, on fixed ports of the loopback interface; it is up when it `answers`."""

    restartable = True
    image: str
    provider: str
    url: str
    container: DockerContainer

    def __init__(self) -> None:
        self.provider = f"Docker image {self.image}"
        self._created = False

    @abstractmethod
    def answers(self) -> bool:
        """Whether clients get in."""

    def start(self) -> None:
        try:
            if self._created:
                self.container.get_wrapped_container().start()
            else:
                self.container.start()
        except docker.errors.DockerException as error:
            raise Unavailable(f"Docker has {self.image} and does not run it: {error}") from error
        self._created = True
        wait_until(self.answers, f"{self.image} to answer", START_TIMEOUT)

    def kill(self) -> None:
        self.container.get_wrapped_container().kill()

    def restart(self) -> None:
        self.container.get_wrapped_container().stop()
        self.start()

    def stop(self) -> None:
        self.container.stop()


def publish(container: DockerContainer, ports: Mapping[int, int]) -> DockerContainer:
    """Lead these ports of the loopback interface to the container: from its port to the host's. testcontainers would open them on all interfaces."""
    cast("dict[str, Any]", container.ports).update({f"{inside}/tcp": ("127.0.0.1", outside) for inside, outside in ports.items()})
    return container


B = TypeVar("B", bound=Broker)


@contextlib.contextmanager
def running(broker: B) -> Iterator[B]:
    """This broker, for the length of the `with` block. Raises Unavailable."""
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def until_stopped(choose: Callable[[], B], *facts: str) -> None:
    """Run one until Ctrl-C or SIGTERM, and print these attributes of it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with running(choose()) as broker, contextlib.suppress(KeyboardInterrupt):
        print(*(getattr(broker, fact) for fact in facts), sep="\n", flush=True)
        signal.pause()
