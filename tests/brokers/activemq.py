"""An ActiveMQ Classic for tests: given by URL, started by Docker, or started as a private process.

    DELAYBRIDGE_TEST_ACTIVEMQ_URL            use this broker (never restarted), stomp://host:port
    DELAYBRIDGE_TEST_ACTIVEMQ_OPENWIRE_URL   and its port for JMS clients, tcp://host:port

In tests/, `python -m brokers.activemq --install` fetches the current release from Maven Central into the user's cache, where private processes are
started from; without it Debian's package serves. `python -m brokers.activemq` starts one and keeps it until Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from testcontainers.core.container import DockerContainer

from brokers import classes, common, maven
from brokers.common import Unavailable, any_port, docker_has, listens
from brokers.private import GivenBroker, PrivateContainer, PrivateProcess, publish, running, until_stopped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from brokers.common import Ports

VERSION = "6.3.1"  # as in activemq.pom.xml
JARS = 3  # raise it when the pom names others, or `install` does more than it did: then they are fetched anew
POM = "activemq.pom.xml"
IMAGE = "apache/activemq-classic:6.1.7"
DEBIAN = Path("/usr/share/activemq/lib")

SMALL = ("-Xmx384m", "-XX:+UseSerialGC")
"""Java's options where several brokers share a small machine."""

USAGE = """
    <systemUsage><systemUsage>
      <memoryUsage><memoryUsage limit="128 mb"/></memoryUsage>
      <storeUsage><storeUsage limit="4 gb"/></storeUsage>
      <tempUsage><tempUsage limit="1 gb"/></tempUsage>
    </systemUsage></systemUsage>"""


class Broker(common.Broker, Protocol):
    """A running ActiveMQ. `openwire_url` is for JMS clients, `libraries` the jars to run one with; empty and None where unknown."""

    openwire_url: str
    libraries: Path | None


def configuration(
    stomp: str,
    openwire: str,
    data: str,
    *,
    xml: str = "",
    usage: str = USAGE,
    scheduler: bool = False,
    connectors: str = "",
    purge: int = 0,
) -> str:
    """An activemq.xml. `xml` stands in the broker element: `<destinationInterceptors>`, `<sslContext>` and the like; `connectors` beside the two.

    Every `purge` milliseconds unused queues are deleted, where `xml` has a policy that says so.
    """
    return f"""<beans xmlns="http://www.springframework.org/schema/beans" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd
                           http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="tests" dataDirectory="{data}" useJmx="false" useShutdownHook="true"
          schedulerSupport="{str(scheduler).lower()}" schedulePeriodForDestinationPurge="{purge}">
    {xml}
    <persistenceAdapter><kahaDB directory="{data}/kahadb" journalMaxFileLength="32mb"/></persistenceAdapter>{usage}
    <transportConnectors>
      <transportConnector name="stomp" uri="{stomp}?transport.hbGracePeriodMultiplier=1.5&amp;transport.tcpNoDelay=true"/>
      <transportConnector name="openwire" uri="{openwire}"/>
      {connectors}
    </transportConnectors>
  </broker>
</beans>
"""


def answers(url: str) -> bool:
    """Whether a STOMP client gets in."""
    parts = urlsplit(url)
    with contextlib.suppress(OSError), socket.create_connection((parts.hostname or "", parts.port or 61613), timeout=2) as client:
        client.settimeout(2)
        client.sendall(b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0")
        return client.recv(1000).startswith(b"CONNECTED")
    return False


class Client:
    """A STOMP client that hides nothing: it sends bytes and gives back frames as bytes, up to and without the NUL."""

    def __init__(self, url: str, *headers: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 61613), timeout=20)
        self._socket.sendall("\n".join(["CONNECT", "accept-version:1.2", "host:localhost", *headers, "", "\0"]).encode())
        self._rest = b""
        self.frame()

    def send(self, *frames: bytes) -> None:
        self._socket.sendall(b"".join(frames))

    def frame(self) -> bytes:
        """The next frame. Raises TimeoutError, and EOFError where the broker closed the connection."""
        while b"\0\n" not in self._rest:
            received = self._socket.recv(65536)
            if not received:
                raise EOFError
            self._rest += received
        frame, _, self._rest = self._rest.partition(b"\0\n")
        return frame.lstrip(b"\n")

    def ask(self, frame: bytes) -> bytes:
        """Send one that asks for a receipt; gives the answer."""
        self.send(frame)
        return self.frame()

    def subscribe(self, destination: str) -> None:
        self.ask(f"SUBSCRIBE\nid:0\ndestination:{destination}\nack:auto\nreceipt:s\n\n\0".encode())

    def close(self) -> None:
        self._socket.close()


