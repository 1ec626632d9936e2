"""An ActiveMQ Artemis for tests, started as a private process: own port and data, on the loopback interface only.

In tests/, `python -m brokers.artemis --install` fetches it from Maven Central into the user's cache; `python -m brokers.artemis` starts one and keeps it until
Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from brokers import maven
from brokers.activemq import answers
from brokers.common import Unavailable, free_port
from brokers.private import PrivateProcess, until_stopped

VERSION = "2.55.0"  # as in artemis.pom.xml

CONFIGURATION = """<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>tests</name>
    <persistence-enabled>true</persistence-enabled>
    <journal-type>NIO</journal-type>
    <paging-directory>{data}/paging</paging-directory>
    <bindings-directory>{data}/bindings</bindings-directory>
    <journal-directory>{data}/journal</journal-directory>
    <large-messages-directory>{data}/large</large-messages-directory>
    <journal-min-files>2</journal-min-files>
    <journal-file-size>10M</journal-file-size>
    <security-enabled>false</security-enabled>
    <acceptors>
      <acceptor name="stomp">tcp://127.0.0.1:{port}?protocols=STOMP;anycastPrefix=/queue/;multicastPrefix=/topic/</acceptor>
    </acceptors>
    {xml}
  </core>
</configuration>
"""


class Artemis(PrivateProcess):
    """A private process. `xml` stands in the core element of broker.xml: `<diverts>`, `<address-settings>` and the like."""

    name = "Artemis"

    def __init__(self, xml: str = "") -> None:
        self.libraries = maven.cache() / f"artemis-{VERSION}"
        if not self.libraries.is_dir():
            raise Unavailable(f"there is no {self.libraries} (python -m brokers.artemis --install)")
        super().__init__()
        port = free_port()
        self.url = f"stomp://127.0.0.1:{port}"
        self.provider = f"private process of {self.libraries}"
        (self.directory / "broker.xml").write_text(CONFIGURATION.format(data=self.directory, port=port, xml=xml))

    def command(self) -> list[str | Path]:
        java = shutil.which("java")
        if java is None:
            raise Unavailable("there is no `java` (apt install default-jdk-headless)")
        main = Path(__file__).with_name("Artemis.java")
        return [java, "-Xmx384m", "-XX:+UseSerialGC", "-cp", f"{self.libraries}/*", main, self.directory / "broker.xml"]

    def answers(self) -> bool:
        return answers(self.url)


def install() -> Path:
    """Its jars, fetched where they are missing. Raises Unavailable."""
    target = maven.cache() / f"artemis-{VERSION}"
    if not target.is_dir():
        maven.fetch("artemis.pom.xml", target)
    return target


if __name__ == "__main__":
    if sys.argv[1:] == ["--install"]:
        print(install())
    else:
        until_stopped(Artemis, "provider", "url")
