"""An ActiveMQ behind the interceptors that `delaybridge plan` prints, with a daemon beside it, and clients that know nothing of the bridge."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlsplit

import brokers
import stomp
from brokers.activemq import Native, libraries
from brokers.common import wait_until
from brokers.private import running
from pydantic import SecretStr

from delaybridge.adapters.activemq import ActiveMQ, Endpoint, adapter
from delaybridge.adapters.activemq.interception import ActiveInterception
from delaybridge.adapters.activemq.statistics import PLUGIN
from integration.daemon import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.stores import Waiting

INGRESS = "DELAYBRIDGE.IN"
GATES = ("/queue/orders.>", "bills", "/topic/events.*")
SCHEDULER = Path(brokers.__file__ or "").with_name("Scheduler.java")
MANAGEMENT = "/topic/ActiveMQ.Scheduler.Management"
PATIENCE = 60.0


class Arrival(NamedTuple):
    """A message as plain stomp.py hands it over, and when (epoch ms)."""

    body: str
    headers: dict[str, str]
    at: float

    @property
    def due(self) -> int:
        return int(self.headers["x-delay-due"])


class App(stomp.ConnectionListener):  # type: ignore[misc]  # stomp.py has no annotations
    """A producer and consumer of a user's."""

    def __init__(self, url: str) -> None:
        self.arrivals: list[Arrival] = []
        self.errors: list[str] = []
        self._receipts: set[str] = set()
        self._changed = threading.Condition()
        parts = urlsplit(url)
        self._connection = stomp.Connection12([(parts.hostname, parts.port)])
        self._connection.set_listener("app", self)
        self._connection.connect(wait=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.disconnect()

    def on_message(self, frame: Any) -> None:
        arrival = Arrival(frame.body, dict(frame.headers), time.time() * 1000)
        with self._changed:
            self.arrivals.append(arrival)
            self._changed.notify()

    def on_receipt(self, frame: Any) -> None:
        with self._changed:
            self._receipts.add(frame.headers["receipt-id"])
            self._changed.notify()

    def on_error(self, frame: Any) -> None:
        self.errors.append(frame.headers.get("message", ""))

    def _confirmed(self, receipt: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: receipt in self._receipts, PATIENCE), f"no receipt; errors: {self.errors}"

    def subscribe(self, destination: str) -> None:
        """Returns when the broker has the subscription."""
        receipt = secrets.token_hex(4)
        self._connection.subscribe(destination, secrets.token_hex(4), headers={"receipt": receipt})
        self._confirmed(receipt)

    def send(self, destination: str, body: str, **headers: str | int) -> float:
        """When it was sent (epoch ms); returns when the broker has it."""
        receipt, sent = secrets.token_hex(4), time.time() * 1000
        texts = {name: str(value) for name, value in headers.items()}
        self._connection.send(destination, body, headers=texts | {"receipt": receipt})
        self._confirmed(receipt)
        return sent

    def post(self, destination: str, body: str, **headers: str | int) -> None:
        """Send without waiting."""
        self._connection.send(destination, body, headers={name: str(value) for name, value in headers.items()})

    def manage(self, action: str, **headers: str | int) -> None:
        """A management message, as ActiveMQ's documentation has it."""
        self.send(MANAGEMENT, "", AMQ_SCHEDULER_ACTION=action, **headers)

    def receive(self, count: int, timeout: float = PATIENCE) -> list[Arrival]:
        """Exactly the next `count`."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self.arrivals) >= count, timeout)
        assert came, f"{len(self.arrivals)} of {count} came: {self.arrivals}"
        taken, self.arrivals[:count] = self.arrivals[:count], []
        return taken

    def one(self) -> Arrival:
        (arrival,) = self.receive(1)
        return arrival


class Stage(NamedTuple):
    """The broker, and the daemon beside it."""

    broker: Native
    daemon: Daemon

    def app(self) -> App:
        return App(self.broker.url)

    def wait_pending(self, count: int) -> None:
        wait_until(lambda: self.daemon.pending() == count, f"{count} pending messages")


@contextlib.contextmanager
def intercepted() -> Iterator[Native]:
    """The broker. Raises brokers.common.Unavailable."""
    broker = Native(libraries())
    options = ActiveMQ(url=SecretStr(broker.url), connection_timeout=15)
    composite = adapter.interception(options, [Endpoint(queue=INGRESS, gate=GATES)])
    assert isinstance(composite, ActiveInterception)
    broker.configure(xml=composite.xml() + PLUGIN)
    with running(broker):
        yield broker


@contextlib.contextmanager
def stage(broker: Native, directory: Path, waiting: Waiting) -> Iterator[Stage]:
    """A daemon beside it, whose messages wait there."""
    config = {
        "brokers": {"amq": {"type": "activemq", "url": broker.url}},
        "routes": [{"name": "orders", "from": {"broker": "amq", "queue": INGRESS, "gate": list(GATES)}, "to": {"broker": "amq"}}],
        "limits": {"min_period": "200ms"},
    }
    with Daemon(directory, waiting(config)) as daemon:
        daemon.start()
        yield Stage(broker, daemon)
        assert daemon.terminate() == 0


def manage(broker: Native, action: str, *arguments: str) -> list[list[str]]:
    """A management message of a JMS client's: what Scheduler.java printed, line by line, cut at the tabs."""
    command = ["java", "-cp", f"{broker.libraries}/*", str(SCHEDULER), broker.openwire_url, action, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]