def jms(broker: Broker, *arguments: str) -> list[list[str]]:
    """Run Jms.java against the broker: what it printed, line by line, cut at the tabs. Raises Unavailable."""
    java = shutil.which("java")
    if java is None or broker.libraries in (None, DEBIAN) or not broker.openwire_url:
        raise Unavailable(
            "a JMS client needs java, the jars of a broker that speaks Jakarta's JMS, which Debian's does not, and its OpenWire port"
        )
    command = [java, "-cp", f"{broker.libraries}/*", str(Path(__file__).with_name("Jms.java")), broker.openwire_url, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


class Given(GivenBroker):
    """See the module."""

    variable = "DELAYBRIDGE_TEST_ACTIVEMQ_URL"
    libraries: Path | None = None

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.openwire_url = os.environ.get("DELAYBRIDGE_TEST_ACTIVEMQ_OPENWIRE_URL", "")
        if self.openwire_url and cached().is_dir():
            self.libraries = cached()

    def answers(self) -> bool:
        return answers(self.url)


class Native(PrivateProcess):
    """A private process: own ports and data, on the loopback interface only. `libraries` are the broker's jars, of 6.x or of 5.x; `java` Java's options.

    `settings` (`xml`, `usage`, `scheduler`, `connectors`, `purge`) go to `configuration`.
    """

    name = "ActiveMQ"

    def __init__(self, libraries: Path, *, java: Sequence[str] = SMALL, ports: Ports = any_port, **settings: Any) -> None:
        super().__init__()
        self.libraries: Path | None = libraries
        stomp, openwire = ports(61613), ports(61616)
        self.url = f"stomp://127.0.0.1:{stomp}"
        self.openwire_url = f"tcp://127.0.0.1:{openwire}"
        self.provider = f"private process of {libraries}"
        self._java = java
        self.configure(**settings)

    def configure(self, **settings: Any) -> None:
        """Write activemq.xml anew; it takes effect with the next start."""
        data = str(self.directory / "data")
        (self.directory / "activemq.xml").write_text(configuration(self.url, self.openwire_url, data, **settings))

    def command(self) -> list[str]:
        java, jars = shutil.which("java"), f"{self.libraries}/*:{self.libraries}/optional/*"
        if java is None:
            raise Unavailable("there is no `java` (apt install default-jre-headless)")
        options = [*self._java, f"-Djava.io.tmpdir={self.directory}"]
        homes = [f"-Dactivemq.{each}={self.directory}" for each in ("base", "home", "conf")]
        main = ["org.apache.activemq.console.Main", "start", f"xbean:file:{self.directory}/activemq.xml?validate=false"]
        return [java, *options, *self.sharing(), *homes, "-cp", jars, *main]

    def sharing(self) -> list[str]:
        """How Java is told of the classes."""
        return classes.sharing(self.libraries) if self.libraries else []

    def answers(self) -> bool:
        return answers(self.url)


class Dumping(classes.Dumping, Native):
    """One that writes down its classes when it stops."""

    def __init__(self, jars: Path) -> None:
        super().__init__(jars)
        self.jars = jars


class Container(PrivateContainer):
    """ActiveMQ in Docker, on fixed ports, so that a restart comes back where it was."""

    image = IMAGE
    libraries: Path | None = None

    def __init__(self, ports: Ports = any_port) -> None:
        super().__init__()
        stomp, openwire = ports(61613), ports(61616)
        self.url = f"stomp://127.0.0.1:{stomp}"
        self.openwire_url = f"tcp://127.0.0.1:{openwire}"
        self.directory = Path(tempfile.mkdtemp(prefix="delaybridge-activemq-"))
        self.directory.chmod(0o755)  # the broker in the container is another user
        written = self.directory / "activemq.xml"
        written.write_text(configuration("stomp://0.0.0.0:61613", "tcp://0.0.0.0:61616", "/opt/apache-activemq/data"))
        container = DockerContainer(IMAGE).with_volume_mapping(str(written), "/opt/apache-activemq/conf/activemq.xml", "ro")
        self.container = publish(container, {61613: stomp, 61616: openwire})
        if cached().is_dir():
            self.libraries = cached()

    def answers(self) -> bool:
        return listens(self.url) and answers(self.url)

    def stop(self) -> None:
        super().stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def cached() -> Path:
    """Where `install` puts the jars."""
    return maven.cache() / f"activemq-{VERSION}-{JARS}"


def install() -> Path:
    """The jars of the current release, fetched where they are missing, and their classes dumped. Raises Unavailable."""
    if not cached().is_dir():
        maven.fetch(POM, cached())
    if not classes.sharing(cached()):
        with running(Dumping(cached())):
            pass
    return cached()


def libraries() -> Path:
    """The jars that a private process can be started from. Raises Unavailable."""
    for found in (cached(), DEBIAN):
        if found.is_dir():
            return found
    raise Unavailable(f"neither {cached()} (python -m brokers.activemq --install) nor {DEBIAN} (apt install activemq)")


def choose(ports: Ports = any_port) -> Broker:
    """The first of: given by URL, Docker, native. Nothing is started yet. Raises Unavailable."""
    if url := os.environ.get("DELAYBRIDGE_TEST_ACTIVEMQ_URL"):
        return Given(url)
    if docker_has(IMAGE):
        return Container(ports)
    return Native(libraries(), ports=ports)


def start() -> contextlib.AbstractContextManager[Broker]:
    """The broker that `choose` finds, running. Raises Unavailable."""
    return running(choose())


if __name__ == "__main__":
    if sys.argv[1:] == ["--install"]:
        print(install())
    else:
        until_stopped(choose, "provider", "url", "openwire_url")
